"""Run any model of transformers whose layers keep a running state, with transformers' own cache.

No token can be removed from such a state. So it is saved before each pass of a round; where drafts
were rejected it is restored, and the next pass reads the kept tokens again, together with its own
drafts: a few rows more, and no pass more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from .cost import extra_token_cost
from .eager import EagerEngine
from .running_states import (
    MAX_CHECKPOINTS,
    Checkpoint,
    RunningStates,
    positions_from,
    put_back,
    save,
)


class RunningEngine(EagerEngine):
    """A model with running states, as a target and as a draft.

    `length` counts all tokens of the text so far. The cache may hold fewer, `_read`: those after
    them were rolled back with the state, and the next pass reads them again. A round in which all
    drafts are kept leaves nothing to read again. `_reread_cost` is the cost of what was read again
    since then, in passes of one token: once it is that of a pass, the next round should draft
    nothing (`catch_up_due`), so that all tokens that it reads are kept.
    """

    def __init__(self, model: Any, vocab: int, running: RunningStates) -> None:
        super().__init__(model, vocab)
        self._cache = DynamicCache(config=model.config)
        self._one_by_one = running.one_by_one
        self._extra_token = extra_token_cost(model, self.name)
        self._text = torch.empty(0, dtype=torch.int64, device=self.device)
        self._read = 0
        self._shallow_read = 0  # tokens that the first layers hold
        self._checkpoints: list[Checkpoint] = []  # this round's checkpoints, ascending by length
        self._reread_cost = 0.0

    @property
    def catch_up_due(self) -> bool:
        return self._reread_cost >= 1.0 and self.length > self._read

    def _clear(self) -> None:
        self._cache = DynamicCache(config=self._model.config)
        self.length = 0
        self._read = 0
        self._shallow_read = 0
        self._checkpoints = []
        self._reread_cost = 0.0

    def _pass(self, ids: Tensor, keep: int, layers: int | None) -> Tensor:
        begin = self._read if layers is None else self._shallow_read
        read_again = self.length - begin
        self._text = torch.cat([self._text[: self.length], ids])
        self.length += len(ids)
        uncached_ids = self._text[begin:]
        # All models read several tokens as they should from an empty state: a prompt is one pass.
        is_prompt = begin == 0 and keep == 1
        singly = self._one_by_one and not is_prompt
        pieces = uncached_ids.split(1) if singly else [uncached_ids]
        logits = []
        states: list[dict[int, Tensor]] = []
        for piece in pieces:
            if layers is None or begin == self._read:
                self._save(begin)
            positions = positions_from(self._model, begin, len(piece))
            logits.append(self._call(piece, min(keep, len(piece)), layers, **positions))
            states.append(dict(self._states))
            begin += len(piece)
            self._shallow_read = begin
            if layers is None:
                self._read = begin
        if layers is None and read_again == 0:
            self._reread_cost = 0.0
        elif layers is None and not self._one_by_one:
            self._reread_cost += read_again * self._extra_token
        for n in self._states:
            self._states[n] = torch.cat([piece[n] for piece in states], 1)[:, -len(ids) :]
        return torch.cat(logits)[-keep:]

    def _save(self, length: int) -> None:
        """Save the cache with its `length` tokens; an empty one is easily made again."""
        if length and len(self._checkpoints) < MAX_CHECKPOINTS:
            self._checkpoints.append(save(self._cache, length))

    def rollback(self, length: int) -> None:
        if self._shallow_read > self._read:  # the other layers have not seen these tokens
            self._put_back(self._read)
        if length < self._read:
            self._put_back(length)
        self._checkpoints = []
        self.length = length

    def _put_back(self, length: int) -> None:
        """Restore the cache at `length` tokens, or at the nearest checkpoint before; later tokens
        are read again."""
        while self._checkpoints:
            checkpoint = self._checkpoints.pop()
            if checkpoint.length <= length:
                put_back(self._cache, checkpoint)
                self._read = checkpoint.length
                self._shallow_read = checkpoint.length
                return
        self._clear()

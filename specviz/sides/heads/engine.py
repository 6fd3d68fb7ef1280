"""Heads on the target as engines: they read tokens and the target's hidden states.

The pair that an EAGLE-3 head reads at place i is the target's state of token i and token i + 1, so
it never reads the first token of a text, and has read `length` tokens when its cache holds
length - 1 places.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.eager import memory_limited
from ...core.states import StateReader
from ...pairs.heads.eagle import Head, HeadCache


class HeadEngine(StateReader):
    """An EAGLE-3 head and the places that its cache holds."""

    def __init__(self, head: Head, vocab: int) -> None:
        super().__init__(head.device, vocab)
        self._head = head
        weight = head.fc.weight
        self._cache = HeadCache(weight.device, weight.dtype, head.config.layer)
        self._unread = weight.new_empty(0, head.fc.in_features)
        self._output = weight.new_empty(0, head.fc.out_features)  # of the last place
        targets = head.targets
        # Ids of the target that its tokenizer lacks are never drafted.
        self._known = None if bool((targets < vocab).all()) else (targets < vocab).nonzero()[:, 0]
        self._targets = targets if self._known is None else targets[self._known]

    @property
    def length(self) -> int:
        return self._cache.length + 1

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        head = self._head
        with memory_limited():
            hidden = self._output
            if len(self._unread):
                hidden, self._unread = head.fuse(self._unread), self._unread[:0]
            outputs = head.step(ids.to(self.device), hidden, self._cache)
            self._output = outputs[-1:]
            return self._spread(head.logits(outputs[-keep:]) / temperature)

    def rollback(self, length: int) -> None:
        self._cache.length = length - 1

    def _spread(self, logits: Tensor) -> Tensor:
        """Logits of the head's tokens [n, draft_vocab] over the whole vocabulary, fp32 [n, vocab]:
        -inf elsewhere, so that the probability there is 0."""
        if self._known is not None:
            logits = logits[:, self._known]
        whole = logits.new_full((len(logits), self._vocab), -torch.inf)
        whole[:, self._targets] = logits
        return whole

"""The core's interface to heads, which draft from the target's hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from .engine import BaseEngine
from .engine_choice import usable_engines

if TYPE_CHECKING:
    from .protocols import LanguageModel, StateEngine

EAGLE = "eagle3"
"""The `kind` of an EAGLE-3 head."""


class DraftHead(Protocol):
    """A head: it replaces a draft model, and reads the target's states.

    kind: its architecture, such as `EAGLE`. states: for each state, the number of the target's
    layers before it. step_parts: the modules of a step along the chain.
    """

    kind: str
    name_or_path: str
    config: Any

    @property
    def device(self) -> torch.device: ...

    @property
    def states(self) -> Sequence[int]: ...

    @property
    def step_parts(self) -> Sequence[Any]: ...

    def parameters(self) -> Iterator[Any]:
        """Return its own weights."""
        ...

    def check(self, target: LanguageModel) -> None:
        """Raise `PairError` unless the head was made for this target."""
        ...

    def make_engine(self, vocab: int, target_engine: StateEngine) -> StateReader:
        """Make its plainest engine, with an empty cache.

        target_engine: the engine whose states it reads.
        """
        ...


def make_head_engine(head: DraftHead, vocab: int, target_engine: StateEngine) -> StateReader:
    """Make the fastest engine that runs this head exactly, with an empty cache.

    target_engine: the engine whose states the head reads.
    """
    for kind in usable_engines():
        if kind.make_head is None:
            continue
        engine = kind.make_head(head, vocab, target_engine)
        if engine is not None:
            return engine
    return head.make_engine(vocab, target_engine)


class StateReader(BaseEngine):
    """The engine of a head, which buffers the target's states that it has not read yet.

    A pass reads as many tokens as there are such states, or, if there are none, one token with the
    head's own output of the pass before.
    """

    name = "eager"
    _unread_states: Tensor  # [n, states * width]

    def __init__(self, device: torch.device, vocab: int) -> None:
        self.device = device
        self._vocab = vocab

    @property
    def length(self) -> int:
        raise NotImplementedError

    def receive(self, states: Tensor) -> None:
        """Take the target's states of the tokens that follow those of all states so far,
        [n, states * width]."""
        self._unread_states = torch.cat([self._unread_states, states.to(self._unread_states)])

    def prefill(self, ids: Tensor, states: Tensor) -> None:
        """Read a prompt: int64 `ids` [n] of one token or more, and the target's states of each."""
        # The last state belongs to a token that is not among `ids`: the first draft reads it.
        self.receive(states[:-1])
        if len(ids) > 1:
            self.forward(ids[1:], keep=1)
        self.receive(states[-1:])

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        raise NotImplementedError

    def rollback(self, length: int) -> None:
        raise NotImplementedError

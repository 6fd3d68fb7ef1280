"""Where drafts come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .engine import Engine, make_engine, prefill
from .errors import PairError
from .pair import Pair, context_length
from .programs import DraftPrograms
from .sampling import draw, probabilities, uniforms
from .settings import Settings
from .static import StaticEngine


class Draft(NamedTuple):
    """A draft run of n tokens.

    ids: int64 [n]. q: fp32 [n, vocab], the very rows that `ids` was drawn from.
    logits: fp32 [n, vocab], what q was made of, for the reader's sake.
    """

    ids: Tensor
    q: Tensor
    logits: Tensor


class Drafter(Protocol):
    """A source of drafts for one run.

    form: the implementation of its model's engine; None if it has no model to prefill.
    """

    form: str | None

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; returns synchronised seconds."""
        ...

    def room(self, length: int) -> int:
        """How many tokens could be drafted after `length` committed ones."""
        ...

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        """`count` tokens (at least 1) to follow the committed `ids`."""
        ...

    def rollback(self, length: int) -> None:
        """Forget drafts: only the first `length` tokens are committed and may be cached."""
        ...


class ModelDrafter:
    """Drafts from a small model over the same vocabulary."""

    def __init__(
        self, engine: Engine, pair: Pair, settings: Settings, generator: torch.Generator
    ) -> None:
        self.engine = engine
        self.form: str | None = self.engine.form
        self._settings = settings
        self._generator = generator
        self._limit = context_length(pair.draft)
        self._device = pair.device

    def prefill(self, ids: Sequence[int]) -> float:
        if self._limit is not None and len(ids) > self._limit:
            return 0.0
        return prefill(self.engine, ids)

    def room(self, length: int) -> int:
        # The last drafted token is never fed, so it may lie one past the context.
        return max(0, self._limit - length + 1) if self._limit is not None else length + 1_000_000

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        feed = torch.tensor(ids[self.engine.length :], device=self.engine.device)
        draws = uniforms(count, self._generator).to(self.engine.device)
        drafted, rows, logits = [], [], []
        for step in range(count):
            row = self.engine.forward(feed, keep=1)  # [1, vocab]
            q = probabilities(row, self._settings)
            # A one-hot row has one possible draw, and a draw costs as much as a small layer.
            feed = q.argmax(-1) if self._settings.greedy else draw(q, draws[step : step + 1])
            drafted.append(feed)
            rows.append(q)
            logits.append(row)
        place = self._device
        return Draft(torch.cat(drafted).to(place), torch.cat(rows).to(place), torch.cat(logits))

    def rollback(self, length: int) -> None:
        self.engine.rollback(min(length, self.engine.length))


class StaticDrafter(ModelDrafter):
    """The same drafts from one program per run of them."""

    def __init__(
        self, engine: StaticEngine, pair: Pair, settings: Settings, generator: torch.Generator
    ) -> None:
        super().__init__(engine, pair, settings, generator)
        self._programs = DraftPrograms(engine, settings, generator)

    def prefill(self, ids: Sequence[int]) -> float:
        length = len(ids) + 1
        if self.room(length):
            most = length + self._settings.max_new_tokens
            self._programs.prepare(length, min(most, self._limit or most))
            self.form = self.engine.form
        return super().prefill(ids)

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        drafted, q, logits = self._programs.run(ids, count)
        return Draft(drafted.to(self._device), q.to(self._device), logits)


class NoDrafter:
    """No drafts at all: the baseline."""

    form: str | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        return 0.0

    def room(self, length: int) -> int:
        return 0

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        raise AssertionError("no room, so no drafts")

    def rollback(self, length: int) -> None:
        pass


def make_drafter(pair: Pair, settings: Settings, generator: torch.Generator) -> Drafter:
    """The drafter that the settings name. gamma = 0 needs none."""
    if settings.drafter == "none" or settings.gamma == 0:
        return NoDrafter()
    if pair.draft is None:
        raise PairError("this pair has no draft model: choose one, or the drafter 'none'.")
    engine = make_engine(pair.draft, pair.vocab)
    if isinstance(engine, StaticEngine):
        return StaticDrafter(engine, pair, settings, generator)
    return ModelDrafter(engine, pair, settings, generator)

"""Drafts from a small model over the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.drafting import UNLIMITED, Drafter
from ..core.engine import Engine, prefill
from ..core.engines import make_engine
from ..core.paths import make_path
from ..core.types import DecodingPath, Draft, RunContext
from ..errors import PairError
from ..pairs.pair import Pair, context_length


class ModelDrafter(Drafter):
    """The pair's draft model, with a cache of its own."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        if pair.draft is None:
            raise PairError(
                "this pair has no draft model: choose one, or one of the drafters that it offers: "
                f"{', '.join(pair.drafters)}."
            )
        self.engine: Engine = make_engine(pair.draft, run.vocab)
        self.form = self.engine.form
        self._path = make_path(self.engine, run)
        self._model = pair.draft
        self._length = run.settings.max_new_tokens
        self._limit = context_length(pair.draft)

    def prefill(self, ids: Sequence[int]) -> float:
        length = len(ids) + 1
        if self.room(length):
            most = length + self._length
            self._path.prepare("draft", length, min(most, self._limit or most))
        if self._limit is not None and len(ids) > self._limit:
            return 0.0
        return prefill(self.engine, ids)

    def room(self, length: int) -> int:
        # The last drafted token is never fed, so it may lie one past the context.
        return max(0, self._limit - length + 1) if self._limit is not None else UNLIMITED

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        return self._path.draft(ids, count)

    def rollback(self, length: int) -> None:
        self.engine.rollback(min(length, self.engine.length))

    def step_cost(self) -> float:
        from ..core.cost import pass_cost  # which few policies ask for

        return pass_cost(self._model, self.engine.form)

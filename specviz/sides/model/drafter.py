"""Drafts from a small model over the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.drafter import UNLIMITED, Drafter
from ...core.engine import prefill
from ...core.engine_choice import make_engine
from ...core.model_facts import before_border, context_length, rotation_borders
from ...core.pair import Pair
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath


class ModelDrafter(Drafter):
    """The pair's draft model, with a cache of its own."""

    path: DecodingPath

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        self._model = pair.draft_model
        self._max_new_tokens = run.settings.max_new_tokens
        self._context = context_length(self._model) or UNLIMITED
        self._borders = rotation_borders(self._model)
        self.engine = make_engine(self._model, run.vocab)
        self.engine_name = self.engine.name
        self.path = self.engine.path(run)

    def prefill(self, ids: Sequence[int]) -> float:
        length = len(ids) + 1
        if self.room(length):
            max_length = min(length + self._max_new_tokens, self._context)
            self.path.prepare("draft", length, max_length)
        if len(ids) > self._context:
            return 0.0
        return prefill(self.engine, ids)

    def room(self, length: int) -> int:
        # The last drafted token is never fed, so it may be one past the context.
        # The tokens fed after the first draft stay in the context, and before the next length at
        # which the model changes its rotations.
        fed = before_border(self._borders, length, self._context - length)
        return max(0, fed + 1)

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        return self.path.draft(ids, count, min_confidence=self.min_confidence)

    def rollback(self, length: int) -> None:
        # The model never reads the last token that it drafted, so its cache may lack it.
        self.engine.rollback(min(length, self.engine.length))

    def step_cost(self) -> float:
        from ...core.cost import pass_cost  # few policies need it

        return pass_cost(self._model, self.engine.name)

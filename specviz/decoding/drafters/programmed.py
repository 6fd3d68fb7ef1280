"""Whole draft runs in one program each, where the engine has them."""

from __future__ import annotations

from collections.abc import Sequence

from ...engines.static.engine import StaticEngine
from ...models.pair import Pair, context_length
from ...settings import Settings
from ..graph_path import DraftPrograms
from ..sampling import Source
from .base import Draft
from .early_exit import ExitDrafter
from .model import ModelDrafter


class ProgramDrafter:
    """The drafts of a model or of an exit, all steps at once."""

    def __init__(
        self,
        inner: ModelDrafter | ExitDrafter,
        engine: StaticEngine,
        pair: Pair,
        settings: Settings,
        source: Source,
    ) -> None:
        self.engine = engine
        self.layers = inner.layers
        self.room, self.price = inner.room, inner.price
        self._inner = inner
        self._length, self._place = settings.max_new_tokens, pair.device
        self._limit = context_length(pair.target if inner.layers is not None else pair.draft)
        self._programs = DraftPrograms(engine, settings, source, inner.layers)

    @property
    def form(self) -> str | None:
        return self.engine.form

    def prefill(self, ids: Sequence[int]) -> float:
        length = len(ids) + 1
        if self.room(length):
            most = length + self._length
            self._programs.prepare(length, min(most, self._limit or most))
        return self._inner.prefill(ids)

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        begin = self.engine.length
        drafted, q, logits = self._programs.run(ids, count)
        if self.layers is not None:
            self.engine.rollback(begin)  # the cache is the target's, whose other layers saw nothing
        return Draft(drafted.to(self._place), q.to(self._place), (logits,))

    def rollback(self, length: int) -> None:
        self._inner.rollback(length)

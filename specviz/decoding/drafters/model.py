"""Drafts from a small model over the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...engines.base import Engine, host_ids, prefill
from ...engines.choose import make_engine
from ...engines.cost_model import pass_price
from ...errors import PairError
from ...models.pair import Pair, context_length
from ...settings import Settings
from ..sampling import Source
from .base import UNLIMITED, Draft, draft_run


class ModelDrafter:
    """The pair's draft model, with a cache of its own."""

    layers: int | None = None

    def __init__(self, pair: Pair, settings: Settings, source: Source) -> None:
        if pair.draft is None:
            raise PairError(
                "this pair has no draft model: choose one, or the drafter 'ngram', 'early-exit' "
                "or 'none'."
            )
        self.engine: Engine = make_engine(pair.draft, pair.vocab)
        self.form: str | None = self.engine.form
        self._model = pair.draft
        self._settings = settings
        self._source = source
        self._limit = context_length(pair.draft)

    def prefill(self, ids: Sequence[int]) -> float:
        if self._limit is not None and len(ids) > self._limit:
            return 0.0
        return prefill(self.engine, ids)

    def room(self, length: int) -> int:
        # The last drafted token is never fed, so it may lie one past the context.
        return max(0, self._limit - length + 1) if self._limit is not None else UNLIMITED

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        def forward(feed: Tensor, heat: float) -> Tensor:
            return self.engine.forward(feed, keep=1, heat=heat)

        feed = host_ids(ids[self.engine.length :]).to(self.engine.device)
        return draft_run(forward, feed, count, self._settings, self._source)

    def rollback(self, length: int) -> None:
        self.engine.rollback(min(length, self.engine.length))

    def price(self) -> float:
        return pass_price(self._model, self.engine.form)

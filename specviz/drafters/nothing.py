"""No drafts at all: the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Draft


class NoDrafter:
    """Has room for no draft, so that none is ever asked for."""

    form: str | None = None
    layers: int | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        return 0.0

    def room(self, length: int) -> int:
        return 0

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        return None

    def rollback(self, length: int) -> None:
        pass

    def price(self) -> float:
        return 0.0

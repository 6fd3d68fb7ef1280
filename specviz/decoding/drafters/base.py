"""What several drafters need."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Draft

UNLIMITED = 1_000_000  # tokens, more than any run drafts


class NoDrafter:
    """Has no room for any draft, so that none is ever asked for: the baseline."""

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

    def step_cost(self) -> float:
        return 0.0

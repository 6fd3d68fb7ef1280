"""Drafts that are copied where the text repeats itself, and else come from a head on the target.

A copy costs nothing, and holds for longer than the chain of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.drafting import Drafter
from ..core.kinds import resolved
from ..core.types import Draft, RunContext
from ..kinds import drafter_kind
from ..pairs.pair import Pair

if TYPE_CHECKING:
    from ..core.protocols import DecodingPath

SIZE = 4  # tokens that must agree: where fewer do, a head guesses better
SHARE = 3  # a head drafts a third of the tokens that are due: its steps cost, copies do not


class NgramHeadDrafter(Drafter):
    """Which of both drafts depends on committed tokens alone, so q is what each token was drawn
    from."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        copies, head = (resolved(drafter_kind(name).make) for name in ("ngram", "head"))
        self._copies: Drafter = copies(pair, run, target, sizes=(SIZE,))
        self._head: Drafter = head(pair, run, target)
        self.form = self._head.form

    def prefill(self, ids: Sequence[int]) -> float:
        return self._head.prefill(ids)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        copied = self._copies.draft(ids, count)
        return self._head.draft(ids, -(-count // SHARE)) if copied is None else copied

    def rollback(self, length: int) -> None:
        self._head.rollback(length)

    def step_cost(self) -> float:
        return self._head.step_cost()

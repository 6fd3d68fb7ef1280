"""Where drafts come from: what every drafter offers, and the one that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import PairError
from ..kinds import drafter_kind
from .kinds import resolved

if TYPE_CHECKING:
    from ..pairs.pair import Pair
    from .types import DecodingPath, Draft, RunContext

UNLIMITED = 1_000_000  # tokens, more than any run drafts


class Drafter:
    """A source of drafts for one run. A subclass drafts; most need nothing else of this.

    form: the name of the engine that drafts; None if no model does. layers: how many of the
    target's first layers draft, if they do.
    """

    form: str | None = None
    layers: int | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; returns synchronised seconds."""
        return 0.0

    def room(self, length: int) -> int:
        """How many tokens could be drafted after `length` committed ones."""
        return UNLIMITED

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        """Up to `count` tokens (at least 1) to follow the committed `ids`; None if there are none.

        How many are drafted may depend on `ids`, but not on what is drawn.
        """
        raise NotImplementedError

    def rollback(self, length: int) -> None:
        """Forget drafts: only the first `length` tokens are committed and may be cached."""

    def step_cost(self) -> float:
        """The cost of one draft step, as `core.cost.pass_cost` counts it."""
        return 0.0


class NoDrafter(Drafter):
    """Has no room for any draft, so that none is ever asked for: the baseline."""

    def __init__(self, *_: object) -> None:
        pass

    def room(self, length: int) -> int:
        return 0


def make_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """The drafter that the settings name; none if gamma is 0.

    target: the path that judges the drafts, whose first layers may draft them too. Raises
    `PairError` if this pair cannot draft in that way.
    """
    kind = drafter_kind(run.settings.drafter)
    if run.settings.gamma == 0:
        return NoDrafter()
    if lacking := kind.lacking(pair):
        raise PairError(lacking)
    if kind.package is not None:
        from .foreign import CheckedDrafter  # not needed for ours

        return CheckedDrafter(kind, pair, run, target)
    shared = pair.shared is not None
    make = resolved(kind.translated if shared and kind.translated else kind.make)
    drafter: Drafter = make(pair, run, target)
    return drafter

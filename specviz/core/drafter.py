"""A source of drafts: what every drafter offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protocols import DecodingPath
    from .types import Draft

UNLIMITED = 1_000_000  # tokens, more than any run drafts


class Drafter:
    """A source of drafts for one run. A subclass drafts; most need nothing else of this.

    engine_name: of the engine that drafts; None if no model does. layers: how many of the target's
    first layers draft, if they do. path: whose draft runs are all that this drafter does, if a
    model drafts in the target's own tokens. least_chance: of the policy, for the next round; see
    `policy.Policy`. A drafter that estimates no such probability does not look at it.
    """

    engine_name: str | None = None
    layers: int | None = None
    path: DecodingPath | None = None
    least_chance: float = 0.0

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; returns synchronised seconds."""
        return 0.0

    def room(self, length: int) -> int:
        """How many tokens could be drafted after `length` committed ones."""
        return UNLIMITED

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        """Up to `count` tokens (at least 1) to follow the committed `ids`; None if there are none.

        Whether a token is drafted may depend on the tokens before it, but not on what is drawn for
        it.
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
        """It takes what every drafter is made from, and needs none of it."""

    def room(self, length: int) -> int:
        return 0

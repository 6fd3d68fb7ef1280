"""A source of drafts: what every drafter offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protocols import DecodingPath
    from .types import Draft

UNLIMITED = 1_000_000  # tokens, more than any run drafts


class Drafter:
    """A source of drafts for one run. Subclasses implement `draft`; most need nothing else.

    engine_name: of the engine that drafts; None if no model does. layers: how many of the target's
    first layers draft, if they do. path: the `DecodingPath` that drafts, if a model drafts in the
    target's own tokens and the drafter does nothing more. min_confidence: the policy's
    threshold for the next round; see `policy.Policy`. Drafters without confidences ignore it.
    """

    engine_name: str | None = None
    layers: int | None = None
    path: DecodingPath | None = None
    min_confidence: float = 0.0

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; return synchronised seconds."""
        return 0.0

    def room(self, length: int) -> int:
        """The most tokens that can be drafted after `length` committed ones."""
        return UNLIMITED

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        """Draft up to `count` tokens (at least 1) after the committed `ids`; None for no draft.

        The decision to draft a token may depend on the tokens before it, but not on its own draw.
        """
        raise NotImplementedError

    def rollback(self, length: int) -> None:
        """Forget drafts: only the first `length` tokens are committed and may be cached."""

    def step_cost(self) -> float:
        """The cost of one draft step, as `core.cost.pass_cost` counts it."""
        return 0.0


class NoDrafter(Drafter):
    """The baseline's drafter: it has no room for drafts, so none is ever asked for."""

    def __init__(self, *_: object) -> None:
        """Take every drafter's arguments, and use none of them."""

    def room(self, length: int) -> int:
        return 0

"""Where drafts come from: the drafter that the settings name."""

from __future__ import annotations

from ...core.kinds import resolved
from ...errors import PairError
from ...kinds import drafter_kind
from ...models.pair import Pair
from ..types import DecodingPath, Drafter, RunContext
from .base import NoDrafter

__all__ = ["make_drafter"]


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
    drafter: Drafter = resolved(kind.make)(pair, run, target)
    return drafter

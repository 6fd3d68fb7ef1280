"""Where drafts come from: a model, text seen before, the target's first layers, or nowhere."""

from __future__ import annotations

from ...models.pair import Pair
from ..types import DecodingPath, Drafter, RunContext
from .base import NoDrafter
from .early_exit import EarlyExitDrafter
from .model import ModelDrafter
from .ngram import NgramDrafter
from .suffix import SuffixDrafter

__all__ = ["make_drafter"]


def make_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """The drafter that the settings name; none if gamma is 0.

    target: the path that judges the drafts, whose first layers may draft them too. Raises
    `PairError` if this pair cannot draft in that way.
    """
    settings = run.settings
    if settings.drafter == "none" or settings.gamma == 0:
        return NoDrafter()
    if settings.drafter == "ngram":
        return NgramDrafter(run.vocab, run.device)
    if settings.drafter == "suffix":
        return SuffixDrafter(run)
    if settings.drafter == "early-exit":
        return EarlyExitDrafter(pair, run, target)
    return ModelDrafter(pair, run)

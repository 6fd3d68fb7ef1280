"""Where drafts come from: a model, text seen before, the target's first layers, a head on the
target, or nowhere."""

from __future__ import annotations

from ...models.pair import Pair
from ..types import DecodingPath, Drafter, RunContext
from .base import NoDrafter
from .early_exit import EarlyExitDrafter
from .head import HeadDrafter
from .model import ModelDrafter
from .ngram import NgramDrafter
from .shared_tokens import SharedTokensDrafter
from .suffix import SuffixDrafter
from .text import TextDrafter

__all__ = ["make_drafter"]


def make_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """The drafter that the settings name; none if gamma is 0.

    A draft model with a tokenizer of its own drafts text where the run is greedy, else the tokens
    that both tokenizers have.

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
    if settings.drafter == "head":
        return HeadDrafter(pair, run, target)
    if pair.shared is not None:
        kind = TextDrafter if settings.greedy else SharedTokensDrafter
        return kind(pair, run, pair.shared)
    return ModelDrafter(pair, run)

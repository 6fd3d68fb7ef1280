"""Drafters by name, made alike."""

from __future__ import annotations

from ...models.pair import Pair
from ..types import DecodingPath, Drafter, RunContext
from .base import NoDrafter
from .model import ModelDrafter
from .ngram import NgramDrafter
from .shared_tokens import SharedTokensDrafter
from .suffix import SuffixDrafter
from .text import TextDrafter


def model_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """The draft model. One with a tokenizer of its own drafts text where the run is greedy, else
    the tokens that both tokenizers have."""
    if pair.shared is not None:
        kind = TextDrafter if run.settings.greedy else SharedTokensDrafter
        return kind(pair, run, pair.shared)
    return ModelDrafter(pair, run)


def ngram_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """Copies of the text so far."""
    return NgramDrafter(run.vocab, run.device)


def suffix_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """Counts over the text so far and earlier texts."""
    return SuffixDrafter(run)


def no_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """None."""
    return NoDrafter()

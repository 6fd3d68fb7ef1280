"""The records of the drafters "ngram" and "suffix"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.records import DrafterKind
from .deployed import deployed_counts, deployed_ngrams

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.pair import Pair
    from ...core.protocols import DecodingPath
    from ...core.types import RunContext


def make_ngram_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """Make an `NgramDrafter`."""
    from .ngram import NgramDrafter

    return NgramDrafter(pair, run, target_path)


def make_suffix_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """Make a `SuffixDrafter`."""
    from .suffix import SuffixDrafter

    return SuffixDrafter(pair, run, target_path)


NGRAM = DrafterKind(
    name="ngram",
    page_order=2,
    make=make_ngram_drafter,
    deployed=deployed_ngrams,
    label="n-grams",
    choice="n-grams",
    lane="n-gram",
    clause="guesses are copied from the text so far",
    round_sentence="The end of the text occurred earlier in it: the {count} that followed there "
    "are copied as guesses. No model runs, so q is 1 for each.",
    no_draft_sentence="The end of the text did not occur earlier in it, so there was nothing to "
    "copy.",
    predicted="copied",
    certain=True,
)

SUFFIX = DrafterKind(
    name="suffix",
    page_order=4,
    make=make_suffix_drafter,
    deployed=deployed_counts,
    label="counts",
    clause="guesses are what followed the same words before",
    round_sentence="The longest end of the text that occurred before is looked up, and the tokens "
    "that followed it are counted: q is each token’s share, and one is drawn from it. That gave "
    "{count}, one after the other; their number was set beforehand.",
    greedy_round_sentence="The longest end of the text that occurred before is looked up, and the "
    "tokens that followed it are counted: the most frequent token is the guess. That gave {count}, "
    "one after the other; their number was set beforehand.",
    no_draft_sentence="No continuation seen before was likely enough to be accepted.",
    reads_memory=True,
    predicted="copied",
    from_counts=True,
)

"""The records of the drafters "head" and "ngram-head"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.records import DrafterKind
from ...remote.other_engines import Deployed, EngineTexts, Machine

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.pair import Pair
    from ...core.protocols import DecodingPath
    from ...core.types import RunContext


def make_head_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """Make a `HeadDrafter`."""
    from .drafter import HeadDrafter

    return HeadDrafter(pair, run, target_path)


def make_ngram_head_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """Make an `NgramHeadDrafter`."""
    from .drafter import NgramHeadDrafter

    return NgramHeadDrafter(pair, run, target_path)


def described(pair: Pair, engine: str, layers: int | None) -> dict[str, Any]:
    """The description of a head in a header, without a context: a head may have been trained on
    shorter texts, but it reads any length."""
    from ...core import header

    assert pair.head is not None
    return header.described(pair.head, engine, None)


def deployed_head(row: Deployed, machine: Machine) -> EngineTexts:
    """The texts for `DrafterKind.deployed`: the form that an engine reads depends on the head."""
    return {"": ("", "specviz writes no settings for heads.")}


HEAD = DrafterKind(
    name="head",
    page_order=5,
    make=make_head_drafter,
    described=described,
    deployed=deployed_head,
    label="head",
    choice="Head on the target",
    clause="a layer on the target guesses ahead",
    round_start="The head, a layer that reads the target’s hidden states, guesses",
    needs="head",
    reads_states=True,
    predicted="chained",
    cost="target",
    has_model=True,
)

NGRAM_HEAD = DrafterKind(
    name="ngram-head",
    page_order=6,
    make=make_ngram_head_drafter,
    described=described,
    deployed=deployed_head,
    label="n-grams or head",
    choice="Copies, else the head",
    clause="guesses are copied or come from a layer on the target",
    round_sentence="Where the text repeats itself, guesses are copied as long as copies are "
    "accepted. Otherwise the head guesses, a layer that reads the target’s hidden states. That "
    "gave {count}.",
    needs="head",
    reads_states=True,
    predicted="chained",
    cost="target",
    has_model=True,
)

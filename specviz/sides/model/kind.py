"""The record of the drafter "model"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.records import DrafterKind
from .deployed import deployed_model

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.pair import Pair
    from ...core.protocols import DecodingPath
    from ...core.types import RunContext


def make_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """The drafter with the pair's draft model, whichever tokenizer that has."""
    if pair.shared is not None:
        from .other_tokenizer import translated_drafter

        return translated_drafter(pair, run, target_path)
    from .drafter import ModelDrafter

    return ModelDrafter(pair, run, target_path)


MODEL = DrafterKind(
    name="model",
    page_order=1,
    make=make_drafter,
    deployed=deployed_model,
    label="draft model",
    clause="a small model guesses ahead",
    round_start="The draft guesses",
    needs="draft",
    predicted="position",
    cost="draft",
    has_model=True,
)

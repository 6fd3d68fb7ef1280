"""The record of the drafter "early-exit"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.records import DrafterKind
from ...remote.other_engines import Deployed, EngineTexts, Machine, generate

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.pair import Pair
    from ...core.protocols import DecodingPath
    from ...core.types import RunContext


def make_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """Make an `EarlyExitDrafter`."""
    from .drafter import EarlyExitDrafter

    return EarlyExitDrafter(pair, run, target_path)


def described(pair: Pair, engine: str, layers: int | None) -> dict[str, Any]:
    """The description of `drafter.described_exit`."""
    from .drafter import described_exit

    assert layers is not None
    return described_exit(pair, engine, layers)


def deployed_exit(row: Deployed, machine: Machine) -> EngineTexts:
    """The texts for `DrafterKind.deployed`."""
    text = generate(row, f"assistant_early_exit={machine.exit_layers}")
    return {"transformers": (text, "Use it for models that were trained for early exit.")}


EARLY_EXIT = DrafterKind(
    name="early-exit",
    page_order=3,
    make=make_drafter,
    described=described,
    deployed=deployed_exit,
    label="early exit",
    clause="the target’s own first layers guess ahead",
    round_start="The target’s own first layers guess",
    needs="layers",
    predicted="position",
    cost="target",
    has_model=True,
)

"""Make the drafter that the settings name, and read the earlier texts that some drafters use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..base.errors import SettingsError, shown
from .drafter import Drafter, NoDrafter
from .registry import drafter_kind, drafters
from .settings import Settings

if TYPE_CHECKING:
    from .pair import Pair
    from .policy import Policy
    from .protocols import DecodingPath, Engine
    from .types import RunContext


Memory: TypeAlias = Sequence[str | Sequence[int]]
"""Earlier texts, each as text or as ids of the target's tokenizer."""

EarlierTexts: TypeAlias = tuple[tuple[int, ...], ...]


def make_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """Make the drafter that the settings name, or a `NoDrafter` if gamma is 0.

    target_path: the path that judges the drafts, whose first layers may draft them too. Raises
    `PairError` if this pair cannot draft in that way.
    """
    kind = drafter_kind(run.settings.drafter)
    if run.settings.gamma == 0:
        return NoDrafter()
    if kind.package is not None:
        from .foreign import CheckedDrafter  # not needed for ours

        return CheckedDrafter(kind, pair, run, target_path)
    return kind.make(pair, run, target_path)


def policy_for(
    settings: Settings, pair: Pair, target_engine: Engine, drafter: Drafter
) -> Policy | None:
    """The policy that chooses how many tokens each round drafts; None if it is always gamma."""
    if not settings.adapts:
        return None
    from .cost import draft_costs
    from .policy import make_policy

    return make_policy(settings, lambda: draft_costs(drafter, target_engine, pair))


def memory_ids(pair: Pair, memory: Memory, settings: Iterable[Settings]) -> EarlierTexts:
    """The ids of each text that is not empty.

    settings: of the lanes with drafts. Raises `SettingsError` if none of them reads earlier texts,
    and `PromptError` for a text that is neither text nor known ids.
    """
    if not isinstance(memory, (list, tuple)):
        raise SettingsError(
            f"memory is {shown(memory)}: use a list of texts, each a string or a list of ids."
        )
    names = [lane_settings.drafter for lane_settings in settings]
    if memory and not any(drafter_kind(name).reads_memory for name in names):
        readers = " or ".join(repr(kind.name) for kind in drafters() if kind.reads_memory)
        raise SettingsError(
            f"memory is given, but the drafter {names[0]!r} does not read earlier texts: use "
            f"{readers}, or leave memory out."
        )
    texts = [tuple(pair.text_ids(text)) for text in memory]
    return tuple(ids for ids in texts if ids)

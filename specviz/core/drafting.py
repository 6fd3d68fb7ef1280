"""Where drafts come from: what every drafter offers, the one that the settings name, and the
earlier texts that some draft from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..errors import SettingsError, shown
from ..settings import Settings
from .registry import drafter_kind, drafters

if TYPE_CHECKING:
    from .pair import Pair
    from .policy import Policy
    from .protocols import DecodingPath, Engine
    from .types import Draft, RunContext

UNLIMITED = 1_000_000  # tokens, more than any run drafts

Memory: TypeAlias = Sequence[str | Sequence[int]]
"""Earlier texts, each as text or as ids of the target's tokenizer."""

EarlierTexts: TypeAlias = tuple[tuple[int, ...], ...]


class Drafter:
    """A source of drafts for one run. A subclass drafts; most need nothing else of this.

    engine_name: of the engine that drafts; None if no model does. layers: how many of the target's
    first layers draft, if they do. least_chance: of the policy, for the next round; see
    `policy.Policy`. A drafter that estimates no such probability does not look at it.
    """

    engine_name: str | None = None
    layers: int | None = None
    least_chance: float = 0.0

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; returns synchronised seconds."""
        return 0.0

    def room(self, length: int) -> int:
        """How many tokens could be drafted after `length` committed ones."""
        return UNLIMITED

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        """Up to `count` tokens (at least 1) to follow the committed `ids`; None if there are none.

        Whether a token is drafted may depend on the tokens before it, but not on what is drawn for
        it.
        """
        raise NotImplementedError

    def rollback(self, length: int) -> None:
        """Forget drafts: only the first `length` tokens are committed and may be cached."""

    def step_cost(self) -> float:
        """The cost of one draft step, as `core.cost.pass_cost` counts it."""
        return 0.0


class NoDrafter(Drafter):
    """Has no room for any draft, so that none is ever asked for: the baseline."""

    def __init__(self, *_: object) -> None:
        """It takes what every drafter is made from, and needs none of it."""

    def room(self, length: int) -> int:
        return 0


def make_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """The drafter that the settings name; none if gamma is 0.

    target: the path that judges the drafts, whose first layers may draft them too. Raises
    `PairError` if this pair cannot draft in that way.
    """
    kind = drafter_kind(run.settings.drafter)
    if run.settings.gamma == 0:
        return NoDrafter()
    if kind.package is not None:
        from .foreign import CheckedDrafter  # not needed for ours

        return CheckedDrafter(kind, pair, run, target)
    return kind.make(pair, run, target)


def policy_for(settings: Settings, pair: Pair, target: Engine, drafter: Drafter) -> Policy | None:
    """What chooses how many tokens each round drafts; None if gamma are always due."""
    if not settings.adapts:
        return None
    from .cost import draft_costs
    from .policy import make_policy

    return make_policy(settings, lambda: draft_costs(drafter, target, pair))


def memory_ids(pair: Pair, memory: Memory, settings: Iterable[Settings]) -> EarlierTexts:
    """The ids of each text that is not empty.

    settings: of the lanes with drafts. Raises `SettingsError` if none of them reads earlier texts,
    and `PromptError` for a text that is neither text nor known ids.
    """
    if not isinstance(memory, (list, tuple)):
        raise SettingsError(f"memory is {shown(memory)}: use a list of texts, each text or ids.")
    names = [lane_settings.drafter for lane_settings in settings]
    if memory and not any(drafter_kind(name).reads_memory for name in names):
        readers = " or ".join(repr(kind.name) for kind in drafters() if kind.reads_memory)
        raise SettingsError(
            f"memory is given and the drafter is {names[0]!r}: only {readers} reads earlier "
            "texts, so choose it or leave memory out."
        )
    texts = [tuple(pair.text_ids(text)) for text in memory]
    return tuple(ids for ids in texts if ids)

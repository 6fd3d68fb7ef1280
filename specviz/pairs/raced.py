"""What may race, and with which settings in which lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import PairError, SettingsError, shown
from ..lanes import NO_SETTINGS, SPECULATIVE, Lane, Several
from ..settings import Settings
from .pair import Pair

if TYPE_CHECKING:
    from ..core.protocols import Racing


def checked_pair(pair: object) -> Pair:
    """`pair` itself; raises `PairError` if it is none."""
    if isinstance(pair, Pair):
        return pair
    if hasattr(pair, "race"):
        raise PairError(
            "this pair can only race: it drafts and judges by itself, and shows no distributions."
        )
    raise PairError(f"the pair is a {type(pair).__name__}: give what load_pair returns.")


def settings_for(
    pair: Pair | Racing, settings: Settings | None, changes: Mapping[str, Any]
) -> Settings:
    """`settings`, or those of the pair, with the `changes` of some fields. Raises
    `SettingsError`."""
    if settings is None:
        return pair.settings(**Settings.known(changes))
    if not isinstance(settings, Settings):
        raise SettingsError(NO_SETTINGS.format(shown(settings)))
    return replace(settings, **Settings.known(changes)) if changes else settings


def lanes_for(
    pair: Pair | Racing, settings: Settings | Several | None, changes: Mapping[str, Any]
) -> dict[Lane, Settings]:
    """The speculative lanes of a race, in order: several, or the one that `settings_for` gives.
    Raises `SettingsError`."""
    if settings is None or isinstance(settings, Settings) or changes:
        return {SPECULATIVE: settings_for(pair, settings, changes)}  # type: ignore[arg-type]
    from ..several import checked_several  # a race of two needs none of it

    return checked_several(settings)

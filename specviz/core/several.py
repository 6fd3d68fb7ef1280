"""Several lanes with drafts in one race: their names, and their shared settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ..base.errors import SettingsError, shown
from .lanes import BASELINE, SPECULATIVE, Lane, Several
from .registry import drafter_kind
from .settings import NO_SETTINGS, Settings

MAX_LANES = 8  # speculative lanes of a race, without the baseline
# It begins with a letter, so that JavaScript, too, keeps lanes in their order.
LANE_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9 ._,+-]{0,39}")
NAMING = "1 to 40 letters, digits, spaces or ._,+-, starting with a letter"

SHARED = (
    "temperature",
    "top_k",
    "top_p",
    "max_new_tokens",
    "seed",
    "stop",
    "ignore_eos",
    "chat",
)
"""The settings that decide the distribution of a text, and its length: equal in all lanes."""

OWN = tuple(field.name for field in fields(Settings) if field.name not in SHARED)
"""The settings that may differ between lanes."""


def checked_several(settings: Several) -> dict[Lane, Settings]:
    """Check the speculative lanes of a race, and return them in order.

    One alone in a sequence is `SPECULATIVE`. Raises `SettingsError` for an invalid name, too many
    lanes or none, and lanes that differ in a `SHARED` setting.
    """
    if not _holds_settings(settings):
        raise SettingsError(NO_SETTINGS.format(shown(settings)))
    lanes = dict(settings) if isinstance(settings, Mapping) else named(settings)
    if not 1 <= len(lanes) <= MAX_LANES:
        raise SettingsError(
            f"the race has {len(lanes)} speculative lanes: use 1 to {MAX_LANES} of them."
        )
    for name in lanes:
        check_name(name)
    check_shared(lanes)
    return lanes


def _holds_settings(lanes: object) -> bool:
    """Whether it is a mapping, a list or a tuple whose values are `Settings`."""
    if isinstance(lanes, Mapping):
        lanes = list(lanes.values())
    if not isinstance(lanes, (list, tuple)):
        return False
    return all(isinstance(lane_settings, Settings) for lane_settings in lanes)


def check_name(name: object) -> None:
    """Raise `SettingsError` if a speculative lane cannot have this name."""
    if not isinstance(name, str) or not LANE_NAME.fullmatch(name):
        raise SettingsError(f"a lane is named {repr(name)[:60]}: use {NAMING}.")
    if name == BASELINE:
        raise SettingsError(
            f"a lane with drafts is named {BASELINE!r}, the name of the target alone: choose "
            "another name."
        )


def check_shared(lanes: Mapping[Lane, Settings]) -> None:
    """Raise `SettingsError` if lanes differ in a setting that is `SHARED`."""
    (first, first_settings), *others = lanes.items()
    for name, lane_settings in others:
        for field in SHARED:
            if getattr(lane_settings, field) != getattr(first_settings, field):
                raise SettingsError(
                    f"{field} differs between the lanes {first!r} and {name!r}: all lanes of a "
                    "race write the same kind of text, so use one value for all of them."
                )


def named(several: Sequence[Settings]) -> dict[Lane, Settings]:
    """Name lanes by the differences between their settings; one alone is `SPECULATIVE`. Repeated
    settings get a number."""
    if len(several) == 1:
        return {SPECULATIVE: several[0]}
    different = _different_fields(several) or ["drafter"]
    lanes: dict[Lane, Settings] = {}
    for lane_settings in several:
        name = ", ".join(_in_words(field, lane_settings) for field in different)
        lanes[_free_name(name, lanes)] = lane_settings
    return lanes


def _different_fields(several: Sequence[Settings]) -> list[str]:
    """The fields in which lanes differ, the drafter first: a reader looks for it."""
    different = []
    for field in OWN:
        values = {repr(getattr(lane_settings, field)) for lane_settings in several}
        if len(values) > 1:
            different.append(field)
    return sorted(different, key=lambda field: field != "drafter")


def _free_name(name: str, lanes: Iterable[Lane]) -> str:
    """Return the name, followed by "again" and a number if lanes have it already."""
    taken = sum(lane == name or lane.startswith(f"{name} again") for lane in lanes)
    if taken == 0:
        return name
    if taken == 1:
        return f"{name} again"
    return f"{name} again{taken}"


def beside(settings: Settings, changes: Iterable[Mapping[str, Any]]) -> dict[Lane, Settings]:
    """Make the lane `settings` and one for each of `changes`: the fields that differ, and perhaps a
    "name". Raises `SettingsError`."""
    several = [settings]
    given_names: list[Any] = [None]
    for change in changes:
        fields_changed = dict(change)
        given_names.append(fields_changed.pop("name", None))
        for field in fields_changed:
            if field not in OWN:
                raise SettingsError(
                    f"a lane cannot have its own {str(field)[:40]!r}: use "
                    f"{', '.join((*OWN, 'name'))}."
                )
        several.append(replace(settings, **fields_changed))
    lanes: dict[Lane, Settings] = {}
    made_lanes = named(several).items()
    for (made_name, lane_settings), given_name in zip(made_lanes, given_names, strict=True):
        name = made_name if given_name is None else given_name
        check_name(name)
        if name in lanes:
            raise SettingsError(f"two lanes are named {name!r}: give each its own name.")
        lanes[name] = lane_settings
    return checked_several(lanes)


def parsed_lane(text: str) -> dict[str, Any]:
    """Parse the changes in a text such as "drafter=ngram,gamma=3". Raises `SettingsError`."""
    changes: dict[str, Any] = {}
    for part in text.split(","):
        field, _, value = map(str.strip, part.partition("="))
        if not field or not value:
            raise SettingsError(
                f"the lane {text[:60]!r} cannot be parsed: write it as drafter=ngram,gamma=3."
            )
        if value.isdecimal():
            # Python reads no numbers of thousands of digits; `Settings` rejects large ones.
            changes[field] = int(value[:30])
        else:
            changes[field] = value
    return changes


def _in_words(field: str, settings: Settings) -> str:
    """The name of a lane that differs from others by this field."""
    value = getattr(settings, field)
    if field == "drafter":
        return drafter_kind(value).lane
    if isinstance(value, (int, float)):
        return f"{field} {value}"
    return str(value)

"""Several lanes with drafts in one race: their names, and what they have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from .core.registry import drafter_kind
from .errors import SettingsError, shown
from .lanes import BASELINE, NO_SETTINGS, SPECULATIVE, Lane, Several
from .settings import Settings

MOST_LANES = 8  # speculative lanes of a race, beside the baseline
# It begins with a letter, so that JavaScript, too, keeps lanes in their order.
LANE_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9 ._,+-]{0,39}")
NAMING = "1 to 40 letters, digits, spaces or ._,+-, with a letter first"

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
"""The settings that each lane has for itself."""


def checked_several(settings: Several) -> dict[Lane, Settings]:
    """The speculative lanes of a race, in order. One alone in a sequence is `SPECULATIVE`.

    Raises `SettingsError` for a name that cannot be one, too many lanes or none, and lanes that
    differ in what is `SHARED`.
    """
    several = [*settings.values()] if isinstance(settings, Mapping) else settings
    if not isinstance(several, (list, tuple)) or any(
        not isinstance(one, Settings) for one in several
    ):
        raise SettingsError(NO_SETTINGS.format(shown(settings)))
    lanes = dict(settings) if isinstance(settings, Mapping) else named(list(settings))
    if not 1 <= len(lanes) <= MOST_LANES:
        raise SettingsError(
            f"the race has {len(lanes)} speculative lanes: use 1 to {MOST_LANES} of them."
        )
    for name in lanes:
        check_name(name)
    check_shared(lanes)
    return lanes


def check_name(name: object) -> None:
    """Raise `SettingsError` if a speculative lane cannot have this name."""
    if not isinstance(name, str) or not LANE_NAME.fullmatch(name):
        raise SettingsError(f"a lane is named {repr(name)[:60]}: use {NAMING}.")
    if name == BASELINE:
        raise SettingsError(
            f"a lane with drafts is named {BASELINE!r}: that is the target alone, choose another "
            "name."
        )


def check_shared(lanes: Mapping[Lane, Settings]) -> None:
    """Raise `SettingsError` if lanes differ in a setting that is `SHARED`."""
    (first, usual), *others = lanes.items()
    for name, own in others:
        for field in SHARED:
            if getattr(own, field) != getattr(usual, field):
                raise SettingsError(
                    f"{field} differs between the lanes {first!r} and {name!r}: all lanes of a "
                    "race write the same kind of text, so give it the same value in each."
                )


def named(several: Sequence[Settings]) -> dict[Lane, Settings]:
    """These settings by names that are made of what differs between them; one alone is
    `SPECULATIVE`. The same settings again get a number."""
    if len(several) == 1:
        return {SPECULATIVE: several[0]}
    different = [f for f in OWN if len({repr(getattr(one, f, None)) for one in several}) > 1]
    # A drafter is what a reader looks for first.
    different.sort(key=lambda field: field != "drafter")
    found: dict[Lane, Settings] = {}
    for own in several:
        name = ", ".join(_told(field, own) for field in different) or _told("drafter", own)
        again = sum(one == name or one.startswith(f"{name} again") for one in found)
        found[f"{name} again{again if again > 1 else ''}" if again else name] = own
    return found


def beside(settings: Settings, changes: Iterable[Mapping[str, Any]]) -> dict[Lane, Settings]:
    """`settings`, and beside it a lane for each of `changes`: what differs in it, by field, and
    perhaps its "name". Raises `SettingsError`."""
    several: list[Settings] = [settings]
    names: list[Any] = [None]
    for change in changes:
        own = dict(change)
        names.append(own.pop("name", None))
        for field in own:
            if field not in OWN:
                raise SettingsError(
                    f"a lane cannot have a {str(field)[:40]!r} of its own: use "
                    f"{', '.join((*OWN, 'name'))}."
                )
        several.append(replace(settings, **own))
    lanes: dict[Lane, Settings] = {}
    for made, name, one in zip(named(several), names, several, strict=True):
        chosen = made if name is None else name
        check_name(chosen)
        if chosen in lanes:
            raise SettingsError(f"two lanes are named {chosen!r}: give each its own name.")
        lanes[chosen] = one
    return checked_several(lanes)


def parsed_lane(text: str) -> dict[str, Any]:
    """The changes in a text such as "drafter=ngram,gamma=3". Raises `SettingsError`."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        field, sign, value = (one.strip() for one in part.partition("="))
        if not (field and sign and value):
            raise SettingsError(
                f"the lane {text[:60]!r} is not read: write it as drafter=ngram,gamma=3."
            )
        # Python reads no numbers of thousands of digits; what is too large, settings say.
        found[field] = int(value[:30]) if value.isdecimal() else value
    return found


def _told(field: str, own: Settings) -> str:
    value = getattr(own, field)
    if field == "drafter":
        return drafter_kind(value).lane
    return f"{field} {value}" if isinstance(value, (int, float)) else str(value)

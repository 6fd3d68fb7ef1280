"""The schema of a trace's header, with what the rest of the schema needs as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from ..core.events import Header
from ..errors import SettingsError
from ..lanes import BASELINE, LANE_NAME, MOST_LANES, Lane, check_shared
from ..settings import CHOICES, RANGES, Settings
from .validators import (
    Invalid,
    boolean,
    date,
    integer,
    keyed_by,
    list_of,
    number,
    object_of,
    one_of,
    optional,
    text,
)

LONG = 1_000_000  # characters or tokens of a prompt
NAME = text(200)
ID = integer(0, 2**31 - 1)
SECONDS = number(0.0, 1e7)
THREADS = integer(1, 100_000)


def is_lane(name: object) -> TypeGuard[str]:
    """Whether a value is the name of a lane."""
    return type(name) is str and LANE_NAME.fullmatch(name) is not None


def by_lane(reader: Any) -> Any:
    """Reads an object with a value for each of some lanes."""
    return keyed_by(is_lane, "the name of a lane", reader, MOST_LANES + 1)


def _settings(**values: Any) -> Settings:
    try:
        return Settings(**values)
    except SettingsError as error:
        # The readers below have checked these values, so the sentence is short and safe to show.
        raise Invalid(str(error).rstrip("."), "settings") from error


def _kind(field: str) -> Any:
    """Reads one of the names that a field may hold, which packages of others may add to."""
    return lambda value: one_of(CHOICES[field]())(value)


SETTINGS = object_of(
    _settings,
    {
        **{name: integer(*map(int, RANGES[name])) for name in ("gamma", "top_k", "max_new_tokens")},
        "seed": integer(*map(int, RANGES["seed"])),
        **{name: number(*RANGES[name]) for name in ("temperature", "top_p")},
        "drafter": _kind("drafter"),
        "stop": list_of(text(1000), 100, "stop text"),
        "ignore_eos": boolean,
    },
    # Older recordings lack these fields; their runs used the defaults.
    {name: _kind(name) for name in ("gamma_policy", "chat", "verdict")},
    label="settings",
)


def placed(place: str, reader: Any) -> Any:
    """Reads what `reader` reads; its errors name the place."""

    def read(value: Any) -> Any:
        try:
            return reader(value)
        except Invalid as invalid:
            raise invalid.inside(place) if invalid.named else invalid from None

    return read


def _model(role: str) -> Any:
    known = {"name": NAME, "parameters": integer(0, 10**15), "form": NAME}
    extra = {"revision": optional(NAME), "context": optional(integer(1, 10**15))}
    if role == "draft":
        extra["shared"] = integer(1, 2**31)
    return object_of(dict, known, extra, label=role)


def _header(*, prompt_ids: list[int], **values: Any) -> Header:
    if not prompt_ids and values.get("source") is None:
        raise Invalid("prompt_ids is empty", "header")
    header = Header(prompt_ids=tuple(prompt_ids), **values)
    if header.source is None:
        for library in ("torch", "transformers"):
            if library not in header.versions:
                raise Invalid(f"{library} is missing", "header", "versions")
        if not header.threads:
            raise Invalid("threads is 0", "header")
    elif header.lanes is not None:
        raise Invalid("lanes is there, but a watched server has one lane", "header")
    if header.lanes is not None or header.drafts is not None:
        _check_lanes(header)
    same_lanes(header.prefill_seconds, header.all_lanes, "header", "prefill_seconds")
    for lane, seconds in header.prefill_seconds.items():
        if ("target" in seconds) != (header.source is None):
            told = "missing" if header.source is None else "there, but a server does not tell it"
            raise Invalid(f"target is {told}", "header", "prefill_seconds", lane)
    if header.lane_threads is not None:
        same_lanes(header.lane_threads, header.all_lanes, "header", "lane_threads")
    return header


def _check_lanes(header: Header) -> None:
    """Check that lanes with names of their own are the same ones everywhere in the header."""
    lanes, drafts = header.lanes, header.drafts
    if not lanes or drafts is None:
        raise Invalid("lanes and drafts must both be there, and hold a lane", "header")
    if BASELINE in lanes:
        raise Invalid(f"{BASELINE} is among the lanes with drafts", "header", "lanes")
    same_lanes(drafts, tuple(lanes), "header", "drafts")
    try:
        check_shared(lanes)
    except SettingsError as error:
        raise Invalid(str(error).partition(":")[0], "header", "lanes") from None
    first = header.speculative[0]
    if header.settings != lanes[first] or header.draft != drafts[first]:
        raise Invalid("settings and draft are not those of the first lane", "header")


def same_lanes(values: Mapping[str, Any], lanes: Sequence[Lane], *places: str) -> None:
    """Check that there is a value for each of `lanes`, and for no other."""
    for lane in lanes:
        if lane not in values:
            raise Invalid(f"{lane} is missing", *places)
    for name in values:
        if name not in lanes:
            raise Invalid(f"{name} is not one of {', '.join(lanes)}", *places)


DRAFT = _model("draft")
PREFILL = object_of(dict, {}, {"target": SECONDS, "draft": SECONDS})

HEADER = object_of(
    _header,
    {
        "prompt": text(LONG),
        "prompt_ids": list_of(ID, LONG, "prompt id"),
        "settings": SETTINGS,
        "target": _model("target"),
        "draft": optional(DRAFT),
        "device": NAME,
        "dtype": NAME,
        "versions": object_of(
            dict,
            {"python": NAME},
            dict.fromkeys(("specviz", "cuda", "torch", "transformers", "baseline"), NAME),
            label="versions",
        ),
        "threads": integer(0, 100_000),
        "date": date,
        "prefill_seconds": placed("prefill_seconds", by_lane(PREFILL)),
        "mode": one_of(("interleaved", "sequential")),
    },
    {
        "processor": NAME,
        "lane_threads": optional(by_lane(THREADS)),
        "memory": optional(
            object_of(dict, dict.fromkeys(("texts", "tokens"), integer(1, LONG)), label="memory")
        ),
        "source": optional(NAME),  # of a watched server
        "streaming_rate": optional(number(0.0, 1e7)),  # of a target on a server
        # Only a race of named lanes has these.
        "lanes": optional(placed("lanes", by_lane(SETTINGS))),
        "drafts": optional(placed("drafts", by_lane(optional(DRAFT)))),
    },
    label="header",
)

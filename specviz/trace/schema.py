"""The schema of a trace's JSON: which values each field may hold, and how it becomes an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

from ..errors import SettingsError
from ..lanes import BASELINE, LANE_NAME, MOST_LANES, Lane, check_shared
from ..settings import CHOICES, RANGES, Settings
from .events import OUTCOMES, Agreement, Choice, Divergence, End, Header, Round, Token
from .validators import (
    Invalid,
    boolean,
    date,
    integer,
    keyed_by,
    list_of,
    not_a,
    number,
    object_of,
    one_of,
    optional,
    shown,
    text,
)

SCHEMA = 1
TOP = 5  # entries of a list of likeliest tokens
SLACK = 1e-4  # how far above 1 rounding in fp32 may put a probability

Parts: TypeAlias = "tuple[Header, list[Round], End | None]"

LONG = 1_000_000  # characters or tokens of a prompt
MOST_ROUNDS = (MOST_LANES + 1) * (int(RANGES["max_new_tokens"][1]) + 1)
MOST_DRAFTED = int(RANGES["gamma"][1])

# The last token's text holds all remaining bytes that do not form a character.
TEXT = text(10_000)
NAME = text(200)
ID = integer(0, 2**31 - 1)
PROBABILITY = number(0.0, 1.0 + SLACK, "a probability from 0 to 1")
SECONDS = number(0.0, 1e7)
THREADS = integer(1, 100_000)


def _is_lane(name: object) -> TypeGuard[str]:
    return type(name) is str and LANE_NAME.fullmatch(name) is not None


def _by_lane(reader: Any) -> Any:
    """Reads an object with a value for each of some lanes."""
    return keyed_by(_is_lane, "the name of a lane", reader, MOST_LANES + 1)


def _lane_name(value: Any) -> str:
    if _is_lane(value):
        return value
    raise not_a(value, "the name of a lane")


def _top(label: str) -> Any:
    choice = object_of(Choice, {"id": ID, "text": TEXT, "probability": PROBABILITY})
    choices = list_of(choice, TOP, label + " entry")

    def read(value: Any) -> tuple[Choice, ...]:
        listed = tuple(choices(value))
        probabilities = [choice.probability for choice in listed]
        if probabilities != sorted(probabilities, reverse=True):
            raise Invalid("is not in falling order of probability", named=False)
        if sum(probabilities) > 1.0 + SLACK:
            raise Invalid(f"adds up to {sum(probabilities):.6g}, more than 1", named=False)
        return listed

    return read


TOKEN = object_of(
    Token,
    {"id": ID, "text": TEXT, "outcome": one_of(OUTCOMES)},
    {
        **dict.fromkeys(
            ("p", "q", "beta", "soft_p", "soft_q", "weight", "threshold", "chance"),
            optional(PROBABILITY),
        ),
        "u": optional(number(0.0, 1.0)),
        "seen": optional(integer(1, LONG)),
        **{name: _top(name) for name in ("top_p", "top_q", "top_residual")},
    },
)

ROUND = object_of(
    Round,
    {
        "lane": _lane_name,
        "index": integer(0, MOST_ROUNDS),
        "drafted": list_of(TOKEN, MOST_DRAFTED, "drafted token"),
        "emitted": list_of(TOKEN, MOST_DRAFTED + 1, "emitted token"),
        **dict.fromkeys(("draft_seconds", "verify_seconds", "overhead_seconds"), SECONDS),
        "clock": SECONDS,
    },
    # Older recordings lack the first, and targets on this machine the others.
    {
        "wall": optional(SECONDS),
        "exchanged": optional(integer(0, 2**40)),
        "server_seconds": optional(SECONDS),
    },
)


def _settings(**values: Any) -> Settings:
    try:
        return Settings(**values)
    except SettingsError as error:
        # The readers below have checked these values, so the sentence is short and safe to show.
        raise Invalid(str(error).rstrip("."), "settings") from error


SETTINGS = object_of(
    _settings,
    {
        **{name: integer(*map(int, RANGES[name])) for name in ("gamma", "top_k", "max_new_tokens")},
        "seed": integer(*map(int, RANGES["seed"])),
        **{name: number(*RANGES[name]) for name in ("temperature", "top_p")},
        "drafter": one_of(CHOICES["drafter"]),
        "stop": list_of(text(1000), 100, "stop text"),
        "ignore_eos": boolean,
    },
    # Older recordings lack these fields; their runs used the defaults.
    {name: one_of(CHOICES[name]) for name in ("gamma_policy", "chat", "verdict")},
    label="settings",
)


def _placed(place: str, reader: Any) -> Any:
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
    if not prompt_ids:
        raise Invalid("prompt_ids is empty", "header")
    header = Header(prompt_ids=tuple(prompt_ids), **values)
    if header.lanes is not None or header.drafts is not None:
        _check_lanes(header)
    _same_lanes(header.prefill_seconds, header.all_lanes, "header", "prefill_seconds")
    if header.lane_threads is not None:
        _same_lanes(header.lane_threads, header.all_lanes, "header", "lane_threads")
    return header


def _check_lanes(header: Header) -> None:
    """Check that lanes with names of their own are the same ones everywhere in the header."""
    lanes, drafts = header.lanes, header.drafts
    if not lanes or drafts is None:
        raise Invalid("lanes and drafts must both be there, and hold a lane", "header")
    if BASELINE in lanes:
        raise Invalid(f"{BASELINE} is among the lanes with drafts", "header", "lanes")
    _same_lanes(drafts, tuple(lanes), "header", "drafts")
    try:
        check_shared(lanes)
    except SettingsError as error:
        raise Invalid(str(error).partition(":")[0], "header", "lanes") from None
    first = header.speculative[0]
    if header.settings != lanes[first] or header.draft != drafts[first]:
        raise Invalid("settings and draft are not those of the first lane", "header")


def _same_lanes(values: Mapping[str, Any], lanes: Sequence[Lane], *places: str) -> None:
    """Check that there is a value for each of `lanes`, and for no other."""
    for lane in lanes:
        if lane not in values:
            raise Invalid(f"{lane} is missing", *places)
    for name in values:
        if name not in lanes:
            raise Invalid(f"{name} is not one of {', '.join(lanes)}", *places)


DRAFT = _model("draft")
PREFILL = object_of(dict, {"target": SECONDS}, {"draft": SECONDS})

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
            dict.fromkeys(("python", "torch", "transformers"), NAME),
            dict.fromkeys(("specviz", "cuda"), NAME),
            label="versions",
        ),
        "threads": THREADS,
        "date": date,
        "prefill_seconds": _placed("prefill_seconds", _by_lane(PREFILL)),
        "mode": one_of(("interleaved", "sequential")),
    },
    {
        "processor": NAME,
        "lane_threads": optional(_by_lane(THREADS)),
        "memory": optional(
            object_of(dict, dict.fromkeys(("texts", "tokens"), integer(1, LONG)), label="memory")
        ),
        # Only a race of named lanes has these.
        "lanes": optional(_placed("lanes", _by_lane(SETTINGS))),
        "drafts": optional(_placed("drafts", _by_lane(optional(DRAFT)))),
        # Only a target on a server has this.
        "streaming_rate": optional(number(0.0, 1e7)),
    },
    label="header",
)

DIVERGENCE = object_of(
    Divergence,
    {"index": integer(0, MOST_ROUNDS), "margin": optional(number(0.0, 1e6))},
    label="divergence",
)

REASON = one_of(("eos", "length", "context", "stop", "stopped"))

AGREEMENT = {
    "identical": optional(boolean),
    "compared": integer(0, MOST_ROUNDS),
    "divergence": optional(DIVERGENCE),
}

END = object_of(
    End,
    {
        "reasons": _placed("reasons", _by_lane(REASON)),
        **AGREEMENT,
    },
    {"lanes": optional(_placed("lanes", _by_lane(object_of(Agreement, AGREEMENT))))},
    label="end",
)


def round_name(lane: Lane, index: int) -> str:
    """The name of a round in an error; users see rounds counted from 1."""
    return f"round {index + 1} of the {lane} lane"


def _round_label(place: int, item: Any) -> str:
    # These values are unchecked: they may name the round only if they are short.
    if type(item) is dict:
        lane, index = item.get("lane"), item.get("index")
        if _is_lane(lane) and type(index) is int and 0 <= index < 10**6:
            return round_name(lane, index)
    return f"entry {place + 1} of the rounds"


def _parts(header: Header, rounds: Sequence[Round], end: End | None, **_: Any) -> Parts:
    lanes = header.all_lanes
    for place, r in enumerate(rounds):
        if r.lane not in lanes:
            unknown = f"lane is {shown(r.lane)}, not one of {', '.join(lanes)}"
            raise Invalid(unknown, f"entry {place + 1} of the rounds")
    if end is not None:
        _same_lanes(end.reasons, lanes, "end", "reasons")
        if end.lanes is not None:
            _same_lanes(end.lanes, header.speculative, "end", "lanes")
    return header, list(rounds), end


TRACE = object_of(
    _parts,
    {
        "schema": integer(SCHEMA, SCHEMA),
        "header": HEADER,
        "rounds": list_of(ROUND, MOST_ROUNDS, _round_label),
        "end": optional(END),
    },
    {"digest": text(71)},  # "sha256:" and 64 digits
)


def read_trace(data: Any) -> Parts:
    """The header, rounds and end in the JSON values of a trace.

    Raises `TraceError` with the first field that breaks the schema.
    """
    try:
        # This check comes first: a file of another version is not a damaged file.
        if type(data) is dict and type(data.get("schema")) is int and data["schema"] != SCHEMA:
            raise Invalid(
                f"has schema {data['schema']:.6g} and this version of specviz reads {SCHEMA}",
                named=False,
            )
        parts: Parts = TRACE(data)
    except Invalid as invalid:
        raise invalid.of("this recording").error() from None
    return parts

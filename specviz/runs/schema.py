"""The schema of a trace's JSON: which values each field may hold, and how it becomes an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..core.events import (
    OUTCOMES,
    UNKNOWN_ID,
    Agreement,
    Choice,
    Divergence,
    End,
    Header,
    Round,
    Token,
)
from ..lanes import MOST_LANES, Lane
from ..settings import RANGES
from .header_schema import HEADER, ID, LONG, SECONDS, by_lane, is_lane, placed, same_lanes
from .validators import (
    Invalid,
    boolean,
    integer,
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

MOST_DRAFTED = 64  # a server may draft more than gamma allows here
MOST_ROUNDS = (MOST_LANES + 1) * (int(RANGES["max_new_tokens"][1]) + 1)

# The last token's text holds all remaining bytes that do not form a character.
TEXT = text(10_000)
PROBABILITY = number(0.0, 1.0 + SLACK, "a probability from 0 to 1")


def _lane_name(value: Any) -> str:
    if is_lane(value):
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


def _token(*, id: int = UNKNOWN_ID, **values: Any) -> Token:
    return Token(id=id, **values)


TOKEN = object_of(
    _token,
    {"text": TEXT, "outcome": one_of((*OUTCOMES, "untold"))},
    {
        "id": ID,  # only tokens of watched servers may lack it
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
        "reasons": placed("reasons", by_lane(REASON)),
        **AGREEMENT,
    },
    {
        "lanes": optional(placed("lanes", by_lane(object_of(Agreement, AGREEMENT)))),
        "counted": optional(
            object_of(dict, dict.fromkeys(("steps", "drafted", "accepted"), integer(0, 2**53)))
        ),
    },
    label="end",
)


def round_name(lane: Lane, index: int) -> str:
    """The name of a round in an error; users see rounds counted from 1."""
    return f"round {index + 1} of the {lane} lane"


def _round_label(place: int, item: Any) -> str:
    # These values are unchecked: they may name the round only if they are short.
    if type(item) is dict:
        lane, index = item.get("lane"), item.get("index")
        if is_lane(lane) and type(index) is int and 0 <= index < 10**6:
            return round_name(lane, index)
    return f"entry {place + 1} of the rounds"


def _check_ids(r: Round) -> None:
    for kind, tokens in (("drafted", r.drafted), ("emitted", r.emitted)):
        for place, token in enumerate(tokens, 1):
            if token.id == UNKNOWN_ID:
                raise Invalid("id is missing", round_name(r.lane, r.index), f"{kind} token {place}")


def _parts(header: Header, rounds: Sequence[Round], end: End | None, **_: Any) -> Parts:
    lanes = header.all_lanes
    for place, r in enumerate(rounds):
        if r.lane not in lanes:
            unknown = f"lane is {shown(r.lane)}, not one of {', '.join(lanes)}"
            raise Invalid(unknown, f"entry {place + 1} of the rounds")
        if header.source is None:
            _check_ids(r)
    if end is not None:
        same_lanes(end.reasons, lanes, "end", "reasons")
        if end.lanes is not None:
            same_lanes(end.lanes, header.speculative, "end", "lanes")
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

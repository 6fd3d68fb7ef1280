"""The schema of a trace's JSON: types, sizes and bounds, for files that anyone may have written.

Only the reading of a file imports this module, and with it pydantic. What the values mean together
is in `identities`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import NotRequired, TypedDict

from ..core.events import (
    UNKNOWN_ID,
    Agreement,
    Choice,
    Divergence,
    End,
    EndReason,
    Header,
    Outcome,
    Round,
    Token,
)
from ..errors import ADVICE, TraceError
from ..lanes import LANE_NAME, MOST_LANES
from ..settings import RANGES, Settings

TOP = 5  # entries of a list of likeliest tokens
SLACK = 1e-4  # how far above 1 rounding in fp32 may put a probability
LONG = 1_000_000  # characters or tokens of a prompt
MOST_DRAFTED = 64  # a server may draft more than gamma allows here
MOST_ROUNDS = (MOST_LANES + 1) * (int(RANGES["max_new_tokens"][1]) + 1)
MOST_FIELDS = 40  # of any object; pydantic would report each unknown one
SHOWN = 40  # characters of a value that a message repeats
LATE_SETTINGS = ("gamma_policy", "chat", "verdict")  # older recordings used the defaults


def _built(build: Callable[..., Any]) -> AfterValidator:
    return AfterValidator(lambda values: build(**values))


def _number(low: float, high: float) -> Any:
    return Field(ge=low, le=high)


def _few(most: int) -> Any:
    return Field(max_length=most, fail_fast=True)


Id: TypeAlias = Annotated[int, _number(0, 2**31 - 1)]
Count: TypeAlias = Annotated[int, _number(0, 2**53)]
Seconds: TypeAlias = Annotated[float, _number(0, 1e7)]
Probability: TypeAlias = Annotated[float, _number(0, 1 + SLACK)]
Draw: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Name: TypeAlias = Annotated[str, Field(max_length=200)]
# The last token's text holds all remaining bytes that do not form a character.
Text: TypeAlias = Annotated[str, Field(max_length=10_000)]
Lane: TypeAlias = Annotated[str, Field(pattern=f"^{LANE_NAME.pattern}$")]


def _date(value: str) -> str:
    if datetime.fromisoformat(value).utcoffset() is None:
        raise ValueError(f"{value[:SHOWN]} has no time zone")
    return value


def _settings(values: dict[str, Any]) -> Settings:
    for name in Settings.__dataclass_fields__:
        if name not in values and name not in LATE_SETTINGS:
            raise ValueError(f"{name} is missing")
    return Settings.from_dict(values)


def _ordered(top: list[Choice]) -> tuple[Choice, ...]:
    listed = [choice.probability for choice in top]
    if listed != sorted(listed, reverse=True):
        raise ValueError("it is not in falling order of probability")
    if sum(listed) > 1 + SLACK:
        raise ValueError(f"it adds up to {sum(listed):.6g}, more than 1")
    return tuple(top)


OneSettings: TypeAlias = Annotated[dict[str, Any], AfterValidator(_settings)]


class _Choice(TypedDict):
    id: Id
    text: Text
    probability: Probability


Top: TypeAlias = Annotated[
    list[Annotated[_Choice, _built(Choice)]], _few(TOP), AfterValidator(_ordered)
]


class _Token(TypedDict):
    id: NotRequired[Id]  # only tokens of watched servers may lack it
    text: Text
    outcome: Outcome
    p: NotRequired[Probability | None]
    q: NotRequired[Probability | None]
    u: NotRequired[Draw | None]
    beta: NotRequired[Probability | None]
    soft_p: NotRequired[Probability | None]
    soft_q: NotRequired[Probability | None]
    weight: NotRequired[Probability | None]
    threshold: NotRequired[Probability | None]
    chance: NotRequired[Probability | None]
    seen: NotRequired[Annotated[int, _number(1, LONG)] | None]
    top_p: NotRequired[Top]
    top_q: NotRequired[Top]
    top_residual: NotRequired[Top]


OneToken: TypeAlias = Annotated[
    _Token, AfterValidator(lambda values: Token(**{"id": UNKNOWN_ID, **values}))
]


class _Round(TypedDict):
    lane: Lane
    index: Annotated[int, _number(0, MOST_ROUNDS)]
    drafted: Annotated[list[OneToken], _few(MOST_DRAFTED)]
    emitted: Annotated[list[OneToken], _few(MOST_DRAFTED + 1)]
    draft_seconds: Seconds
    verify_seconds: Seconds
    overhead_seconds: Seconds
    clock: Seconds
    wall: NotRequired[Seconds | None]  # older recordings lack it
    exchanged: NotRequired[Annotated[int, _number(0, 2**40)] | None]
    server_seconds: NotRequired[Seconds | None]


class _Model(TypedDict):
    name: Name
    parameters: Annotated[int, _number(0, 10**15)]
    form: Name
    revision: NotRequired[Name | None]
    context: NotRequired[Count | None]
    shared: NotRequired[Count]


class _Header(TypedDict):
    prompt: Annotated[str, Field(max_length=LONG)]
    # A tuple where the values never were JSON.
    prompt_ids: Annotated[list[Id], _few(LONG), Field(strict=False), AfterValidator(tuple)]
    settings: OneSettings
    target: _Model
    draft: _Model | None
    device: Name
    dtype: Name
    versions: dict[Name, Name]
    threads: Annotated[int, _number(0, 100_000)]
    date: Annotated[Name, AfterValidator(_date)]
    prefill_seconds: dict[Lane, dict[Literal["target", "draft"], Seconds]]
    mode: Literal["interleaved", "sequential"]
    processor: NotRequired[Name]
    lane_threads: NotRequired[dict[Lane, Annotated[int, _number(1, 100_000)]] | None]
    memory: NotRequired[
        Annotated[dict[Literal["texts", "tokens"], Count], Field(min_length=2)] | None
    ]
    source: NotRequired[Name | None]
    question: NotRequired[Annotated[str, Field(max_length=LONG)] | None]
    streaming_rate: NotRequired[Seconds | None]  # of a target on a server, in tokens per second
    # Only a race of named lanes has these.
    lanes: NotRequired[dict[Lane, OneSettings] | None]
    drafts: NotRequired[dict[Lane, _Model | None] | None]


class _Divergence(TypedDict):
    index: Annotated[int, _number(0, MOST_ROUNDS)]
    margin: Annotated[float, _number(0, 1e6)] | None


class _Agreement(TypedDict):
    identical: bool | None
    compared: Annotated[int, _number(0, MOST_ROUNDS)]
    divergence: Annotated[_Divergence, _built(Divergence)] | None


class _End(_Agreement):
    reasons: dict[Lane, EndReason]
    lanes: NotRequired[dict[Lane, Annotated[_Agreement, _built(Agreement)]] | None]
    counted: NotRequired[dict[Literal["steps", "drafted", "accepted"], Count] | None]


class _Recording(BaseModel):
    """Its configuration holds for all objects inside."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    version: Literal[1] = Field(alias="schema")
    header: Annotated[_Header, _built(Header)]
    rounds: Annotated[list[Annotated[_Round, _built(Round)]], _few(MOST_ROUNDS)]
    end: Annotated[_End, _built(End)] | None
    digest: Annotated[str, Field(max_length=71)] | None = None  # "sha256:" and 64 digits


def read_parts(data: Any) -> tuple[Header, list[Round], End | None]:
    """The header, rounds and end in the JSON values of a trace. Raises `TraceError` with the first
    field that breaks the schema, and where it is."""
    _check_sizes(data)
    try:
        found: Any = _Recording.model_validate(data)
    except ValidationError as error:
        raise TraceError(_sentence(error.errors(include_url=False)[0], data)) from None
    return found.header, found.rounds, found.end


def _check_sizes(data: Any) -> None:
    """Refuse objects with more fields than any has: pydantic reports each one that is unknown."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if len(value) > MOST_FIELDS:
                raise TraceError(f"an object has {len(value)} fields, more than any has; {ADVICE}.")
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)


WORDS = {
    "a valid dictionary": "an object",
    "valid string": "text",
    " after validation": "",
    "'": "",
}
ENTRIES = {"drafted": "drafted token", "emitted": "emitted token", "prompt_ids": "prompt id"}


def _sentence(error: Mapping[str, Any], data: Any) -> str:
    """What pydantic found first, as one sentence with the place from the outside in."""
    places: list[str] = []
    for at, part in enumerate(error["loc"]):
        if isinstance(part, int):
            name = places.pop()
            place = f"{ENTRIES.get(name, name + ' entry')} {part + 1}"
            places.append(_round_label(data, part) if at == 1 else place)
        elif part != "[key]":
            places.append(shown(part) if not part.isidentifier() or len(part) > SHOWN else part)
    *where, name = places or ["this recording"]
    begins = ", ".join(where) + ": " if where else ""
    match error["type"]:
        case "missing":
            said = f"{name} is missing"
        case "extra_forbidden":
            said = f"there is a field {name}, which does not exist"
        case "value_error":
            begins, said = ", ".join([*where, name]) + ": ", harmless(str(error["ctx"]["error"]))
        case _:
            should = error["msg"][error["msg"].find("should") :].partition(" or instance")[0]
            for theirs, ours in WORDS.items():
                should = should.replace(theirs, ours)
            said = f"{name} is {shown(error['input'])}, but it {harmless(should)}"
    return f"{begins}{said}; {ADVICE}."


def _round_label(data: Any, place: int) -> str:
    # These values are unchecked: they may name the round only if they are short.
    found = data["rounds"][place]
    if type(found) is dict:
        lane, index = found.get("lane"), found.get("index")
        named = isinstance(lane, str) and LANE_NAME.fullmatch(lane) is not None
        if named and type(index) is int and 0 <= index < 10**6:
            return round_name(str(lane), index)
    return f"entry {place + 1} of the rounds"


def round_name(lane: str, index: int) -> str:
    """The name of a round in an error; users see rounds counted from 1."""
    return f"round {index + 1} of the {lane} lane"


def shown(value: object) -> str:
    """A value from a file as a short text that is safe in a terminal and in HTML."""
    if isinstance(value, str):
        return harmless(repr(value[:SHOWN] + ("…" if len(value) > SHOWN else "")))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if abs(value) < 1e300 else "a huge number"
    return "an object" if isinstance(value, dict) else "a list"


def harmless(text: str) -> str:
    """A text without marks of HTML and unprintable characters, and no longer than a line."""
    safe = "".join(c if c.isprintable() and c not in "<>&" else f"\\x{ord(c):02x}" for c in text)
    return safe[:120].rstrip(".")

"""The JSON schema of a recording with the limits of its fields, for files that anyone may have
written. This module, and with it pydantic, is imported only to read a file. The consistency of
values is checked in `identities`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import Required, TypedDict

from ..base.console import escaped
from ..base.errors import ADVICE, TraceError
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
from ..core.messages import Message, Role
from ..core.records import NAME as KIND_NAME
from ..core.settings import CHOICES, RANGES, Settings
from ..core.several import LANE_NAME, MAX_LANES

SLACK = 1e-4  # how far rounding in fp32 may lift a probability above 1
MAX_PROMPT = 1_000_000  # characters or tokens
MAX_ROUNDS = (MAX_LANES + 1) * (int(RANGES["max_new_tokens"][1]) + 1)
MAX_VERSIONS = 40
MAX_TURNS = 10_000
MAX_FAULTS = 1000  # the first is reported: pydantic writes a report of each
SHOWN = 40  # characters of a value that a message repeats
LATE_SETTINGS = ("gamma_policy", "chat", "verdict")  # older recordings used the defaults
_HTML = re.compile("[<>&]")


def _aware_date(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() is None:
        raise ValueError(f"{text[:SHOWN]} has no time zone")
    return text


def _settings(values: dict[str, Any]) -> Settings:
    for name in Settings.__dataclass_fields__:
        if name not in values and name not in LATE_SETTINGS:
            raise ValueError(f"{name} is missing")
    # The drafter and the verdict may belong to a package that is not installed here.
    known = dict(values)
    absent: dict[str, Any] = {}
    for name in ("drafter", "verdict"):
        if _is_absent_kind(name, values.get(name)):
            absent[name] = known.pop(name)
    settings = Settings.from_dict(known)
    for name, value in absent.items():
        object.__setattr__(settings, name, value)
    return settings


def _is_absent_kind(setting: str, value: Any) -> bool:
    """Whether a value could name a kind of another package, and no kind here has that name."""
    is_name = isinstance(value, str) and KIND_NAME.fullmatch(value) is not None
    return is_name and value not in CHOICES[setting]()


def _falling(top: list[Choice]) -> tuple[Choice, ...]:
    probabilities = [choice.probability for choice in top]
    if probabilities != sorted(probabilities, reverse=True):
        raise ValueError("it is not in descending order of probability")
    if sum(probabilities) > 1 + SLACK:
        raise ValueError(f"it adds up to {sum(probabilities):.6g}, more than 1")
    return tuple(top)


def _token(fields: dict[str, Any]) -> Token:
    fields.setdefault("id", UNKNOWN_ID)
    return Token(**fields)


def _made(event: Any) -> AfterValidator:
    """Make an event of the fields that were read."""
    return AfterValidator(lambda fields: event(**fields))


Lane = Annotated[str, Field(pattern=f"^{LANE_NAME.pattern}$")]
Name = Annotated[str, Field(max_length=200)]
Prompt = Annotated[str, Field(max_length=MAX_PROMPT)]
# The last token's text holds all remaining bytes that do not form a character.
TokenText = Annotated[str, Field(max_length=10_000)]
Id = Annotated[int, Field(ge=0, le=2**31 - 1)]
Index = Annotated[int, Field(ge=0, le=MAX_ROUNDS)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Threads = Annotated[int, Field(ge=1, le=100_000)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]
Probability = Annotated[float, Field(ge=0, le=1 + SLACK)]


class ChoiceJson(TypedDict):
    """A `Choice` in a recording."""

    id: Id
    text: TokenText
    probability: Probability


Choices = Annotated[
    list[Annotated[ChoiceJson, _made(Choice)]],
    Field(max_length=5, fail_fast=True),
    AfterValidator(_falling),
]


class TokenJson(TypedDict, total=False):
    """A `Token` in a recording. A token that a watched server did not report has no id."""

    id: Id
    text: Required[TokenText]
    outcome: Required[Outcome]
    p: Probability | None
    q: Probability | None
    u: Annotated[float, Field(ge=0, lt=1)] | None
    beta: Probability | None
    soft_p: Probability | None
    soft_q: Probability | None
    top_p: Choices
    top_q: Choices
    top_residual: Choices
    weight: Probability | None
    threshold: Probability | None
    chance: Probability | None
    seen: Annotated[int, Field(ge=1, le=MAX_PROMPT)] | None


AnyToken = Annotated[TokenJson, AfterValidator(_token)]


class RoundJson(TypedDict, total=False):
    """A `Round` in a recording. A server may draft more tokens than gamma allows here."""

    lane: Required[Lane]
    index: Required[Index]
    drafted: Required[Annotated[list[AnyToken], Field(max_length=64, fail_fast=True)]]
    last: Required[AnyToken | None]
    draft_seconds: Required[Seconds]
    verify_seconds: Required[Seconds]
    overhead_seconds: Required[Seconds]
    clock: Required[Seconds]
    wall: Seconds | None
    exchanged: Annotated[int, Field(ge=0, le=2**40)] | None
    server_seconds: Seconds | None


class ModelJson(TypedDict, total=False):
    """The header's record of a model."""

    name: Required[Name]
    parameters: Required[Annotated[int, Field(ge=0, le=10**15)]]
    form: Required[Name]
    shared: Count
    revision: Name | None
    context: Count | None
    weights: Name
    products: Literal["int8", "fp32"]


class MessageJson(TypedDict):
    """A `Message` in a recording."""

    role: Role
    content: Prompt


Messages = Annotated[
    list[Annotated[MessageJson, _made(Message)]],
    Field(max_length=MAX_TURNS, fail_fast=True),
    AfterValidator(tuple),
]


LaneSettings = Annotated[dict[str, Any], AfterValidator(_settings)]


class HeaderJson(TypedDict, total=False):
    """A `Header` in a recording."""

    prompt: Required[Prompt]
    prompt_ids: Required[
        Annotated[list[Id], Field(max_length=MAX_PROMPT, fail_fast=True), AfterValidator(tuple)]
    ]
    lanes: Required[Annotated[dict[Lane, LaneSettings], Field(min_length=1)]]
    drafts: Required[dict[Lane, ModelJson | None]]
    target: Required[ModelJson]
    device: Required[Name]
    dtype: Required[Name]
    versions: Required[Annotated[dict[Name, Name], Field(max_length=MAX_VERSIONS)]]
    threads: Required[Annotated[int, Field(ge=0, le=100_000)]]
    date: Required[Annotated[Name, AfterValidator(_aware_date)]]
    prefill_seconds: Required[dict[Lane, dict[Literal["target", "draft"], Seconds]]]
    mode: Literal["interleaved", "sequential"]
    processor: Name
    lane_threads: dict[Lane, Threads] | None
    memory: Annotated[dict[Literal["texts", "tokens"], Count], Field(min_length=2)] | None
    source: Name | None
    streaming_rate: Seconds | None
    question: Prompt | None
    messages: Messages | None


class DivergenceJson(TypedDict):
    """A `Divergence` in a recording."""

    index: Index
    margin: Annotated[float, Field(ge=0, le=1e6)] | None


class AgreementJson(TypedDict, total=False):
    """An `Agreement` in a recording."""

    identical: bool | None
    compared: Index
    divergence: Annotated[DivergenceJson, _made(Divergence)] | None


class EndJson(TypedDict, total=False):
    """An `End` in a recording."""

    reasons: Required[dict[Lane, EndReason]]
    lanes: dict[Lane, Annotated[AgreementJson, _made(Agreement)]] | None
    counted: dict[Literal["steps", "drafted", "accepted"], Count] | None


class RecordingJson(TypedDict, total=False):
    """A recording. Its configuration holds for all objects in it."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="forbid", strict=True, allow_inf_nan=False
    )

    schema: Required[Literal[2]]
    header: Required[Annotated[HeaderJson, _made(Header)]]
    rounds: Required[
        Annotated[
            list[Annotated[RoundJson, _made(Round)]],
            Field(max_length=MAX_ROUNDS, fail_fast=True),
        ]
    ]
    end: Required[Annotated[EndJson, _made(End)] | None]
    digest: Annotated[str, Field(max_length=71)] | None  # "sha256:" and 64 digits


READER = TypeAdapter(RecordingJson)


def read_parts(data: Any) -> tuple[Header, list[Round], End | None]:
    """The header, rounds and end in the JSON values of a trace. Raises `TraceError` with the first
    field that breaks the schema, and where it is."""
    try:
        recording: Any = READER.validate_python(data)
    except ValidationError as error:
        if error.error_count() > MAX_FAULTS:
            raise TraceError(
                f"this recording has {error.error_count():,} invalid fields; {ADVICE}."
            ) from None
        first = error.errors(include_url=False)[0]
        raise TraceError(_sentence(first, data)) from None
    return recording["header"], recording["rounds"], recording["end"]


WORDS = {
    "a valid dictionary": "an object",
    "valid string": "text",
    " after validation": "",
    "'": "",
}
"""Pydantic's error types, and our words for them."""
ENTRIES = {
    "drafted": "drafted token",
    "prompt_ids": "prompt id",
    "messages": "turn",
}
"""The names of entries of lists; an entry of another list is named "entry" after the list."""


def _sentence(error: Mapping[str, Any], data: Any) -> str:
    """Pydantic's first error, as one sentence with the path from the outside in."""
    *outside, name = _path_in_words(error["loc"], data) or ["this recording"]
    kind = error["type"]
    if kind == "missing":
        fault = f"{name} is missing"
    elif kind == "extra_forbidden":
        fault = f"the field {name} is not part of the schema"
    elif kind == "value_error":
        outside.append(name)
        fault = harmless(str(error["ctx"]["error"]))
    else:
        expectation = harmless(_expectation(error["msg"]))
        fault = f"{name} is {shown(error['input'])}, but it {expectation}"
    if outside:
        fault = f"{', '.join(outside)}: {fault}"
    return f"{fault}; {ADVICE}."


def _path_in_words(location: tuple[int | str, ...], data: Any) -> list[str]:
    """The names of a value and of its containers, from the outside in."""
    words: list[str] = []
    for depth, part in enumerate(location):
        if isinstance(part, int):
            listed = words.pop()
            if depth == 1:
                words.append(_round_label(data, part))
            else:
                words.append(f"{ENTRIES.get(listed, listed + ' entry')} {part + 1}")
        elif part == "[key]":
            words[-1] = "a name"  # which is the value that is shown
        elif part.isidentifier() and len(part) <= SHOWN:
            words.append(part)
        else:
            words.append(shown(part))
    return words


def _expectation(message: str) -> str:
    """Pydantic's expectation of a value, in our words."""
    should = message[message.find("should") :]
    for pydantic_words, our_words in WORDS.items():
        should = should.replace(pydantic_words, our_words)
    return should


def _round_label(data: Any, number: int) -> str:
    # These values are unchecked: they may name the round only if they are short.
    match data["rounds"][number]:
        case {"lane": str(lane), "index": int(index)} if LANE_NAME.fullmatch(lane):
            if 0 <= index < 10**6:
                return round_name(lane, int(index))
    return f"entry {number + 1} of the rounds"


def round_name(lane: str, index: int) -> str:
    """The name of a round in an error; users see rounds counted from 1."""
    return f"round {index + 1} of the {lane} lane"


def shown(value: object) -> str:
    """A value from a file as a short text that is safe in a terminal and in HTML."""
    match value:
        case str():
            text = value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
            return harmless(repr(text))[: 3 * SHOWN // 2]
        case bool() | None:
            return json.dumps(value)
        case int() | float() if abs(value) < 1e300:
            return f"{value:.6g}"
        case int() | float():
            return "a huge number"
        case dict():
            return "an object"
    return "a list"


def harmless(text: str) -> str:
    """A text without HTML marks and control characters, cut to a line."""
    safe = _HTML.sub(lambda mark: f"\\x{ord(mark.group()):02x}", escaped(text))
    return safe[:120].rstrip(".")

"""The schema of a trace's JSON: types, sizes and bounds, for files that anyone may have written.

It follows the dataclasses of `core.events`; only bounds are said here. Only the reading of a file
imports this module, and with it pydantic. What the values mean together is in `identities`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pydantic
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from ..base.console import escaped
from ..base.errors import ADVICE, TraceError
from ..core.events import UNKNOWN_ID, Choice, End, Header, Round, Token
from ..core.kinds import NAME as KIND_NAME
from ..core.settings import CHOICES, RANGES, Settings
from ..core.several import LANE_NAME, MOST_LANES

SLACK = 1e-4  # how far above 1 rounding in fp32 may put a probability
LONG = 1_000_000  # characters or tokens of a prompt
MOST_ROUNDS = (MOST_LANES + 1) * (int(RANGES["max_new_tokens"][1]) + 1)
MOST_FIELDS = 40  # of any object; pydantic would report each unknown one
SHOWN = 40  # characters of a value that a message repeats
LATE_SETTINGS = ("gamma_policy", "chat", "verdict")  # older recordings used the defaults
_HTML = re.compile("[<>&]")


def _date(value: str) -> str:
    if datetime.fromisoformat(value).utcoffset() is None:
        raise ValueError(f"{value[:SHOWN]} has no time zone")
    return value


def _settings(values: dict[str, Any]) -> Settings:
    for name in Settings.__dataclass_fields__:
        if name not in values and name not in LATE_SETTINGS:
            raise ValueError(f"{name} is missing")
    # Its drafter and its verdict may be of a package that is not installed here.
    absent = {
        name: values[name]
        for name in ("drafter", "verdict")
        if _is_absent_kind(name, values.get(name))
    }
    known = {name: value for name, value in values.items() if name not in absent}
    settings = Settings.from_dict(known)
    for name, value in absent.items():
        object.__setattr__(settings, name, value)
    return settings


def _is_absent_kind(setting: str, value: Any) -> bool:
    """Whether a value could name a kind of another package, and no kind here has that name."""
    is_name = isinstance(value, str) and KIND_NAME.fullmatch(value) is not None
    return is_name and value not in CHOICES[setting]()


def _ordered(top: list[Choice]) -> tuple[Choice, ...]:
    probabilities = [choice.probability for choice in top]
    if probabilities != sorted(probabilities, reverse=True):
        raise ValueError("it is not in falling order of probability")
    if sum(probabilities) > 1 + SLACK:
        raise ValueError(f"it adds up to {sum(probabilities):.6g}, more than 1")
    return tuple(top)


def _between(low: float, high: float, kind: Any = int) -> Any:
    return Annotated[kind, pydantic.Field(ge=low, le=high)]


def _text_up_to(most: int) -> Any:
    return Annotated[str, pydantic.Field(max_length=most)]


def _list_up_to(most: int, entry: Any) -> Any:
    return Annotated[list[entry], pydantic.Field(max_length=most, fail_fast=True)]


def _dict_of(key: Any, value: Any) -> Any:
    return dict[key, value]


def _object_of(name: str, schema: Mapping[str, Any]) -> Any:
    return TypedDict(name, dict(schema))  # type: ignore[operator]


LANE: Any = Annotated[str, pydantic.Field(pattern=f"^{LANE_NAME.pattern}$")]
COUNT = _between(0, 2**53)
ID = _between(0, 2**31 - 1)
INDEX = _between(0, MOST_ROUNDS)
THREADS = _between(1, 100_000)
SECONDS = _between(0, 1e7, float)
PROBABILITY = _between(0, 1 + SLACK, float)
NAME = _text_up_to(200)
PROMPT = _text_up_to(LONG)
MODEL = _object_of(
    "Model",
    {
        "name": NAME,
        "parameters": _between(0, 10**15),
        "form": NAME,
        "shared": NotRequired[COUNT],
        "revision": NotRequired[NAME | None],
        "context": NotRequired[COUNT | None],
        "weights": NotRequired[NAME],
        "products": NotRequired[Literal["int8", "fp32"]],
    },
)
BY_TYPE: dict[Any, Any] = {
    int: COUNT,
    str: NAME,
    float: SECONDS,
    Settings: Annotated[dict[str, Any], AfterValidator(_settings)],
    dict[str, Any]: MODEL,
}
BY_NAME: dict[str, Any] = {
    "id": ID,
    "prompt_ids": ID,
    "probability": PROBABILITY,
    "p": PROBABILITY,
    "q": PROBABILITY,
    "beta": PROBABILITY,
    "soft_p": PROBABILITY,
    "soft_q": PROBABILITY,
    "weight": PROBABILITY,
    "threshold": PROBABILITY,
    "chance": PROBABILITY,
    "index": INDEX,
    "compared": INDEX,
    # The last token's text holds all remaining bytes that do not form a character.
    "text": _text_up_to(10_000),
    "u": Annotated[float, pydantic.Field(ge=0, lt=1)],
    "seen": _between(1, LONG),
    "lane": LANE,
    "exchanged": _between(0, 2**40),
    "prompt": PROMPT,
    "question": PROMPT,
    "threads": _between(0, 100_000),
    "lane_threads": _dict_of(LANE, THREADS),
    "date": Annotated[NAME, AfterValidator(_date)],
    "versions": _dict_of(NAME, NAME),
    "prefill_seconds": _dict_of(LANE, _dict_of(Literal["target", "draft"], SECONDS)),
    "mode": Literal["interleaved", "sequential"],
    "memory": Annotated[
        _dict_of(Literal["texts", "tokens"], COUNT),
        pydantic.Field(min_length=2),
    ],
    "margin": _between(0, 1e6, float),
    "counted": _dict_of(Literal["steps", "drafted", "accepted"], COUNT),
}
"""What a field may hold where its name says more than its type."""
MOST_TOP = 5  # entries of a list of likeliest tokens
MOST_ENTRIES = {
    "prompt_ids": LONG,
    "drafted": 64,  # a server may draft more than gamma allows here
    "rounds": MOST_ROUNDS,
}


def _schema(hint: Any, name: str = "") -> Any:
    """The schema of the JSON of a value of this type, in a field of this name."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if type(None) in arguments:
        return _schema(arguments[0], name) | None
    if origin in (list, tuple):
        return _list_schema(origin, arguments[0], name)
    if name in BY_NAME:
        return BY_NAME[name]
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    if origin is dict:
        return _dict_of(LANE, _schema(arguments[1]))
    if is_dataclass(hint):
        return _event_schema(hint)
    return hint  # a choice of words


def _list_schema(origin: Any, entry: Any, name: str) -> Any:
    """That of a list, which becomes a list or a tuple as the event has it."""
    entries = _list_up_to(MOST_ENTRIES.get(name, MOST_TOP), _schema(entry, name))
    made = AfterValidator(origin if name in MOST_ENTRIES else _ordered)
    # Not strict, for tuples: a trace that never was JSON has them.
    return Annotated[entries, pydantic.Field(strict=False), made]


def _event_schema(kind: Any) -> Any:
    """The schema of an object of JSON that becomes this dataclass. What has a default may be
    missing, and the id of a token, which watched servers may not tell."""
    hints = get_type_hints(kind)
    unknown = {"id": UNKNOWN_ID} if kind is Token else {}
    schema: dict[str, Any] = {}
    for field in fields(kind):
        schema[field.name] = _schema(hints[field.name], field.name)
        if _has_default(field) or field.name in unknown:
            schema[field.name] = NotRequired[schema[field.name]]
    made = AfterValidator(lambda values: kind(**(unknown | values)))
    return Annotated[_object_of(kind.__name__, schema), made]


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING


RECORDING = _object_of(
    "Recording",
    {
        "schema": Literal[2],
        "header": _event_schema(Header),
        "rounds": _schema(list[Round], "rounds"),
        "end": _event_schema(End) | None,
        "digest": NotRequired[_text_up_to(71) | None],  # "sha256:" and 64 digits
    },
)
# It holds for all objects inside.
RECORDING.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
READER: TypeAdapter[Any] = TypeAdapter(RECORDING)


def read_parts(data: Any) -> tuple[Header, list[Round], End | None]:
    """The header, rounds and end in the JSON values of a trace. Raises `TraceError` with the first
    field that breaks the schema, and where it is."""
    _check_sizes(data)
    try:
        recording = READER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TraceError(_sentence(first, data)) from None
    return recording["header"], recording["rounds"], recording["end"]


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
"""Pydantic's words, and ours for them."""
ENTRIES = {
    "drafted": "drafted token",
    "prompt_ids": "prompt id",
}
"""What an entry of a list is called; of other lists "entry" behind the list's name."""


def _sentence(error: Mapping[str, Any], data: Any) -> str:
    """What pydantic found first, as one sentence with the path from the outside in."""
    *outside, name = _path_in_words(error["loc"], data) or ["this recording"]
    kind = error["type"]
    if kind == "missing":
        fault = f"{name} is missing"
    elif kind == "extra_forbidden":
        fault = f"there is a field {name}, which does not exist"
    elif kind == "value_error":
        outside.append(name)
        fault = harmless(str(error["ctx"]["error"]))
    else:
        fault = f"{name} is {shown(error['input'])}, but it {harmless(_expectation(error['msg']))}"
    where = f"{', '.join(outside)}: " if outside else ""
    return f"{where}{fault}; {ADVICE}."


def _path_in_words(location: tuple[int | str, ...], data: Any) -> list[str]:
    """The names of a value and of what it lies in, from the outside in."""
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
    """What pydantic says that a value should be, in our words."""
    should = message[message.find("should") :]
    for theirs, ours in WORDS.items():
        should = should.replace(theirs, ours)
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
            return harmless(repr(value[:SHOWN] + "…" * (len(value) > SHOWN)))[: 3 * SHOWN // 2]
        case bool() | None:
            return json.dumps(value)
        case int() | float():
            return f"{value:.6g}" if abs(value) < 1e300 else "a huge number"
    return "an object" if isinstance(value, dict) else "a list"


def harmless(text: str) -> str:
    """A text without marks of HTML and characters that act, and no longer than a line."""
    safe = _HTML.sub(lambda mark: f"\\x{ord(mark.group()):02x}", escaped(text))
    return safe[:120].rstrip(".")

"""The schema of a trace's JSON: types, sizes and bounds, for files that anyone may have written.

It follows the dataclasses of `core.events`; only bounds are said here. Only the reading of a file
imports this module, and with it pydantic. What the values mean together is in `identities`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from ..console import escaped
from ..core.events import UNKNOWN_ID, Choice, End, Header, Round, Token
from ..core.kinds import NAME as KIND_NAME
from ..errors import ADVICE, TraceError
from ..settings import CHOICES, RANGES, Settings
from ..several import LANE_NAME, MOST_LANES

SLACK = 1e-4  # how far above 1 rounding in fp32 may put a probability
LONG = 1_000_000  # characters or tokens of a prompt
MOST_ROUNDS = (MOST_LANES + 1) * (int(RANGES["max_new_tokens"][1]) + 1)
MOST_FIELDS = 40  # of any object; pydantic would report each unknown one
SHOWN = 40  # characters of a value that a message repeats
_HTML = re.compile("[<>&]")
LATE_SETTINGS = ("gamma_policy", "chat", "verdict")  # older recordings used the defaults


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
        name: value
        for name in ("drafter", "verdict")
        if isinstance(value := values.get(name), str)
        and KIND_NAME.fullmatch(value)
        and value not in CHOICES[name]()
    }
    made = Settings.from_dict({name: one for name, one in values.items() if name not in absent})
    for name, value in absent.items():
        object.__setattr__(made, name, value)
    return made


def _ordered(top: list[Choice]) -> tuple[Choice, ...]:
    listed = [choice.probability for choice in top]
    if listed != sorted(listed, reverse=True):
        raise ValueError("it is not in falling order of probability")
    if sum(listed) > 1 + SLACK:
        raise ValueError(f"it adds up to {sum(listed):.6g}, more than 1")
    return tuple(top)


def _from(low: float, high: float, kind: Any = int) -> Any:
    return Annotated[kind, Field(ge=low, le=high)]


def _up_to(most: int, kind: Any = str) -> Any:
    fast = None if kind is str else True
    return Annotated[kind, Field(max_length=most, fail_fast=fast)]


def _by(key: Any, value: Any) -> Any:
    return dict[key, value]


def _record(name: str, schema: Mapping[str, Any]) -> Any:
    return TypedDict(name, dict(schema))  # type: ignore[operator]


LANE: Any = Annotated[str, Field(pattern=f"^{LANE_NAME.pattern}$")]
COUNT, PLACE, THREADS = _from(0, 2**53), _from(0, MOST_ROUNDS), _from(1, 100_000)
NAME, CHANCE = _up_to(200), _from(0, 1 + SLACK, float)
MODEL = _record(
    "Model",
    {"name": NAME, "parameters": _from(0, 10**15), "form": NAME, "shared": NotRequired[COUNT]}
    | {
        "revision": NotRequired[NAME | None],
        "context": NotRequired[COUNT | None],
        "weights": NotRequired[NAME],
    },
)
BY_TYPE: dict[Any, Any] = {
    int: COUNT,
    str: NAME,
    float: _from(0, 1e7, float),  # seconds
    Settings: Annotated[dict[str, Any], AfterValidator(_settings)],
    dict[str, Any]: MODEL,
}
BY_NAME: dict[str, Any] = {
    **dict.fromkeys(("id", "prompt_ids"), _from(0, 2**31 - 1)),
    **dict.fromkeys(("probability", "p", "q", "beta", "soft_p", "soft_q"), CHANCE),
    **dict.fromkeys(("weight", "threshold", "chance"), CHANCE),
    **dict.fromkeys(("index", "compared"), PLACE),
    # The last token's text holds all remaining bytes that do not form a character.
    "text": _up_to(10_000),
    "u": Annotated[float, Field(ge=0, lt=1)],
    "seen": _from(1, LONG),
    "lane": LANE,
    "exchanged": _from(0, 2**40),
    **dict.fromkeys(("prompt", "question"), _up_to(LONG)),
    "threads": _from(0, 100_000),
    "lane_threads": _by(LANE, THREADS),
    "date": Annotated[NAME, AfterValidator(_date)],
    "versions": _by(NAME, NAME),
    "prefill_seconds": _by(LANE, _by(Literal["target", "draft"], BY_TYPE[float])),
    "mode": Literal["interleaved", "sequential"],
    "memory": Annotated[_by(Literal["texts", "tokens"], COUNT), Field(min_length=2)],
    "margin": _from(0, 1e6, float),
    "counted": _by(Literal["steps", "drafted", "accepted"], COUNT),
}
# Entries of lists, 5 of the others. A server may draft more than gamma allows here.
MOST = {"prompt_ids": LONG, "drafted": 64, "rounds": MOST_ROUNDS}


def _schema(hint: Any, name: str = "") -> Any:
    """The schema of the JSON of a value of this type, in a field of this name."""
    kind, inner = get_origin(hint), get_args(hint)
    if type(None) in inner:
        return _schema(inner[0], name) | None
    if kind in (list, tuple):
        of_all = _up_to(MOST.get(name, 5), list[_schema(inner[0], name)])  # type: ignore[misc]
        made = AfterValidator(kind if name in MOST else _ordered)
        return Annotated[of_all, Field(strict=False), made]  # tuples where it never was JSON
    if name in BY_NAME or hint in BY_TYPE:
        return BY_NAME.get(name) or BY_TYPE[hint]
    if kind is dict:
        return _by(LANE, _schema(inner[1]))
    return _event(hint) if is_dataclass(hint) else hint  # else a choice of words


def _event(kind: Any) -> Any:
    """The schema of an object of JSON that becomes this dataclass. What has a default may be
    missing, and the id of a token, which watched servers may not tell."""
    hints, late = get_type_hints(kind), {"id": UNKNOWN_ID} if kind is Token else {}
    schema = {one.name: _schema(hints[one.name], one.name) for one in fields(kind)}
    for one in fields(kind):
        if one.default is not MISSING or one.name in late:
            schema[one.name] = NotRequired[schema[one.name]]
    made = AfterValidator(lambda values: kind(**(late | values)))
    return Annotated[_record(kind.__name__, schema), made]


RECORDING = _record(
    "Recording",
    {
        "schema": Literal[2],
        "header": _event(Header),
        "rounds": _schema(list[Round], "rounds"),
        "end": _event(End) | None,
        "digest": NotRequired[_up_to(71) | None],  # "sha256:" and 64 digits
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
        found = READER.validate_python(data)
    except ValidationError as error:
        raise TraceError(_sentence(error.errors(include_url=False)[0], data)) from None
    return found["header"], found["rounds"], found["end"]


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
ENTRIES = {"drafted": "drafted token", "prompt_ids": "prompt id"}


def _sentence(error: Mapping[str, Any], data: Any) -> str:
    """What pydantic found first, as one sentence with the place from the outside in."""
    places: list[str] = []
    for at, part in enumerate(error["loc"]):
        if isinstance(part, int):
            name = places.pop()
            place = f"{ENTRIES.get(name, name + ' entry')} {part + 1}"
            places.append(_round_label(data, part) if at == 1 else place)
        elif part == "[key]":
            places[-1] = "a name"  # which is the value that is shown
        else:
            places.append(shown(part) if not part.isidentifier() or len(part) > SHOWN else part)
    *where, name = places or ["this recording"]
    should = error["msg"][error["msg"].find("should") :]
    for theirs, ours in WORDS.items():
        should = should.replace(theirs, ours)
    said = f"{name} is {shown(error['input'])}, but it {harmless(should)}"
    if error["type"] == "missing":
        said = f"{name} is missing"
    elif error["type"] == "extra_forbidden":
        said = f"there is a field {name}, which does not exist"
    elif error["type"] == "value_error":
        where, said = [*where, name], harmless(str(error["ctx"]["error"]))
    return f"{', '.join(where)}{': ' * bool(where)}{said}; {ADVICE}."


def _round_label(data: Any, place: int) -> str:
    # These values are unchecked: they may name the round only if they are short.
    match data["rounds"][place]:
        case {"lane": str(lane), "index": int(index)} if LANE_NAME.fullmatch(lane):
            if 0 <= index < 10**6:
                return round_name(lane, int(index))
    return f"entry {place + 1} of the rounds"


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

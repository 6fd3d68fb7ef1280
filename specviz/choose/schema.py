"""Reading of a sweep's JSON, which any user may have written: only what the types allow."""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import TraceError
from ..runs.header_schema import SETTINGS
from ..runs.validators import (
    Invalid,
    Reader,
    boolean,
    integer,
    list_of,
    not_a,
    number,
    object_of,
    one_of,
    optional,
    text,
)
from ..settings import Settings
from .types import SCHEMA, SweepResult

MOST_BYTES = 20_000_000  # of a file
MOST_ENTRIES = 10_000  # of a list or an object
LARGEST = 1e15
ADVICE = "open another file or sweep again"


def read_result(data: Any) -> SweepResult:
    """The result in the JSON values that `SweepResult.to_dict` made. Raises `TraceError` with the
    first field that breaks the schema."""
    try:
        if type(data) is dict and type(data.get("schema")) is int and data["schema"] != SCHEMA:
            raise Invalid(
                f"has schema {data['schema']:.6g} and this version of specviz reads {SCHEMA}",
                named=False,
            )
        if type(data) is not dict or "schema" not in data:
            raise Invalid("is no sweep: it has no field 'schema'", named=False)
        rest = {name: value for name, value in data.items() if name != "schema"}
        result: SweepResult = _object(SweepResult)(rest)
    except Invalid as invalid:
        raise invalid.of("this sweep").error(ADVICE) from None
    return result


def load_result(path: str | Path) -> SweepResult:
    """The result in a file that `sweep --out FILE.json` wrote. Raises `TraceError`."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise TraceError(f"{path.name} is larger than a sweep can be; {ADVICE}.")
        data = json.loads(raw)
    except OSError as error:
        raise TraceError(f"{path.name} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path.name} is not JSON; {ADVICE}.") from error
    return read_result(data)


@cache
def _object(kind: type) -> Reader:
    """The reader of a dataclass, from the types of its fields. Fields with a default may lack."""
    hints = get_type_hints(kind)
    required: dict[str, Reader] = {}
    extra: dict[str, Reader] = {}
    for field in fields(kind):
        lacks = field.default is MISSING and field.default_factory is MISSING
        (required if lacks else extra)[field.name] = _reader(hints[field.name])
    return object_of(kind, required, extra)


def _reader(hint: Any) -> Reader:
    plain: dict[Any, Reader] = {
        str: text(100_000),
        int: integer(-int(LARGEST), int(LARGEST)),
        float: number(-LARGEST, LARGEST),
        bool: boolean,
        Settings: SETTINGS,
    }
    if hint in plain:
        return plain[hint]
    if is_dataclass(hint):
        return _object(hint)  # type: ignore[arg-type]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return one_of(inner)
    if origin in (Union, types.UnionType):
        return optional(_reader(next(one for one in inner if one is not types.NoneType)))
    if origin is tuple:
        listed = list_of(_reader(inner[0]), MOST_ENTRIES, "entry")
        return lambda value: tuple(listed(value))
    assert origin is dict, hint
    return _mapping(_reader(inner[1]))


def _mapping(reader: Reader) -> Reader:
    """Reads an object whose names are free."""

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict or len(value) > MOST_ENTRIES:
            raise not_a(value, "an object")
        kept = {}
        for name, item in value.items():
            try:
                kept[name] = reader(item)
            except Invalid as invalid:
                raise invalid.of("an entry") from None
        return kept

    return read

"""Strict readers of JSON values, for files that any user may have written.

A reader takes a JSON value and returns the Python value that it stands for, or raises `Invalid`
with the first thing that is not allowed. Readers of lists and objects add where that was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ..errors import TraceError

Reader: TypeAlias = Callable[[Any], Any]

SHOWN = 40  # characters of a value that a message repeats
ADVICE = "open another file or record the run again"


class Invalid(Exception):
    """The first thing that is invalid in a file.

    what: the problem, as a clause. places: where it is, the outermost place first. named: whether
    `what` begins with its subject; "is 7, not a text" needs one (see `of`).
    """

    def __init__(self, what: str, *places: str, named: bool = True) -> None:
        super().__init__(what)
        self.what, self.places, self.named = what, list(places), named

    def of(self, name: str) -> Invalid:
        """This error with `name` as the subject, unless it has a subject already."""
        if not self.named:
            self.what, self.named = f"{name} {self.what}", True
        return self

    def inside(self, place: str) -> Invalid:
        """This error with one more place around those that it names."""
        self.places.insert(0, place)
        return self

    def error(self, advice: str = ADVICE) -> TraceError:
        """The error to show to the user: one sentence, with `advice` at its end."""
        where = ", ".join(self.places) + ": " if self.places else ""
        return TraceError(f"{where}{self.what}; {advice}.")


def shown(value: object) -> str:
    """A value from a file as a short text that is safe in a terminal and in HTML."""
    if isinstance(value, str):
        text = repr(value[:SHOWN] + ("…" if len(value) > SHOWN else ""))
        for mark in "<>&":
            text = text.replace(mark, f"\\x{ord(mark):02x}")
        return text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if abs(value) < 1e300 else "a huge number"
    return "an object" if isinstance(value, dict) else "a list"


def not_a(value: object, wanted: str) -> Invalid:
    """The error for a value that is not `wanted`; it still needs a subject."""
    return Invalid(f"is {shown(value)}, not {wanted}", named=False)


def integer(low: int, high: int) -> Reader:
    """Reads a whole number from `low` to `high`; true and false are not numbers."""

    def read(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise not_a(value, f"a whole number from {low} to {high}")

    return read


def number(low: float, high: float, wanted: str = "") -> Reader:
    """Reads a finite number from `low` to `high` as a float; `wanted` is for the message."""
    wanted = wanted or f"a number from {low:g} to {high:g}"

    def read(value: Any) -> float:
        kind = type(value)
        if (kind is float or kind is int) and low <= value <= high:  # never true of NaN
            return float(value)
        raise not_a(value, wanted)

    return read


def text(most: int) -> Reader:
    """Reads a text of at most `most` characters."""

    def read(value: Any) -> str:
        if type(value) is str and len(value) <= most:
            return value
        raise not_a(value, f"a text of at most {most} characters")

    return read


def one_of(choices: Sequence[str]) -> Reader:
    """Reads one of these texts."""

    def read(value: Any) -> str:
        if type(value) is str and value in choices:
            return value
        raise not_a(value, f"one of {', '.join(choices)}")

    return read


def boolean(value: Any) -> bool:
    """Reads true or false."""
    if type(value) is bool:
        return value
    raise not_a(value, "true or false")


def date(value: Any) -> str:
    """Reads a date and time in ISO 8601 with its time zone; returns it as it is."""
    try:
        if datetime.fromisoformat(value).utcoffset() is not None:
            return str(value)
    except (TypeError, ValueError):
        pass
    raise not_a(value, "a date and time with its zone, such as 2026-01-31T12:00:00+00:00")


def optional(reader: Reader) -> Reader:
    """Reads what `reader` reads, or null."""
    return lambda value: None if value is None else reader(value)


def list_of(reader: Reader, most: int, label: str | Callable[[int, Any], str]) -> Reader:
    """Reads a list of at most `most` entries.

    label: the name of one entry in a message, or a function that makes it from the entry's index
    and value.
    """

    def read(value: Any) -> list[Any]:
        if type(value) is not list and type(value) is not tuple:
            raise not_a(value, "a list")
        if len(value) > most:
            raise Invalid(f"has {len(value)} entries, more than the {most} allowed", named=False)
        read_items: list[Any] = []
        try:
            for item in value:
                read_items.append(reader(item))
        except Invalid as invalid:
            at, item = len(read_items), value[len(read_items)]
            name = label(at, item) if callable(label) else f"{label} {at + 1}"
            raise invalid.inside(name) if invalid.named else invalid.of(name) from None
        return read_items

    return read


def keyed_by(key: Callable[[str], bool], wanted: str, reader: Reader, most: int) -> Reader:
    """Reads an object of at most `most` entries, each with a key that passes `key`.

    wanted: what a key must be, for the message.
    """

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise not_a(value, "an object")
        if len(value) > most:
            raise Invalid(f"has {len(value)} entries, more than the {most} allowed", named=False)
        for name in value:
            if not key(name):
                raise Invalid(f"has a field {shown(name)}, which is not {wanted}", named=False)
        read_values: dict[str, Any] = {}
        try:
            for name, item in value.items():
                read_values[name] = reader(item)
        except Invalid as invalid:
            raise invalid.inside(name) if invalid.named else invalid.of(name) from None
        return read_values

    return read


def object_of(
    build: Callable[..., Any],
    required: Mapping[str, Reader],
    extra: Mapping[str, Reader] | None = None,
    label: str = "",
) -> Reader:
    """Reads an object with all `required` fields, perhaps some `extra` ones, and no others.

    The fields become the keyword arguments of `build`. label: the place that an error names.
    """
    readers = {**required, **(extra or {})}
    needed = required.keys()

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise not_a(value, "an object")
        kept: dict[str, Any] = {}
        try:
            for name, item in value.items():
                if name not in readers:
                    unknown = f"has a field {shown(name)}, which does not exist"
                    raise Invalid(unknown, named=False)
                kept[name] = readers[name](item)
        except Invalid as invalid:
            # An unknown field is an error of the whole object: its reader adds the subject later.
            subject = invalid.of(name) if name in readers else invalid
            raise (subject.inside(label) if label and invalid.named else subject) from None
        if not needed <= kept.keys():
            missing = next(n for n in required if n not in kept)
            raise Invalid(f"{missing} is missing", *([label] if label else []))
        return build(**kept)

    return read

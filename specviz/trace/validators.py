"""Strict readers of JSON values that a stranger may have written.

A reader takes a JSON value and returns what it stands for, or raises `Wrong` with the first
thing that is not as promised. Readers of lists and objects say where that was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ..errors import TraceError

Reader: TypeAlias = Callable[[Any], Any]

SHOWN = 40  # characters of a value that a message repeats
ADVICE = "open another file or record the run again"


class Wrong(Exception):
    """The first thing wrong: `what`, as a clause, and the places that it lies in.

    Until a field's name has been put before it, `what` has no subject: "is 7, not a text".
    """

    def __init__(self, what: str, *places: str, named: bool = True) -> None:
        super().__init__(what)
        self.what, self.places, self.named = what, list(places), named

    def of(self, name: str) -> Wrong:
        """The same, with its subject, if it had none."""
        if not self.named:
            self.what, self.named = f"{name} {self.what}", True
        return self

    def inside(self, place: str) -> Wrong:
        """The same, one place further in."""
        self.places.insert(0, place)
        return self

    def error(self) -> TraceError:
        """The sentence for the user."""
        where = ", ".join(self.places) + ": " if self.places else ""
        return TraceError(f"{where}{self.what}; {ADVICE}.")


def shown(value: object) -> str:
    """A value that a stranger wrote, short and harmless in a terminal and in HTML."""
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


def refusal(value: object, wanted: str) -> Wrong:
    return Wrong(f"is {shown(value)}, not {wanted}", named=False)


def whole(low: int, high: int) -> Reader:
    """A whole number; true and false are none."""

    def read(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise refusal(value, f"a whole number from {low} to {high}")

    return read


def real(low: float, high: float, wanted: str = "") -> Reader:
    """A finite number."""
    wanted = wanted or f"a number from {low:g} to {high:g}"

    def read(value: Any) -> float:
        kind = type(value)
        if (kind is float or kind is int) and low <= value <= high:  # never true of NaN
            return float(value)
        raise refusal(value, wanted)

    return read


def text(most: int) -> Reader:
    def read(value: Any) -> str:
        if type(value) is str and len(value) <= most:
            return value
        raise refusal(value, f"a text of at most {most} characters")

    return read


def one_of(choices: Sequence[str]) -> Reader:
    def read(value: Any) -> str:
        if type(value) is str and value in choices:
            return value
        raise refusal(value, f"one of {', '.join(choices)}")

    return read


def flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise refusal(value, "true or false")


def date(value: Any) -> str:
    try:
        if datetime.fromisoformat(value).utcoffset() is not None:
            return str(value)
    except (TypeError, ValueError):
        pass
    raise refusal(value, "a date and time with its zone, such as 2026-01-31T12:00:00+00:00")


def optional(reader: Reader) -> Reader:
    """What `reader` reads, or null."""
    return lambda value: None if value is None else reader(value)


def list_of(reader: Reader, most: int, label: str | Callable[[int, Any], str]) -> Reader:
    """A list; `label` is what one entry is called, or says so from its place and value."""

    def read(value: Any) -> list[Any]:
        if type(value) is not list and type(value) is not tuple:
            raise refusal(value, "a list")
        if len(value) > most:
            raise Wrong(f"has {len(value)} entries, more than the {most} allowed", named=False)
        read_items: list[Any] = []
        try:
            for item in value:
                read_items.append(reader(item))
        except Wrong as wrong:
            at, item = len(read_items), value[len(read_items)]
            name = label(at, item) if callable(label) else f"{label} {at + 1}"
            raise wrong.inside(name) if wrong.named else wrong.of(name) from None
        return read_items

    return read


def record(
    build: Callable[..., Any],
    required: Mapping[str, Reader],
    extra: Mapping[str, Reader] | None = None,
    label: str = "",
) -> Reader:
    """An object with all the `required` fields, perhaps some of the `extra` ones, and no other.

    The fields become arguments of `build`. `label` is the place that an error names.
    """
    readers = {**required, **(extra or {})}
    needed = required.keys()

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise refusal(value, "an object")
        kept: dict[str, Any] = {}
        try:
            for name, item in value.items():
                if name not in readers:
                    unknown = f"has a field {shown(name)}, which does not exist"
                    raise Wrong(unknown, named=False)
                kept[name] = readers[name](item)
        except Wrong as wrong:
            # A field that nobody knows is the whole object's fault, so its name is put later.
            subject = wrong.of(name) if name in readers else wrong
            raise (subject.inside(label) if label and wrong.named else subject) from None
        if not needed <= kept.keys():
            missing = next(n for n in required if n not in kept)
            raise Wrong(f"{missing} is missing", *([label] if label else []))
        return build(**kept)

    return read

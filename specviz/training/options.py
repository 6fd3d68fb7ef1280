"""Values of options that are lists."""

from __future__ import annotations

from typing import TypeVar

from ..errors import SpecvizError

Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], option: str) -> list[Number]:
    """The numbers in "1,2,3". Raises `SpecvizError` with the name of the option."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecvizError(f"{option} is {text!r}: give numbers separated by commas.") from error

"""The shared parts of the command line's verbs: a parser whose errors are sentences, bounded
numbers, colour, and checks of output paths."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .environment import T, ValueType, number
from .errors import SettingsError, TraceError

MAX_SHOWN = 160  # characters of a wrong value in an error: it may have a million


class Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences. Raises `SettingsError` instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(
            f"{message.rstrip('.')[:MAX_SHOWN]}; {self.prog} --help lists the options."
        )


def whole(minimum: int, maximum: int = 10**15) -> Callable[[str], int]:
    """A type for `argparse`: a whole number from `minimum` to `maximum`."""
    return _typed(number(int, minimum, maximum))


def real(minimum: float, maximum: float = 1e15) -> Callable[[str], float]:
    """A type for `argparse`: a finite number from `minimum` to `maximum`."""
    return _typed(number(float, minimum, maximum))


def listed(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """A type for `argparse`: values of this type, separated by commas."""
    return lambda text: tuple(map(kind, text.split(",")))


def _typed(value_type: ValueType[T]) -> Callable[[str], T]:
    """A type for `argparse`, whose errors say what is allowed."""

    def parsed(text: str) -> T:
        try:
            return value_type.parse(text)
        except ValueError:  # also whole numbers of thousands of digits
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: use {value_type.allowed}") from None

    return parsed


def add_color(parser: argparse.ArgumentParser) -> None:
    """Add the option that `colored` reads."""
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def colored(options: argparse.Namespace) -> bool:
    """Whether to print in colour: on a terminal, unless NO_COLOR is set."""
    if options.color == "auto":
        return sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return bool(options.color == "always")


def check_writable(path: str | Path, *, folder: bool = False) -> None:
    """Raise `TraceError` if the path cannot be written, before the work for it begins.

    folder: it is a folder, which may not exist yet.
    """
    absolute = Path(path).absolute()
    if folder and absolute.exists() and not absolute.is_dir():
        raise TraceError(f"{path} is a file: choose the path of a folder.")
    if not folder and absolute.is_dir():
        raise TraceError(f"{path} is a folder: choose the path of a file.")
    if not folder and not absolute.parent.is_dir():
        raise TraceError(f"the folder of {path} does not exist: create it first.")
    nearest = next(parent for parent in (absolute, *absolute.parents) if parent.exists())
    if not os.access(nearest, os.W_OK):
        raise TraceError(
            f"{path} cannot be written, because this user may not write to {nearest}: choose "
            "another path."
        )

"""What the verbs of the command line have in common: a parser that answers in sentences, numbers
within bounds, options that were renamed, and colour."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .errors import SettingsError

MOST_SHOWN = 160  # characters of what is wrong, of which somebody may have passed a million


class Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences. Raises `SettingsError` instead of ending the program."""

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse would not say that it could not

    def error(self, message: str) -> NoReturn:
        raise SettingsError(
            f"{message.rstrip('.')[:MOST_SHOWN]}; {self.prog} --help lists what it takes."
        )


def whole(least: int, most: int = 10**15) -> Callable[[str], int]:
    """A type for `argparse`: a whole number from `least` to `most`."""
    return _number(int, least, most, "a whole number")


def real(least: float, most: float = 1e15) -> Callable[[str], float]:
    """A type for `argparse`: a finite number from `least` to `most`."""
    return _number(float, least, most, "a number")


def _number(
    kind: Callable[[str], Any], least: float, most: float, name: str
) -> Callable[[str], Any]:
    bounds = f"from {least:g} on" if most >= 1e15 else f"from {least:g} to {most:g}"

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:  # also whole numbers of thousands of digits
            value = math.nan
        if not least <= value <= most:  # NaN is in no range
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: use {name} {bounds}")
        return value

    return parse


def also_called(
    parser: argparse._ActionsContainer, old: str, option: argparse.Action, **changes: Any
) -> None:
    """Let an option go on working by the name that it had; whoever uses that learns the new one.

    changes: of what `add_argument` takes. With a `nargs` of their own, the words are joined by "+",
    as the name of a pair has them.
    """

    class Renamed(argparse.Action):
        def __call__(self, _: Any, options: Any, values: Any, used: str | None = None) -> None:
            print(f"specviz: {used} is called {option.option_strings[0]} now.", file=sys.stderr)
            setattr(options, self.dest, "+".join(values) if "nargs" in changes else values)

    taken = {"dest": option.dest, "nargs": option.nargs, "type": option.type, **changes}
    hidden = argparse.SUPPRESS
    parser.add_argument(old, action=Renamed, default=hidden, help=hidden, **taken)


def add_color(parser: argparse.ArgumentParser) -> None:
    """The option that `colored` reads."""
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def colored(options: argparse.Namespace) -> bool:
    """Whether to print in colour: on a terminal, unless NO_COLOR is set."""
    tty = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return bool(options.color == "always" or (options.color == "auto" and tty))

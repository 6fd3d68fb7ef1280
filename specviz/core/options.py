"""The shared parts of the command line's verbs: a parser whose errors are sentences, bounded
numbers, the options of settings, colour, and checks of output paths."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..base.environment import T, ValueType, number
from ..base.errors import SettingsError, TraceError
from .registry import drafter_names
from .settings import CHOICES, GAMMA_POLICIES, Settings

if TYPE_CHECKING:
    from .pair import Pair
    from .protocols import WatchedPair

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_ESCAPE = re.compile(r"\\([ntr\\])")
_STOP = r"end at this text (repeatable); \n is the end of a line, \t a tab, \\ a backslash"
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


def unescaped(text: str) -> str:
    """Read the escapes in a text of the command line: \\n, \\t, \\r and \\\\ are what they are in
    Python. Any other backslash stays as it is."""
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group(1)], text)


def add_color(parser: argparse.ArgumentParser) -> None:
    """Add the option that `colored` reads."""
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def colored(options: argparse.Namespace) -> bool:
    """Whether to print in colour: on a terminal, unless NO_COLOR is set."""
    if options.color == "auto":
        return sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return bool(options.color == "always")


def add_settings(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add an option for each setting, named as the field; `defaults` replaces the fields' own.
    Without the options of drafter and gamma, `settings_from` takes the pair's."""
    for field in fields(Settings):
        flag = "--" + field.name.replace("_", "-")
        default = defaults.get(field.name, field.default)
        if field.name == "stop":
            parser.add_argument(flag, action="append", type=unescaped, default=[], help=_STOP)
        elif field.name == "ignore_eos":
            parser.add_argument(flag, action="store_true", help="decode past the end of text")
        elif field.name == "drafter":
            parser.add_argument(
                flag,
                choices=drafter_names(),
                default=defaults.get("drafter"),
                help="default: the draft model, or the drafter that the pair has instead",
            )
        elif field.name == "gamma":
            parser.add_argument(
                flag,
                type=int,
                default=defaults.get("gamma"),
                help=f"default: the pair's gamma, which is {field.default} for most pairs",
            )
        elif field.name == "gamma_policy":
            parser.add_argument(
                flag,
                choices=GAMMA_POLICIES,
                default=defaults.get("gamma_policy"),
                help="default: the policy of the pair's own gamma, or fixed",
            )
        elif field.name in CHOICES:
            choices = CHOICES[field.name]()
            parser.add_argument(flag, choices=choices, default=default, help="default %(default)s")
        else:
            kind = float if isinstance(field.default, float) else int
            parser.add_argument(flag, type=kind, default=default, help="default %(default)s")


def settings_from(options: argparse.Namespace, pair: Pair | WatchedPair | None = None) -> Settings:
    """Read the settings that `add_settings` parsed. If drafter or gamma was not given, the pair's
    is taken, or that of `Settings` without a pair. Raises `SettingsError`."""
    values = {}
    for field in fields(Settings):
        value = getattr(options, field.name)
        if value is not None:
            values[field.name] = value
    if pair is None:
        return Settings(**values)
    return pair.settings(**values)


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

"""The options of the command line for settings."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..core.registry import drafter_names
from ..core.settings import CHOICES, GAMMA_POLICIES, Settings

if TYPE_CHECKING:
    from ..core.pair import Pair
    from ..core.protocols import WatchedPair

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_ESCAPE = re.compile(r"\\([ntr\\])")
_STOP = r"end at this text (repeatable); \n is the end of a line, \t a tab, \\ a backslash"


def unescaped(text: str) -> str:
    """Read the escapes in a text of the command line: \\n, \\t, \\r and \\\\ are what they are in
    Python. Any other backslash stays as it is."""
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group(1)], text)


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

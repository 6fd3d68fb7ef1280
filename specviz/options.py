"""Settings as command-line options."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from .settings import CHOICES, Settings


def add_settings(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """An option for each setting, named as the field; `defaults` replaces the fields' own."""
    for field in fields(Settings):
        flag, default = "--" + field.name.replace("_", "-"), defaults.get(field.name, field.default)
        if field.name == "stop":
            parser.add_argument(flag, action="append", default=[], help="end at this text")
        elif field.name == "ignore_eos":
            parser.add_argument(flag, action="store_true", help="decode past the end of text")
        elif field.name in CHOICES:
            choices = CHOICES[field.name]
            parser.add_argument(flag, choices=choices, default=default, help="default %(default)s")
        else:
            kind = float if isinstance(field.default, float) else int
            parser.add_argument(flag, type=kind, default=default, help="default %(default)s")


def settings_from(options: argparse.Namespace) -> Settings:
    """The settings that `add_settings` parsed. Raises `SettingsError`."""
    return Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})

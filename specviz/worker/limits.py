"""How much one visitor may use of a page that others share; the operator can change it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..errors import SettingsError


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit can be set by an environment variable, see `VARIABLES`.

    seconds: the longest run, counted from the moment its pair is in memory. waiting: the most runs
    and experiments in the queue, besides the current one. stop_seconds: how long the models'
    process may ignore a stop before it is replaced. silent_seconds: how long it may give no
    result before it is replaced.
    """

    seconds: float = 120.0
    waiting: int = 16
    stop_seconds: float = 5.0
    silent_seconds: float = 300.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The limits, with defaults where no variable is set. Raises `SettingsError`."""
        values = {
            field.name: _number(environment[VARIABLES[field.name]], VARIABLES[field.name])
            for field in fields(cls)
            if environment.get(VARIABLES[field.name])
        }
        if "waiting" in values:
            values["waiting"] = int(values["waiting"])
        return cls(**values)  # type: ignore[arg-type]


VARIABLES = {
    "seconds": "SPECVIZ_MOST_SECONDS",
    "waiting": "SPECVIZ_MOST_WAITING",
    "stop_seconds": "SPECVIZ_STOP_SECONDS",
    "silent_seconds": "SPECVIZ_SILENT_SECONDS",
}
LEAST = {"SPECVIZ_MOST_WAITING": 0.0}  # for all others: 0.1 seconds


def _number(text: str, variable: str) -> float:
    least = LEAST.get(variable, 0.1)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        raise SettingsError(f"{variable} is {text!r}: use a number from {least:g} on.")
    return value

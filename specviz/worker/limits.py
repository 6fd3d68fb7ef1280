"""What one visitor may ask of a page that others use too; the operator may set it otherwise."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..errors import SettingsError


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and places, each with the variable of the environment that sets it.

    seconds: of a run, from the moment its pair is in memory. waiting: runs and experiments in
    the line behind the one under way. stop_seconds: after a stop that the models' process does
    not answer, until the process is replaced. silent_seconds: without any result, until it is.
    """

    seconds: float = 120.0
    waiting: int = 16
    stop_seconds: float = 5.0
    silent_seconds: float = 300.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """What the variables say, and otherwise the defaults. Raises `SettingsError`."""
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
LEAST = {"SPECVIZ_MOST_WAITING": 0.0}  # all others: a tenth of a second


def _number(text: str, variable: str) -> float:
    least = LEAST.get(variable, 0.1)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        raise SettingsError(f"{variable} is {text!r}: use a number from {least:g} on.")
    return value

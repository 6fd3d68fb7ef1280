"""What one visitor may ask of a page that others use too; the operator may set it otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..environment import MOST_SECONDS, MOST_WAITING, SILENT_SECONDS, STOP_SECONDS


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and places, each of which a variable of the environment sets.

    seconds: of a run, from the moment its pair is in memory. waiting: runs and experiments in
    the line behind the one under way. stop_seconds: after a stop that the models' process does
    not answer, until the process is replaced. silent_seconds: without any result, until it is.
    """

    seconds: float = MOST_SECONDS.default
    waiting: int = MOST_WAITING.default
    stop_seconds: float = STOP_SECONDS.default
    silent_seconds: float = SILENT_SECONDS.default

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """What the variables say, and otherwise the defaults. Raises `SettingsError`."""
        return cls(
            seconds=MOST_SECONDS.read(environment),
            waiting=MOST_WAITING.read(environment),
            stop_seconds=STOP_SECONDS.read(environment),
            silent_seconds=SILENT_SECONDS.read(environment),
        )

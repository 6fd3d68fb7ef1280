"""How much one visitor may use of a page that others share; the operator can change it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..environment import MOST_PER_CLIENT, MOST_SECONDS, MOST_WAITING, SILENT_SECONDS, STOP_SECONDS


@dataclass(frozen=True, slots=True)
class Limits:
    """An environment variable sets each of the limits.

    seconds: the longest run, counted from the moment its pair is in memory. waiting: the most runs
    and experiments in the queue, besides the current one. per_client: the most of them that come
    from one address. stop_seconds: how long the models' process may ignore a stop before it is
    replaced. silent_seconds: how long it may give no result before it is replaced.
    """

    seconds: float = MOST_SECONDS.default
    waiting: int = MOST_WAITING.default
    per_client: int = MOST_PER_CLIENT.default
    stop_seconds: float = STOP_SECONDS.default
    silent_seconds: float = SILENT_SECONDS.default

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The limits, with defaults where no variable is set. Raises `SettingsError`."""
        return cls(
            seconds=MOST_SECONDS.read(environment),
            waiting=MOST_WAITING.read(environment),
            per_client=MOST_PER_CLIENT.read(environment),
            stop_seconds=STOP_SECONDS.read(environment),
            silent_seconds=SILENT_SECONDS.read(environment),
        )

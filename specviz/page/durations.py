"""Durations of past work: in memory by kind of task, on the disk by pair, and in words."""

from __future__ import annotations

import json
import logging
from typing import TypeAlias

from ..files.model_files import cache_folder

log = logging.getLogger(__name__)

MAX_KINDS = 100
MAX_STORED = 50  # pairs
MIN_STORED = 3.0  # seconds; a shorter wait needs no estimate
LOADS = "loads.json"
STARTUPS = "startups.json"
"""Files in the cache folder: for the next start, seconds by pair of a load, and of the startup of a
process's first run."""

Kind: TypeAlias = tuple[type, str]
"""The type of a task and its pair: its duration depends on both."""


class Durations:
    """The pace of the last work of each kind. length: the amount of work, in a unit of its kind."""

    def __init__(self) -> None:
        self._paces: dict[Kind, float] = {}  # seconds per unit of length

    def add(self, kind: Kind, length: int, seconds: float) -> None:
        """Note work that has ended by itself."""
        self._paces.pop(kind, None)
        self._paces[kind] = seconds / max(1, length)
        if len(self._paces) > MAX_KINDS:
            del self._paces[next(iter(self._paces))]

    def expected(self, kind: Kind, length: int) -> float | None:
        """Estimate the seconds of work; None if there was none of its kind yet."""
        pace = self._paces.get(kind)
        if pace is None:
            return None
        return pace * length


def stored_seconds(name: str, pair: str) -> float | None:
    """The seconds of a pair in one of the cache files; None if they are unknown."""
    return _stored(name).get(pair)


def store_seconds(name: str, pair: str, seconds: float) -> None:
    """Store the seconds of a pair for the next start, unless they are few."""
    if seconds < MIN_STORED:
        return
    durations = _stored(name)
    durations.pop(pair, None)
    durations[pair] = round(seconds, 1)
    newest_items = list(durations.items())[-MAX_STORED:]
    newest = dict(newest_items)
    file = cache_folder() / name
    written = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(newest), "utf-8")
        written.replace(file)
    except OSError as error:
        log.info("a duration could not be stored: %s", error)


def _stored(name: str) -> dict[str, float]:
    file = cache_folder() / name
    try:
        durations = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(durations, dict):
        return {}
    stored = {}
    for pair, seconds in durations.items():
        if isinstance(seconds, int | float):
            stored[pair] = float(seconds)
    return stored


def about(seconds: float | None) -> str:
    """A duration in words, to follow the name of a task."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {max(1, round(seconds))} s"
    return f", about {seconds / 60:.0f} min"

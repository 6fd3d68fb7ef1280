"""The pair that a page was started with, while the models load it: what, how much, how far.

How long it took is remembered in the cache folder, so that the next start can say so beforehand.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from ..base.environment import BUILTIN
from ..files.memory import shown_bytes
from ..files.model_files import cache_folder
from ..worker.loading import LOADING
from .names import ShownPair, shown_pair
from .probes import about

log = logging.getLogger(__name__)

MOST_REMEMBERED = 50  # pairs
FIRST_READINGS = "readings.json"
LOADS = "loads.json"
LEAST = 3.0  # seconds; a load that was over sooner is not worth an estimate


class Load:
    """One load of a pair. status: what the models' process said last of it. over: whether it has
    ended. error: why it failed, None if it did not."""

    def __init__(self, pair: str) -> None:
        self.pair = pair
        self.status = ""
        self.over = False
        self.error: str | None = None
        self._begun = time.monotonic()
        self._usual = _remembered(LOADS).get(pair)

    @property
    def sentence(self) -> str:
        """What is loaded, how much, for how long, and how far it is."""
        return self._told(self._time())

    @property
    def phase(self) -> str:
        """The same without times."""
        return self._told("")

    def _told(self, time: str) -> str:
        shown = shown_pair(self.pair)
        # These say no more than this, the second perhaps with the names of two files.
        is_idle = self.status in (LOADING, f"Reading what {self.pair} needs.")
        status = "" if is_idle else self.status
        return f"Loading {_models(self.pair)}{_size(shown)}{time}. {status}".strip()

    @property
    def is_ready(self) -> bool:
        """Whether the pair is in memory."""
        return self.over and self.error is None

    def state(self) -> dict[str, Any]:
        """The load as the browser is told of it."""
        return {
            "over": self.over,
            "error": self.error,
            "title": shown_pair(self.pair).title,
            "said": "" if self.over else self.sentence,
        }

    def succeed(self) -> None:
        """End it: the pair is in memory."""
        seconds = time.monotonic() - self._begun
        self.over = True
        if seconds >= LEAST:
            _remember(LOADS, self.pair, seconds)

    def fail(self, error: str) -> None:
        """End it without a pair."""
        self.error = error
        self.over = True

    @property
    def seconds_left(self) -> float | None:
        """About how long it will go on; None if nobody knows, or if it takes longer than usual."""
        passed = time.monotonic() - self._begun
        if self._usual is None or self._usual <= passed:
            return None
        return self._usual - passed

    def _time(self) -> str:
        left = self.seconds_left
        return f", {time.monotonic() - self._begun:.0f} s so far" if left is None else about(left)


def first_reading(pair: str) -> float | None:
    """Seconds that the first run of a process with this pair took to warm up and to read its
    prompt, the last time; None if that is not known."""
    return _remembered(FIRST_READINGS).get(pair)


def remember_first_reading(pair: str, seconds: float) -> None:
    """Remember that for the next process."""
    _remember(FIRST_READINGS, pair, seconds)


def _models(pair: str) -> str:
    if pair == BUILTIN:
        return "the built-in pair"
    shown = shown_pair(pair)
    return shown.target if shown.draft is None else f"{shown.target} and its draft"


def _size(shown: ShownPair) -> str:
    return "" if shown.bytes is None else f" ({shown_bytes(shown.bytes)})"


def _remembered(name: str) -> dict[str, float]:
    """Seconds by the names of pairs, as the file of this name in the cache has them."""
    try:
        durations = json.loads((cache_folder() / name).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(durations, dict):
        return {}
    return {
        pair: float(seconds)
        for pair, seconds in durations.items()
        if isinstance(seconds, int | float)
    }


def _remember(name: str, pair: str, seconds: float) -> None:
    durations = _remembered(name)
    durations.pop(pair, None)
    durations[pair] = round(seconds, 1)
    newest = dict(list(durations.items())[-MOST_REMEMBERED:])
    file = cache_folder() / name
    written = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(newest), "utf-8")
        written.replace(file)
    except OSError as error:
        log.info("how long something took cannot be remembered: %s", error)

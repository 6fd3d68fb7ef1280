"""The load of the pair that a page was started with: its models, size and progress. Its duration is
stored in the cache folder, so that the next start can estimate it.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from ..base.environment import BUILTIN
from ..files.memory import shown_bytes
from ..files.model_files import cache_folder
from ..worker.loading import Status
from .names import shown_pair
from .probes import about

log = logging.getLogger(__name__)

MAX_REMEMBERED = 50  # pairs
FIRST_READINGS = "readings.json"
LOADS = "loads.json"
MIN_SECONDS = 3.0  # a shorter load needs no estimate


class LoadProgress:
    """The progress of one load of a pair. status: the last status from the models' process. over:
    whether it has ended. error: the reason of a failure, else None."""

    def __init__(self, pair: str) -> None:
        self.pair = pair
        self.status = ""
        self.over = False
        self.error: str | None = None
        self._begun = time.monotonic()
        self._usual = _remembered(LOADS).get(pair)

    @property
    def sentence(self) -> str:
        """The load in a sentence: models, size, time and progress."""
        return self._sentence_with(self._time())

    @property
    def phase(self) -> str:
        """The load's phase in a sentence without times."""
        return self._sentence_with("")

    def _sentence_with(self, time: str) -> str:
        status = self.status
        # These statuses add nothing, except perhaps the names of two files.
        if status in (Status.LOADING, f"Reading what {self.pair} needs."):
            status = ""
        return f"Loading {_models(self.pair)}{_size(self.pair)}{time}. {status}".strip()

    @property
    def is_ready(self) -> bool:
        """Whether the pair is in memory."""
        return self.over and self.error is None

    def state(self) -> dict[str, Any]:
        """The load's state for the browser."""
        sentence = ""
        if not self.over:
            sentence = self.sentence
        return {
            "over": self.over,
            "error": self.error,
            "title": shown_pair(self.pair).title,
            "said": sentence,
        }

    def succeed(self) -> None:
        """End it: the pair is in memory."""
        seconds = time.monotonic() - self._begun
        self.over = True
        if seconds >= MIN_SECONDS:
            _remember(LOADS, self.pair, seconds)

    def fail(self, error: str) -> None:
        """End it without a pair."""
        self.error = error
        self.over = True

    @property
    def seconds_left(self) -> float | None:
        """Estimate the remaining seconds; None if they are unknown, or if the load takes longer
        than usual."""
        passed = time.monotonic() - self._begun
        if self._usual is None or self._usual <= passed:
            return None
        return self._usual - passed

    def _time(self) -> str:
        """The remaining time if it is known, else the time so far, to follow the models."""
        left = self.seconds_left
        if left is not None:
            return about(left)
        passed = time.monotonic() - self._begun
        return f", {passed:.0f} s so far"


def first_reading(pair: str) -> float | None:
    """Seconds that a process's first run with this pair last took for warm-up and prefill; None if
    unknown."""
    return _remembered(FIRST_READINGS).get(pair)


def remember_first_reading(pair: str, seconds: float) -> None:
    """Store these seconds for the next process."""
    _remember(FIRST_READINGS, pair, seconds)


def _models(pair: str) -> str:
    if pair == BUILTIN:
        return "the built-in pair"
    shown = shown_pair(pair)
    if shown.draft is None:
        return shown.target
    return f"{shown.target} and its draft"


def _size(pair: str) -> str:
    size = shown_pair(pair).bytes
    if size is None:
        return ""
    return f" ({shown_bytes(size)})"


def _remembered(name: str) -> dict[str, float]:
    """Read seconds by pair from the cache file of this name."""
    file = cache_folder() / name
    try:
        durations = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(durations, dict):
        return {}
    remembered = {}
    for pair, seconds in durations.items():
        if isinstance(seconds, int | float):
            remembered[pair] = float(seconds)
    return remembered


def _remember(name: str, pair: str, seconds: float) -> None:
    durations = _remembered(name)
    durations.pop(pair, None)
    durations[pair] = round(seconds, 1)
    newest_items = list(durations.items())[-MAX_REMEMBERED:]
    newest = dict(newest_items)
    file = cache_folder() / name
    written = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(newest), "utf-8")
        written.replace(file)
    except OSError as error:
        log.info("a duration could not be stored: %s", error)

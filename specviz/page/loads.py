"""The load of the pair that the page opens with: its models, size, progress and remaining time."""

from __future__ import annotations

import time
from typing import Any

from ..base.environment import BUILTIN
from ..files.memory import shown_bytes
from ..worker.loading import Status
from .durations import LOADS, about, store_seconds, stored_seconds
from .names import shown_pair


class LoadProgress:
    """The progress of one load of a pair. status: the last status from the models' process. over:
    whether it has ended. error: the reason of a failure, else None."""

    def __init__(self, pair: str) -> None:
        self.pair = pair
        self.status = ""
        self.over = False
        self.error: str | None = None
        self._begun = time.monotonic()
        self._usual = stored_seconds(LOADS, pair)

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
        store_seconds(LOADS, self.pair, seconds)

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

"""Progress of downloads and of loading, reported to a function instead of drawn by tqdm."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, TextIO

from tqdm.std import tqdm

from ..base.errors import PairError
from .memory import shown_bytes

CLEARED_LINE = "\r\x1b[K"


@dataclass(frozen=True)
class Progress:
    """One step of a long task."""

    sentence: str  # the current activity
    fraction: float | None = None  # the finished share, 0 to 1; None if unknown
    seconds_left: float | None = None  # the estimated time until the end; None if unknown

    @property
    def left(self) -> str:
        """The remaining time as the end of a sentence; empty if unknown."""
        if self.seconds_left is None:
            return ""
        return f", {shown_time(self.seconds_left)} left"


Watcher = Callable[[Progress], None]
"""A function that is called with each new `Progress`."""


class Reporter:
    """Reports the progress of a step, and the remaining time at the speed so far.

    sentence: names the step. total: its size, in any unit. first: the amount before it began.
    """

    def __init__(self, sentence: str, total: int, first: int, on_progress: Watcher | None) -> None:
        self._sentence = sentence
        self._total = total
        self._first = first
        self._on_progress = on_progress
        self._began = time.monotonic()
        self._percent = -1

    def reached(self, count: int) -> None:
        """Report the count if it is at another percent of the total."""
        percent = 100 * count // self._total
        if self._on_progress is None or percent == self._percent:
            return
        self._percent = percent
        seconds = time.monotonic() - self._began
        new = count - self._first
        seconds_left = None
        if new > 0:
            seconds_left = seconds / new * (self._total - count)
        self._on_progress(Progress(self._sentence, count / self._total, seconds_left))


class FetchStopped(PairError):
    """Somebody stopped a fetch. The bytes fetched so far stay."""


def check_stop(stop: Event) -> None:
    """Raise `FetchStopped` if somebody stopped the fetch."""
    if stop.is_set():
        raise FetchStopped(
            "the download was stopped: start it again to continue from where it stopped."
        )


def shown_time(seconds: float) -> str:
    """An estimated time as text: "about 40 s", "about 3 min"."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min"


def terminal_watcher(stream: TextIO | None = None) -> Watcher:
    """A watcher that draws one bar on a terminal, or prints a line for each step to a file.

    stream: where to write; stderr if None.
    """
    output = stream or sys.stderr
    is_terminal = output.isatty()
    last: tuple[str, int] | None = None

    def show(progress: Progress) -> None:
        nonlocal last
        percent = int(100 * (progress.fraction or 0.0)) if is_terminal else 0
        if (progress.sentence, percent) == last:
            return
        last = (progress.sentence, percent)
        if is_terminal:
            output.write(_bar(progress, percent))
        else:
            output.write(f"{progress.sentence}\n")
        output.flush()

    return show


def _bar(progress: Progress, percent: int) -> str:
    """A bar that replaces the last one; at the end it disappears."""
    bar = f"{'█' * (percent // 5):░<20} {percent:3d} %"
    line = f"{CLEARED_LINE}{bar} {progress.sentence}{progress.left}"
    if progress.fraction == 1.0:
        line += CLEARED_LINE
    return line


@contextmanager
def watched(on_progress: Watcher | None, model: str) -> Iterator[dict[str, Any]]:
    """Report the progress of loading `model` with transformers to `on_progress` inside the block.

    Yields the options that `from_pretrained` needs for that. Only one model may be loaded at a
    time, because the hook that counts weights belongs to the whole process.
    """
    if on_progress is None:
        yield {}
        return
    from transformers.utils import logging as transformers_logging

    report = on_progress  # its type excludes None

    class Bar(tqdm):
        """A bar that reports where tqdm would draw."""

        activity = "loading"

        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)  # an option of the hub's client that tqdm does not have
            options["mininterval"] = 0
            options["miniters"] = 1
            options["file"] = io.StringIO()
            options["disable"] = False
            super().__init__(*args, **options)

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            sentence = f"{self.activity} {model}"
            fraction = None
            if self.total:
                fraction = min(1.0, self.n / self.total)
                if self.unit == "B":
                    sentence += f" ({shown_bytes(self.total)})"
            report(Progress(sentence, fraction))
            return drawn

    class Download(Bar):
        activity = "downloading"

    previous = transformers_logging.set_tqdm_hook(lambda _, args, options: Bar(*args, **options))
    try:
        yield {"tqdm_class": Download}
    finally:
        transformers_logging.set_tqdm_hook(previous)

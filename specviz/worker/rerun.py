"""The task behind "Run it again": a recorded run, raced once more and compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..runs.trace import Trace
from .loading import Models
from .tasks import READING, Stop


class Again(NamedTuple):
    """What a second run of a recording said. lines: the answer, then where they differ."""

    same: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RerunTask:
    """Run a recording once more. The results are sentences, and at last an `Again`.

    recorded: without lists of likeliest tokens, which are then not compared.
    """

    pair: str
    recorded: Trace

    def run(self, models: Models, stop: Stop) -> Iterator[str | Again]:
        from ..runs.rerun import compared, rerun_events, rerun_lines  # imports torch

        pair = yield from models.pair(self.pair)
        yield READING
        events = []
        for event in rerun_events(self.recorded.header, pair):
            events.append(event)
            if stop.is_set():
                return
        found = compared(self.recorded, Trace.from_events(events), lists=False)
        yield Again(found.same, tuple(rerun_lines(found)))

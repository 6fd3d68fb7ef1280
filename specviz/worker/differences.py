"""The tasks behind "A tie or a bug?", which scores the place where two greedy lanes part again, and
"Run it again"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..inspect.parting import Difference, Parting
from ..runs.trace import Trace
from .loading import Models
from .tasks import READING, Stop


@dataclass(frozen=True, slots=True)
class DifferenceTask:
    """Say whether a difference is a tie. The results are sentences, and at last a `Difference`."""

    pair: str
    parting: Parting

    def run(self, models: Models, stop: Stop) -> Iterator[str | Difference]:
        from ..inspect.difference import examined  # imports torch

        pair = yield from models.pair(self.pair)
        steps = examined(pair, self.parting)
        while not stop.is_set():
            try:
                yield next(steps)
            except StopIteration as found:
                yield found.value
                return


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

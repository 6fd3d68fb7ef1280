"""A sweep whose pieces only wait: what the queue and the page do with one, without models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from specviz.measure.sweep.types import (
    Configuration,
    Plan,
    Predicted,
    Row,
    SweepEvent,
    SweepProgress,
    SweepRequest,
    SweepResult,
)

PIECE = 0.03  # seconds
FOUND = Predicted(2.0, 0.5, (0.5,), 0.5, 3.0, True, 1.5)


class ScriptedSweep:
    """A row for each gamma; each piece predicts one of them."""

    def __init__(self, request: SweepRequest) -> None:
        self.request = request
        rows = (Configuration("ngram", gamma, "fixed", 0.0) for gamma in request.gammas)
        self.rows = [Row(one) for one in rows]
        self.planned, self.done = False, 0

    @property
    def is_done(self) -> bool:
        return self.done == len(self.rows)

    def advance(self, pair: Any, stop: Callable[[], bool]) -> Iterator[SweepEvent]:
        if not self.planned:
            self.planned = True
            yield Plan(tuple(self.rows), {"prose": 1}, len(self.rows), 1.0)
            return
        time.sleep(PIECE)
        if stop():
            return
        row = replace(self.rows[self.done], status="predicted", predicted=FOUND)
        self.rows[self.done] = row
        self.done += 1
        yield SweepProgress(self.done, len(self.rows), 1.0, "measuring")

    def result(self) -> SweepResult:
        return SweepResult(
            request=self.request,
            rows=tuple(self.rows),
            recommendations=(),
            machine=None,
            stopped=not self.is_done,
            spent=self.done * PIECE,
            link="",
        )

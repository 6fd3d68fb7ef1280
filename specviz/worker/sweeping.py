"""A sweep as a task that does a few pieces at a time, so that others can use the models between."""

from __future__ import annotations

import pickle  # nosec B403
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..measure.sweep.types import SweepRequest, SweepResult
from .loading import Models
from .tasks import READING, Stop

TURN = 2.0  # seconds after which a sweep lets others use the models; its piece is done first


class Rest(NamedTuple):
    """A sweep between two pieces. state: all of it, for the next task; only the models' process can
    read it. done: whether no piece is left. result: what it has found so far."""

    state: bytes
    done: bool
    result: SweepResult


@dataclass(frozen=True, slots=True)
class SweepTask:
    """Do pieces of a sweep for about `seconds`. The results are the sweep's events, and a `Rest`
    after each piece.

    state: of the sweep that goes on; empty if it begins.
    """

    pair: str
    request: SweepRequest
    state: bytes = b""
    seconds: float = TURN

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        from ..measure.sweep.sweep import Sweep  # imports torch

        pair = yield from models.pair(self.pair)
        if not self.state:
            yield READING
        # Only this process writes such states; visitors cannot send them.
        sweep = pickle.loads(self.state) if self.state else Sweep(self.request)  # nosec B301
        end = time.monotonic() + self.seconds
        while not (sweep.is_done or stop.is_set()):
            yield from sweep.advance(pair, stop.is_set)
            if stop.is_set():
                return
            yield Rest(pickle.dumps(sweep), sweep.is_done, sweep.result())
            if time.monotonic() >= end:
                return

"""How long the jobs of the page take, and the addresses for those who operate it.

/healthz answers 200 while the server answers at all. /readyz answers 200 from when the models have
loaded the pair until the server is about to end, and 503 otherwise.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

if TYPE_CHECKING:
    from .jobs import Job
    from .queue import RunQueue

REMEMBERED = 9  # past jobs of a kind


class Durations:
    """The lengths and the durations of past jobs, by kind."""

    def __init__(self) -> None:
        self._past: dict[type, deque[tuple[int, float]]] = {}

    def add(self, job: Job, seconds: float) -> None:
        """Remember a job that has ended."""
        self._past.setdefault(type(job.task), deque(maxlen=REMEMBERED)).append(
            (job.length, seconds)
        )

    def expected(self, job: Job) -> float | None:
        """Seconds that a job of this length takes; None if there was none of its kind yet.

        A line through the past jobs, by least squares. If all had one length, or longer ones were
        no slower, it is the median; a job of another length then takes its proportion.
        """
        past = self._past.get(type(job.task))
        if not past:
            return None
        lengths = [length for length, _ in past]
        seconds = [duration for _, duration in past]
        median = statistics.median(seconds)
        if len(set(lengths)) == 1:
            return median * job.length / lengths[0]
        line = statistics.linear_regression(lengths, seconds)
        if line.slope <= 0:
            return median
        return max(min(seconds), line.slope * job.length + line.intercept)


def about(seconds: float | None) -> str:
    """A duration in words, to be put behind what takes so long."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {max(1, round(seconds))} s"
    return f", about {seconds / 60:.0f} min"


HEALTH, READY = "/healthz", "/readyz"
NOT_LOADED = "The models have not loaded their pair yet, or could not: see the log."


def probed(scope: Scope, runs: RunQueue | None) -> Response | None:
    """The answer to a request of operators; None for any other request. runs: the queue of the
    page, if it has one yet."""
    path = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
    if path == HEALTH:
        return _told(200, "alive")
    if path == READY and runs is not None:
        if runs.closing:
            return _told(503, "The server is being restarted.")
        return _told(200, "ready") if runs.answered else _told(503, NOT_LOADED)
    return None


def _told(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)

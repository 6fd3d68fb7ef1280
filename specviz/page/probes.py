"""Durations of the page's jobs, and the addresses for those who operate it.

/healthz answers 200 while the server answers at all. /readyz answers 200 from when the models have
loaded the pair until the server is about to end, and 503 otherwise.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from ..worker.tasks import Task

if TYPE_CHECKING:
    from .jobs import Job
    from .queue import RunQueue

MAX_KINDS = 100
Kind: TypeAlias = tuple[type, str]
MIN_SHARE = 0.05  # of a job; less than that says little about how long the rest takes


class Measured(Protocol):
    """A job whose duration is expected. length: how much it is, in a unit of its kind."""

    @property
    def task(self) -> Task: ...

    @property
    def length(self) -> int: ...


class Durations:
    """How fast the last job of each kind went, with each pair."""

    def __init__(self) -> None:
        self._paces: dict[Kind, float] = {}  # seconds per unit of length

    def add(self, job: Measured, seconds: float) -> None:
        """Note a job that has ended by itself."""
        kind = kind_of(job)
        self._paces.pop(kind, None)
        self._paces[kind] = seconds / max(1, job.length)
        if len(self._paces) > MAX_KINDS:
            del self._paces[next(iter(self._paces))]

    def expected(self, job: Measured) -> float | None:
        """Seconds that a job takes at the pace of the last one; None if there was none of its kind
        with its pair yet."""
        pace = self._paces.get(kind_of(job))
        return None if pace is None else pace * job.length


def kind_of(job: Measured) -> Kind:
    """The kind of a task and its pair: how long it takes depends on both."""
    return type(job.task), job.task.pair


def expected_whole(job: Job) -> float | None:
    """Seconds that all of a job that is under way takes, by what it has done since it began; None
    if it does not tell enough."""
    share = job.share
    if job.begun is None or share is None or share < MIN_SHARE:
        return None
    return (time.monotonic() - job.begun) / share


def about(seconds: float | None) -> str:
    """A duration in words, to be put behind what takes so long."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {max(1, round(seconds))} s"
    return f", about {seconds / 60:.0f} min"


HEALTH = "/healthz"
READY = "/readyz"
NOT_LOADED = "The models have not loaded their pair yet, or could not: see the log."


def probed(scope: Scope, runs: RunQueue | None) -> Response | None:
    """The answer to a request of operators; None for any other request. runs: the queue of the
    page, if it has one yet."""
    path = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
    if path == HEALTH:
        return _plain_response(200, "alive")
    if path == READY and runs is not None:
        if runs.closing:
            return _plain_response(503, "The server is being restarted.")
        return _plain_response(200, "ready") if runs.answered else _plain_response(503, NOT_LOADED)
    return None


def _plain_response(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)

"""Durations of the page's jobs, and the health probes for its operator.

/healthz answers 200 while the server runs. /readyz answers 200 once the pair is loaded, until the
server is about to end, and 503 otherwise.
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
MIN_SHARE = 0.05  # of a job; a shorter time predicts little about the rest


class Measured(Protocol):
    """A job whose duration is estimated. length: the amount of work, in a unit of its kind."""

    @property
    def task(self) -> Task: ...

    @property
    def length(self) -> int: ...


class Durations:
    """The speed of the last job of each kind with each pair."""

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
        """Estimate a job's seconds from the pace of the last job of its kind with its pair; None if
        there was none yet."""
        pace = self._paces.get(kind_of(job))
        if pace is None:
            return None
        return pace * job.length


def kind_of(job: Measured) -> Kind:
    """The kind of a task and its pair: its duration depends on both."""
    return type(job.task), job.task.pair


def expected_whole(job: Job) -> float | None:
    """Estimate the total seconds of a running job from its progress so far; None if that is too
    little."""
    share = job.share
    if job.begun is None or share is None or share < MIN_SHARE:
        return None
    return (time.monotonic() - job.begun) / share


def about(seconds: float | None) -> str:
    """A duration in words, to follow the name of a task."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {max(1, round(seconds))} s"
    return f", about {seconds / 60:.0f} min"


HEALTH = "/healthz"
READY = "/readyz"
NOT_LOADED = "The pair is not loaded yet, or could not be loaded: see the log."


def probed(scope: Scope, runs: RunQueue | None) -> Response | None:
    """The answer to a health probe; None for any other request. runs: the page's queue, if it has
    one yet."""
    if scope["method"] not in ("GET", "HEAD"):
        return None
    path = scope["path"]
    if path == HEALTH:
        return _plain_response(200, "alive")
    if path != READY or runs is None:
        return None
    if runs.closing:
        return _plain_response(503, "The server is being restarted.")
    if not runs.answered:
        return _plain_response(503, NOT_LOADED)
    return _plain_response(200, "ready")


def _plain_response(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)

"""Stop a race before its first event, while lanes warm up or read the prompt.

Between rounds, the reader of a race's events ends the race by closing it. Before its first event
nobody can, and the passes until then may take many seconds on a processor. A server of races gives
`stoppable` a function that says whether a stop was requested; the engine calls it before each such
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_stop_requested: ContextVar[Callable[[], bool]] = ContextVar(
    "stop_requested", default=lambda: False
)


class Stopped(Exception):
    """The work ends because a stop was requested. It is not an error."""


@contextmanager
def stoppable(stop_requested: Callable[[], bool]) -> Iterator[None]:
    """Context manager: `check_stop` raises `Stopped` once `stop_requested` returns True."""
    before = _stop_requested.get()
    _stop_requested.set(stop_requested)
    try:
        yield
    finally:
        # No token is used: a generator that holds this may be closed in another context.
        _stop_requested.set(before)


def check_stop() -> None:
    """Raise `Stopped` if a stop was requested."""
    if _stop_requested.get()():
        raise Stopped

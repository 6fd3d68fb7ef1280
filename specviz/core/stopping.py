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

_asked: ContextVar[Callable[[], bool]] = ContextVar("asked", default=lambda: False)


class Stopped(Exception):
    """The work ends because a stop was requested. It is not an error."""


@contextmanager
def stoppable(asked: Callable[[], bool]) -> Iterator[None]:
    """Context manager: `check_stop` raises `Stopped` once `asked()` is true."""
    before = _asked.get()
    _asked.set(asked)
    try:
        yield
    finally:
        # No token is used: a generator that holds this may be closed in another context.
        _asked.set(before)


def check_stop() -> None:
    """Raise `Stopped` if a stop was requested."""
    if _asked.get()():
        raise Stopped

"""A stop that is asked for while nothing is told yet: lanes warm up, or read the prompt.

Between rounds, whoever reads the events of a race ends it by closing it. Before its first event
nobody can, and the passes until then may take many seconds on a processor. Who runs races for
others says with `stoppable` how a stop is asked for; the engine asks before each such pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], bool]] = ContextVar("asked", default=lambda: False)


class Stopped(Exception):
    """The work ends here, because a stop was asked for. It is nobody's mistake."""


@contextmanager
def stoppable(asked: Callable[[], bool]) -> Iterator[None]:
    """Within it, `check_stop` raises `Stopped` once `asked()` is true."""
    before = _asked.get()
    _asked.set(asked)
    try:
        yield
    finally:
        # No token is used: a generator that holds this may be closed in another context.
        _asked.set(before)


def check_stop() -> None:
    """Raise `Stopped` if a stop was asked for."""
    if _asked.get()():
        raise Stopped

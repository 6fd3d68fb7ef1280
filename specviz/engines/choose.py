"""Which engine runs a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..environment import on_zerogpu
from ..remote.target import RemoteTarget
from .base import Engine
from .compiled.support import compiled_engine
from .eager import EagerEngine
from .remote import RemoteEngine
from .static.engine import static_engine
from .static.support import static_wanted

_eager_only: ContextVar[bool] = ContextVar("eager_only", default=False)


@contextmanager
def eager_only() -> Iterator[None]:
    """Within, every model runs as transformers' own modules, for comparisons on equal modules."""
    token = _eager_only.set(True)
    try:
        yield
    finally:
        _eager_only.reset(token)


def make_engine(model: Any, vocab: int) -> Engine:
    """The fastest engine that can run this model exactly, with an empty cache.

    The static engine runs only where SPECVIZ_FORM asks for it.
    """
    if isinstance(model, RemoteTarget):
        return RemoteEngine(model, vocab)
    # A process on ZeroGPU makes only a few runs: too few to prepare another form.
    if on_zerogpu() or _eager_only.get():
        return EagerEngine(model, vocab)
    if static_wanted() and (static := static_engine(model, vocab)) is not None:
        return static
    return compiled_engine(model, vocab) or EagerEngine(model, vocab)

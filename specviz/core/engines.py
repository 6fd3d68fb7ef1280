"""Which engine runs a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..environment import on_zerogpu
from ..errors import PairError
from ..pairs.heads.assistant import Assistant
from ..pairs.heads.eagle import Head
from ..pairs.heads.mtp import MtpHead
from ..remote.target import RemoteTarget
from ..sides.fast_cpu.support import compiled_engine, compiled_head
from ..sides.fast_gpu.engine import static_engine
from ..sides.fast_gpu.support import static_wanted
from ..sides.heads.assistant_engine import AssistantEngine
from ..sides.heads.engine import HeadEngine, StateReader
from ..sides.served.engine import RemoteEngine
from .eager import EagerEngine
from .engine import Engine, StateEngine

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


def make_state_engine(model: Any, vocab: int) -> StateEngine:
    """The fastest engine that can hand out hidden states: not the static one.

    Raises `PairError` for a target on a server.
    """
    if isinstance(model, RemoteTarget):
        raise PairError(
            "a target on a server hands out no hidden states, which a head reads: choose another "
            "drafter."
        )
    if on_zerogpu() or _eager_only.get():
        return EagerEngine(model, vocab)
    return compiled_engine(model, vocab) or EagerEngine(model, vocab)


def make_head_engine(
    head: Head | MtpHead | Assistant, vocab: int, target: StateEngine
) -> StateReader:
    """The fastest engine that can run this head exactly, with an empty cache.

    target: the engine whose states the head reads.
    """
    if isinstance(head, MtpHead):
        from ..sides.heads.mtp_engine import (
            MtpEngine,  # older versions of transformers lack its cache
        )

        return MtpEngine(head, vocab)
    if isinstance(head, Assistant):
        return AssistantEngine(head, vocab, target)
    if on_zerogpu() or _eager_only.get():
        return HeadEngine(head, vocab)
    return compiled_head(head, vocab) or HeadEngine(head, vocab)

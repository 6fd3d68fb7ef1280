"""The record of the engine "compiled"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.records import Arithmetic, EngineKind

if TYPE_CHECKING:
    from ...core.protocols import LanguageModel, StateEngine
    from ...core.states import DraftHead, StateReader


def make_engine(model: Any, vocab: int) -> StateEngine | None:
    """Make an engine with `support.compiled_engine`."""
    from .support import compiled_engine

    return compiled_engine(model, vocab)


def make_head_engine(head: DraftHead, vocab: int, target: StateEngine) -> StateReader | None:
    """Make an engine with `support.compiled_head`."""
    from .support import compiled_head

    return compiled_head(head, vocab, target)


def threads(target: LanguageModel, draft: LanguageModel | None, vocab: int, width: int) -> int:
    """The result of `fastest_threads.fastest_threads`."""
    from .fastest_threads import fastest_threads

    return fastest_threads(target, draft, vocab, width)


COMPILED = EngineKind(
    name="compiled",
    label="compiled passes on a processor",
    make=make_engine,
    make_head=make_head_engine,
    threads=threads,
    package="numba",
    hidden_states=True,
    call_on_cpu=2**15,
    extra_token=0.25,
    arithmetic=Arithmetic(plain=0.2, packed=0.35, integer=0.08),  # on two cores of an AMD EPYC
    warms_once=True,
)

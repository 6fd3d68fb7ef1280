"""The record of the engine "compiled"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.kinds import Arithmetic, EngineKind

if TYPE_CHECKING:
    from ...core.protocols import LanguageModel, StateEngine
    from ...core.states import DraftHead, StateReader


FIVE_BIT = "5bit"
"""What weights in five bits are called (`five_bits`): drafts alone have them, and no file."""

GROUP = 96  # weights
SCALES = 16  # that are read together


def groups_of(width: int) -> int:
    """Groups of three blocks in a row of so many weights in five bits."""
    return -(-width // GROUP)


def scales_of(width: int) -> int:
    """Scales in such a row, with those that fill it up."""
    groups = -(-width // GROUP)
    return -(-3 * groups // SCALES) * SCALES


def row_bytes(width: int) -> int:
    """Bytes of such a row, a multiple of 32 weights."""
    groups = -(-width // GROUP)
    return 64 * groups + 2 * (-(-3 * groups // SCALES) * SCALES)


def make_engine(model: Any, vocab: int) -> StateEngine | None:
    """As `support.compiled_engine`."""
    from .support import compiled_engine

    return compiled_engine(model, vocab)


def make_head_engine(head: DraftHead, vocab: int, target: StateEngine) -> StateReader | None:
    """As `support.compiled_head`."""
    from .support import compiled_head

    return compiled_head(head, vocab, target)


def threads(target: LanguageModel, draft: LanguageModel | None, vocab: int, width: int) -> int:
    """As `fastest_threads.fastest_threads`."""
    from .fastest_threads import fastest_threads

    return fastest_threads(target, draft, vocab, width)


COMPILED = EngineKind(
    name="compiled",
    label="compiled passes on a processor",
    make=make_engine,
    make_head=make_head_engine,
    threads=threads,
    package="numba",
    states=True,
    call_on_cpu=2**15,
    extra_token=0.25,
    arithmetic=Arithmetic(plain=0.2, packed=0.35),  # on two cores of an AMD EPYC
    warms_once=True,
)

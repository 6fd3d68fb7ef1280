"""Which engine runs a model."""

from __future__ import annotations

from typing import Any

from ..environment import on_zerogpu
from .base import Engine
from .eager import EagerEngine
from .packed.forward import PackedEngine
from .packed.support import in_plain_form, packed_model
from .static.engine import static_engine
from .static.support import static_wanted


def make_engine(model: Any, vocab: int) -> Engine:
    """The fastest engine that can run this model exactly, with an empty cache.

    The static engine runs only where SPECVIZ_FORM asks for it.
    """
    # A process on ZeroGPU makes only a few runs: too few to prepare another form.
    if on_zerogpu() or in_plain_form():
        return EagerEngine(model, vocab)
    if static_wanted() and (static := static_engine(model, vocab)) is not None:
        return static
    packed = packed_model(model, vocab)
    return PackedEngine(packed) if packed is not None else EagerEngine(model, vocab)

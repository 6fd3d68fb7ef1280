"""The record of the engine "static"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.environment import FORM
from ...core.kinds import EngineKind

if TYPE_CHECKING:
    from ...core.protocols import Engine


def make_engine(model: Any, vocab: int) -> Engine | None:
    """As `engine.static_engine`, on a GPU: nothing is captured elsewhere, so there it must be asked
    for."""
    if model.device.type != "cuda" and FORM.read() != STATIC.name:
        return None
    from .engine import static_engine

    return static_engine(model, vocab)


STATIC = EngineKind(
    name="static",
    label="CUDA graphs over caches of a fixed length",
    make=make_engine,
    call_elsewhere=2**24,
)

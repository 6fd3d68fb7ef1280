"""Read a prompt once for all lanes of a race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .engine import prefill

if TYPE_CHECKING:
    from .protocols import Engine


class SharedPrompt:
    """Reads a prompt with the first lane's engine; those of other lanes take over its cache, if
    they can.

    They would compute the same numbers, bit for bit, in the same time, which each lane is charged.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._seconds = 0.0

    def read(self, engine: Engine, ids: Sequence[int]) -> float:
        """Feed `ids` (possibly none) into an empty engine; return the seconds that this takes.
        Raises `Stopped`."""
        if self._engine is None or not engine.take_over(self._engine):
            self._seconds = prefill(engine, ids)
            self._engine = engine
        return self._seconds

"""The task behind "A tie or a bug?": the place where two greedy lanes part, scored again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..inspect.parting import Difference, Parting
from .loading import Models
from .tasks import Stop


@dataclass(frozen=True, slots=True)
class DifferenceTask:
    """Say whether a difference is a tie. The results are sentences, and at last a `Difference`."""

    pair: str
    parting: Parting

    def run(self, models: Models, stop: Stop) -> Iterator[str | Difference]:
        from ..inspect.difference import examined  # imports torch

        pair = yield from models.pair(self.pair)
        steps = examined(pair, self.parting)
        while not stop.is_set():
            try:
                yield next(steps)
            except StopIteration as found:
                yield found.value
                return

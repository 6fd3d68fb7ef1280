"""The task behind "A model that you cannot load": what a draft would have guessed of a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..inspect.guesses import Guesses
from .loading import Models
from .tasks import Stop


class Guessed(NamedTuple):
    """At how many places of the text the draft has guessed so far."""

    places: int


@dataclass(frozen=True, slots=True)
class GuessTask:
    """Let the draft of a pair guess every token of a text. The results are sentences, `Guessed`
    after each pass, and at last the `Guesses`. prompt, continues: as for `decoding.guesses`."""

    pair: str
    text: str
    prompt: str
    continues: bool

    def run(self, models: Models, stop: Stop) -> Iterator[str | Guessed | Guesses]:
        from ..decoding.guesses import draft_of, guesses  # imports torch

        pair = yield from models.pair(self.pair)
        steps = guesses(draft_of(pair), self.text, self.prompt, continues=self.continues)
        while not stop.is_set():
            try:
                yield Guessed(next(steps))
            except StopIteration as found:
                yield found.value
                return

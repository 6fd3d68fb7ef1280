"""The two programs of a round: a whole draft run, and a verify pass with its verdict.

Each exists for a few widths; a round takes the least that holds its drafts and leaves the rest
of the width unused. Settings are part of a program. All random draws are made beforehand by the
run's own generator, on the device, in the order of the plain form: a seed means the same text.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .capture import Function, Numbers, Program, capture
from .sampling import Decide, Tape, draw, probabilities, uniforms
from .settings import Settings
from .static import PlacedCache, StaticEngine, window_for

AHEAD = 4096  # tokens for which programs are made before a run begins
FINE = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24)  # widths where a round's own gamma varies
COARSE = (1, 2, 4, 8, 16)  # widths for the last rounds of a run, where the room ends
MARGIN = 2  # places past a round's own that a capture's first runs may write


def widths(settings: Settings, fixed: bool) -> tuple[int, ...]:
    """The numbers of drafts that programs are made for, from 0 to gamma."""
    below = COARSE if fixed else FINE
    return (0, *(w for w in below if w < settings.gamma), *({settings.gamma} - {0}))


def width_for(count: int, known: Sequence[int]) -> int:
    """The least known width that holds `count` drafts."""
    return next((w for w in known if w >= count), count)


class Places(NamedTuple):
    """The shape of a program: how many drafts, and how many places attention reads."""

    width: int
    window: int


def planned(length: int, most: int, known: Sequence[int], fixed: bool) -> Iterator[Places]:
    """The shapes that a run from `length` to `most` tokens will ask for.

    Where gamma is fixed, the narrower ones only come up at its end.
    """
    last = min(most, length + AHEAD)
    window, top = window_for(length + 1), known[-1]
    while True:
        ends = window >= window_for(last)
        yield from (Places(w, window) for w in (known if ends or not fixed else [top]))
        if window >= window_for(last + top):
            return
        window = window_for(window + 1)


class DraftPrograms:
    """All steps of a draft run at once, over the draft's engine."""

    def __init__(self, engine: StaticEngine, settings: Settings, generator: torch.Generator):
        self.engine = engine
        self._settings, self._generator = settings, generator
        self._fixed = settings.gamma_policy == "fixed"
        self._widths = widths(settings, self._fixed)[1:]

    def prepare(self, length: int, most: int) -> None:
        """Make room and programs for a run that goes from `length` to at most `most` tokens."""
        shapes = [p for p in planned(length, most, self._widths, self._fixed) if p.width]
        self.engine.reserve(shapes[-1].window + MARGIN, map(self._key, shapes))
        for shape in shapes:
            self._program(shape)

    def run(self, ids: Sequence[int], count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Drafted ids int64 [count], q and logits fp32 [count, vocab], valid until the next run."""
        engine, length = self.engine, len(ids)
        width = width_for(count, self._widths)
        engine.reserve(length + width + MARGIN)
        if missing := ids[engine.length : max(0, length - 2)]:
            engine.forward(torch.tensor(missing, device=engine.device), keep=1)
        program = self._program(Places(width, window_for(length + width)))
        numbers, draws = program.inputs
        Numbers.write(numbers, [length, ids[max(0, length - 2)], ids[-1]])
        draws[:count].copy_(uniforms(count, self._generator))
        drafted, q, logits = program()
        engine.length = length + count - 1  # the last drafted token was not fed
        return drafted[:count], q[:count], logits[:count]

    def _key(self, shape: Places) -> Hashable:
        return ("draft", shape, *_sampling(self._settings))

    def _program(self, shape: Places) -> Program:
        return self.engine.program(self._key(shape), lambda: self._made(shape))

    def _made(self, shape: Places) -> Program:
        device = self.engine.device
        # Places past those in use, for the runs before a capture.
        numbers = Numbers.of([self.engine.length + 2, 0, 0], device)
        draws = torch.zeros(shape.width, dtype=torch.float64, device=device)
        function = _draft_run(self.engine.cache, self._settings, shape)
        return capture(function, [numbers, draws])

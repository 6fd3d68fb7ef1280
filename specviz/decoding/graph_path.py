"""The two programs of a round: a whole draft run, and a verify pass with its verdict.

Each exists for a few widths; a round takes the least that holds its drafts and leaves the rest
of the width unused. Settings are part of a program. All random draws are made beforehand by the
run's own generator, on the device, in the order of the plain form: a seed means the same text.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..engines.static.cache import PlacedCache, window_for
from ..engines.static.cuda_graphs import Function, Program, capture, write
from ..engines.static.engine import StaticEngine
from ..settings import Settings
from .sampling import Decide, Source, Tape, fixed_shapes, probabilities, sample, uniforms

AHEAD = 4096  # tokens for which programs are made before a run begins
FINE = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24)  # widths where a round's own gamma varies
COARSE = (1, 2, 4, 8, 16)  # widths for the last rounds of a run, where the room ends


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


def planned(length: int, most: int, known: Sequence[int], fixed: bool) -> list[Places]:
    """The shapes that a run from `length` to `most` tokens will ask for.

    Where gamma is fixed, the narrower ones only come up at its end.
    """
    last, top = min(most, length + AHEAD), known[-1]
    ending = window_for(max(length, last - top))
    window, shapes = window_for(length + 1), []
    while window <= window_for(last + top):
        needed = known if not fixed or window >= ending else known[-1:]
        shapes += [Places(width, window) for width in needed]
        window *= 2
    return shapes


class DraftPrograms:
    """All steps of a draft run at once, over the engine of the draft, or over the first `layers`
    of the target's."""

    def __init__(
        self,
        engine: StaticEngine,
        settings: Settings,
        source: Source,
        layers: int | None = None,
    ) -> None:
        self.engine, self._layers = engine, layers
        self._settings, self._source = settings, source
        self._fixed = settings.gamma_policy == "fixed"
        self._widths = widths(settings, self._fixed)[1:]

    def prepare(self, length: int, most: int) -> None:
        """Make room and programs for a run that goes from `length` to at most `most` tokens."""
        shapes = planned(length, most, self._widths, self._fixed)
        self.engine.reserve(shapes[-1].window, map(self._key, shapes))
        for shape in shapes:
            self._program(shape)

    @torch.inference_mode()
    def run(self, ids: Sequence[int], count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Drafted ids int64 [count], q and logits fp32 [count, vocab], valid until the next run."""
        engine, length = self.engine, len(ids)
        width = width_for(count, self._widths)
        engine.reserve(length + width)
        if missing := ids[engine.length : max(0, length - 2)]:
            engine.forward(torch.tensor(missing, device=engine.device), keep=1)
        program = self._program(Places(width, window_for(length + width)))
        numbers, draws = program.inputs
        write(numbers, [length, ids[max(0, length - 2)], ids[-1]])
        draws[:count].copy_(uniforms(count, self._source))
        drafted, q, logits = program.forward()
        engine.length = length + count - 1  # the last drafted token was not fed
        return drafted[:count], q[:count], logits[:count]

    def _key(self, shape: Places) -> Hashable:
        return ("draft", shape, self._layers, *_sampling(self._settings))

    def _program(self, shape: Places) -> Program:
        return self.engine.program(self._key(shape), lambda: self._made(shape))

    def _made(self, shape: Places) -> Program:
        device = self.engine.device
        # Places past those in use, for the runs before a capture.
        numbers = torch.tensor([self.engine.length + 2, 0, 0], device=device)
        draws = torch.zeros(shape.width, dtype=torch.float64, device=device)
        function = _draft_run(self.engine.cache, self._settings, shape, self._layers)
        return capture(function, [numbers, draws])


class VerifyPrograms:
    """The target pass over the last token and the drafts, and the verdict on them."""

    def __init__(
        self,
        engine: StaticEngine,
        settings: Settings,
        source: Source,
        decide: Decide,
    ) -> None:
        self.engine = engine
        self._settings, self._source, self._decide = settings, source, decide
        self._fixed = settings.gamma_policy == "fixed"
        self._widths = widths(settings, self._fixed)

    def prepare(self, length: int, most: int) -> None:
        """Make room and programs for a run that goes from `length` to at most `most` tokens."""
        shapes = list(planned(length, most, self._widths, self._fixed))
        self.engine.reserve(shapes[-1].window, map(self._key, shapes))
        for shape in shapes:
            self._program(shape)

    @torch.inference_mode()
    def run(
        self, ids: Sequence[int], drafts: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Judge what is to follow the committed `ids`.

        drafts: int64 [n] and the q that they were drawn from, [n, vocab]; None for n = 0.
        Returns int64 [n + 2]: the drafted ids, how many are accepted, the next id; then p and
        logits, fp32 [n + 1, vocab], and the draws u, fp64 [n]. Valid until the next run.
        """
        engine, length, count = self.engine, len(ids), len(drafts[0]) if drafts else 0
        width = width_for(count, self._widths)
        engine.reserve(length + width)
        program = self._program(Places(width, window_for(length + width)))
        numbers, fed, rows, u = program.inputs
        write(numbers, [length, ids[-1]])
        if drafts is not None:
            fed[:count].copy_(drafts[0])
            rows[:count].copy_(drafts[1])
        u[:count].copy_(uniforms(count, self._source))
        u[width:].copy_(uniforms(1, self._source))
        if count < width:
            # What only fills the width is never kept, and behind it stands a bonus.
            rows[count:].zero_()
            u[count:width].fill_(float("inf"))
        result, p, logits = program.forward()
        engine.length = length + count
        if count < width:
            result = torch.cat([result[:count], result[width:]])
        return result, p[: count + 1], logits[: count + 1], u[:count]

    def _key(self, shape: Places) -> Hashable:
        return ("verify", shape, *_sampling(self._settings), self._decide)

    def _program(self, shape: Places) -> Program:
        return self.engine.program(self._key(shape), lambda: self._made(shape))

    def _made(self, shape: Places) -> Program:
        engine, width = self.engine, shape.width
        device, vocab = engine.device, engine.vocab
        numbers = torch.tensor([engine.length + 1, 0], device=device)
        drafted = torch.zeros(width, dtype=torch.long, device=device)
        q = torch.zeros(width, vocab, device=device)
        u = torch.zeros(width + 1, dtype=torch.float64, device=device)
        function = _verify_pass(engine.cache, self._settings, self._decide, shape)
        return capture(function, [numbers, drafted, q, u])


def _sampling(settings: Settings) -> tuple[float, int, float]:
    """The settings that a program is made for."""
    return settings.temperature, settings.top_k, settings.top_p


def _draft_run(
    cache: PlacedCache, settings: Settings, shape: Places, layers: int | None
) -> Function:
    @fixed_shapes()
    def drafted(numbers: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length, feed = numbers[:1], numbers[1:]  # committed tokens; the last two of them
        # The last but one is in the cache already unless all drafts were accepted; writing it
        # again changes nothing and spares a case. A text of one token feeds that token twice.
        places = torch.cat([length - 2, length - 1]).clamp_(min=0)
        ids, rows, logits = [], [], []
        for step in range(shape.width):
            row = cache.logits(feed, places, shape.window, 1, layers)  # [1, vocab]
            q, feed = sample(row, settings, draws[step : step + 1])
            places = length + step
            ids.append(feed)
            rows.append(q)
            logits.append(row)
        return torch.cat(ids), torch.cat(rows), torch.cat(logits)

    return drafted


def _verify_pass(cache: PlacedCache, settings: Settings, decide: Decide, shape: Places) -> Function:
    width, window = shape

    @fixed_shapes()
    def judged(
        numbers: Tensor, drafted: Tensor, q: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        length, last = numbers[:1], numbers[1:]
        places = length - 1 + torch.arange(width + 1, device=length.device)
        logits = cache.logits(torch.cat([last, drafted]), places, window, keep=width + 1)
        p = probabilities(logits, settings)
        decision = decide(p, q, drafted, u[:width], Tape(u[width:]))
        return torch.cat([drafted, decision]), p, logits

    return judged

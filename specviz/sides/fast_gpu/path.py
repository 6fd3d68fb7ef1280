"""Drafting and judging in one program each: a whole draft run, and a pass with its verdict.

Programs exist for a few widths; a round takes the smallest that holds its drafts and leaves the
rest of the width unused. Settings are part of a program. All random draws are made beforehand by
the run's own generator, on the device, in the order of the other paths: a seed gives the same text.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ...core.sampling import PremadeDraws, probabilities, sample, uniforms
from ...core.types import Draft, Judged, RunContext, Verdict
from ...core.verdicts import decide
from ...settings import Settings
from .cache import InPlaceCache, window_for
from .cuda_graphs import Function, Program, capture, write
from .engine import StaticEngine

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


class Shape(NamedTuple):
    """The shape of a program: how many drafts, and how many places attention reads."""

    width: int
    window: int


def planned(length: int, most: int, known: Sequence[int], fixed: bool) -> list[Shape]:
    """The shapes that a run from `length` to `most` tokens will ask for.

    Where gamma is fixed, the narrower ones only come up at its end.
    """
    last, top = min(most, length + AHEAD), known[-1]
    ending = window_for(max(length, last - top))
    window, shapes = window_for(length + 1), []
    while window <= window_for(last + top):
        needed = known if not fixed or window >= ending else known[-1:]
        shapes += [Shape(width, window) for width in needed]
        window *= 2
    return shapes


class GraphPath:
    """A `DecodingPath` for the static engine."""

    def __init__(self, engine: StaticEngine, run: RunContext) -> None:
        self.engine, self._run = engine, run
        self._fixed = run.settings.gamma_policy == "fixed"
        self._widths = widths(run.settings, self._fixed)

    def prepare(
        self, task: Literal["draft", "judge"], length: int, most: int, layers: int | None = None
    ) -> None:
        """Make room and programs for a run from `length` to at most `most` tokens."""
        drafts = task == "draft"
        shapes = planned(length, most, self._widths[drafts:], self._fixed)
        keys = [self._draft_key(s, layers) if drafts else self._judge_key(s) for s in shapes]
        self.engine.reserve(shapes[-1].window, keys)
        for shape in shapes:
            if drafts:
                self._draft_program(shape, layers)
            else:
                self._judge_program(shape)

    @torch.inference_mode()
    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        engine, length, run = self.engine, len(ids), self._run
        width = width_for(count, self._widths[1:])
        engine.reserve(length + width)
        if missing := ids[engine.length : max(0, length - 2)]:
            engine.forward(torch.tensor(missing, device=engine.device), keep=1)
        program = self._draft_program(Shape(width, window_for(length + width)), layers)
        numbers, draws = program.inputs
        write(numbers, [length, ids[max(0, length - 2)], ids[-1]])
        draws[:count].copy_(uniforms(count, run.source))
        drafted, q, logits = program.forward()
        engine.length = length + count - 1  # the last drafted token was not fed
        place = run.device
        return Draft(drafted[:count].to(place), q[:count].to(place), (logits[:count],))

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        result, p, logits, u = self.launch(ids, draft)
        *fed, accepted, next_id = result.tolist()  # the round's one copy to the host
        count = len(u)
        return Judged(draft, fed[:count], logits, p, u, Verdict.on(count, accepted, next_id))

    @torch.inference_mode()
    def launch(
        self, ids: Sequence[int], draft: Draft | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`judge` up to where the host must wait.

        Returns int64 [.. + 2]: the drafted ids, padding, how many are accepted, the next id; then
        p and logits, fp32 [n + 1, vocab], and the draws u, fp64 [n].
        """
        engine, length, source = self.engine, len(ids), self._run.source
        count = len(draft.ids) if draft else 0
        width = width_for(count, self._widths)
        engine.reserve(length + width)
        program = self._judge_program(Shape(width, window_for(length + width)))
        numbers, fed, rows, u = program.inputs
        write(numbers, [length, ids[-1]])
        if draft is not None:
            fed[:count].copy_(draft.ids)
            rows[:count].copy_(draft.q)
        u[:count].copy_(uniforms(count, source))
        u[width:].copy_(uniforms(1, source))
        # What only fills the width is never kept, and a bonus stands behind it.
        rows[count:].zero_()
        u[count:width].fill_(float("inf"))
        result, p, logits = program.forward()
        engine.length = length + count
        return result, p[: count + 1], logits[: count + 1], u[:count]

    def _draft_key(self, shape: Shape, layers: int | None) -> Hashable:
        return ("draft", shape, layers, *_sampling(self._run.settings))

    def _judge_key(self, shape: Shape) -> Hashable:
        return ("judge", shape, *_sampling(self._run.settings), self._run.decide)

    def _draft_program(self, shape: Shape, layers: int | None) -> Program:
        def make() -> Program:
            device = self.engine.device
            # Shape past those in use, for the runs before a capture.
            numbers = torch.tensor([self.engine.length + 2, 0, 0], device=device)
            draws = torch.zeros(shape.width, dtype=torch.float64, device=device)
            function = _draft_run(self.engine.cache, self._run.settings, shape, layers)
            return capture(function, [numbers, draws])

        return self.engine.program(self._draft_key(shape, layers), make)

    def _judge_program(self, shape: Shape) -> Program:
        def make() -> Program:
            device, width = self.engine.device, shape.width
            numbers = torch.tensor([self.engine.length + 1, 0], device=device)
            drafted = torch.zeros(width, dtype=torch.long, device=device)
            q = torch.zeros(width, self.engine.vocab, device=device)
            u = torch.zeros(width + 1, dtype=torch.float64, device=device)
            function = _judging_pass(self.engine.cache, self._run, shape)
            return capture(function, [numbers, drafted, q, u])

        return self.engine.program(self._judge_key(shape), make)


def _sampling(settings: Settings) -> tuple[float, int, float]:
    """The settings that a program is made for."""
    return settings.temperature, settings.top_k, settings.top_p


def _draft_run(
    cache: InPlaceCache, settings: Settings, shape: Shape, layers: int | None
) -> Function:
    def drafted(numbers: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length, feed = numbers[:1], numbers[1:]  # committed tokens; the last two of them
        # The last but one is in the cache already unless all drafts were accepted; writing it
        # again changes nothing and saves a branch. A text of one token feeds that token twice.
        places = torch.cat([length - 2, length - 1]).clamp_(min=0)
        ids, rows, logits = [], [], []
        for step in range(shape.width):
            row = cache.logits(feed, places, shape.window, 1, layers)  # [1, vocab]
            q, feed = sample(row, settings, draws[step : step + 1], fixed_shapes=True)
            places = length + step
            ids.append(feed)
            rows.append(q)
            logits.append(row)
        return torch.cat(ids), torch.cat(rows), torch.cat(logits)

    return drafted


def _judging_pass(cache: InPlaceCache, run: RunContext, shape: Shape) -> Function:
    width, window = shape

    def judged(
        numbers: Tensor, drafted: Tensor, q: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        length, last = numbers[:1], numbers[1:]
        places = length - 1 + torch.arange(width + 1, device=length.device)
        logits = cache.logits(torch.cat([last, drafted]), places, window, keep=width + 1)
        p = probabilities(logits, run.settings, fixed_shapes=True)
        decision = (run.decide or decide)(p, q, drafted, u[:width], PremadeDraws(u[width:]))
        return torch.cat([drafted, decision]), p, logits

    return judged

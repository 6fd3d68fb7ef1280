"""How an engine drafts and judges: chosen once per engine and run, by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from ..lanes import LANES, Lane
from ..settings import Settings
from .engine import Engine, host_ids
from .numpy_path import HostDraws, NumpyPath
from .sampling import RandomSource, probabilities, sample, uniforms
from .types import DecodingPath, Draft, Judged, RunContext
from .verdict import Decide, verdict


def make_context(
    settings: Settings,
    vocab: int,
    device: torch.device,
    decide: Decide,
    lane: Lane,
    memory: Sequence[Sequence[int]] = (),
) -> RunContext:
    """What all parts of a run share.

    Each lane has a stream of random numbers of its own: with the same numbers, two would agree
    more often than independent samples do.
    """
    stream = np.random.SeedSequence(settings.seed, spawn_key=_stream_of(lane))
    source: RandomSource
    if device.type == "cpu":
        source = HostDraws(stream)
    else:
        seed = int(stream.generate_state(1, np.uint64)[0] >> 1)
        source = torch.Generator(device).manual_seed(seed)
    host = HostDraws(stream.spawn(1)[0])
    return RunContext(settings, vocab, device, source, decide, host, memory)


def _stream_of(lane: Lane) -> tuple[int, ...]:
    """Which stream of a seed is a lane's: it depends on its name alone, whatever else races."""
    if lane in LANES:
        return (LANES.index(lane),)
    return (len(LANES), *lane.encode())


def make_path(engine: Engine, run: RunContext) -> DecodingPath:
    """The path with the fewest calls that this engine allows.

    Raises `PairError` if it cannot give what these settings need.
    """
    return engine.path(run)


def plain_path(engine: Engine, run: RunContext) -> DecodingPath:
    """Call by call: in the host's memory if all of it lies there, else on any device."""
    on_host = engine.device.type == run.device.type == "cpu"
    return NumpyPath(engine, run) if on_host else TensorPath(engine, run)


class TensorPath:
    """A `DecodingPath` for any engine on any device: the rules of `sampling`, call by call."""

    def __init__(self, engine: Engine, run: RunContext) -> None:
        self.engine, self._run = engine, run

    def prepare(
        self, task: Literal["draft", "judge"], length: int, most: int, layers: int | None = None
    ) -> None:
        pass  # nothing is made beforehand

    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        engine, run = self.engine, self._run
        draws = uniforms(count, run.source).to(engine.device)
        feed = host_ids(ids[engine.length :]).to(engine.device)
        drafted, rows, logits = [], [], []
        for step in range(count):
            row = engine.forward(feed, keep=1, layers=layers)  # [1, vocab]
            q, feed = sample(row, run.settings, draws[step : step + 1])
            drafted.append(feed)
            rows.append(q)
            logits.append(row)
        return Draft(torch.cat(drafted).to(run.device), torch.cat(rows).to(run.device), logits)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        engine, run = self.engine, self._run
        feed = torch.tensor(ids[-1:], device=engine.device)
        if draft is not None:
            feed = torch.cat([feed, draft.ids.to(feed.device)])
        logits = engine.forward(feed, keep=len(feed)).to(run.device)  # [n + 1, vocab]
        p = probabilities(logits, run.settings)
        given = draft.ids if draft is not None else feed[:0].to(run.device)
        q = draft.q if draft is not None else p[:0]
        u = uniforms(len(given), run.source)
        # Drafted ids and verdict come to the host in one copy.
        decision = run.decide(p, q, given, u, run.source)
        *drafted, accepted, next_id = torch.cat([given, decision]).tolist()
        return Judged(draft, drafted, logits, p, u, verdict(len(drafted), accepted, next_id))

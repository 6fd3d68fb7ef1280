"""Where the time of a round goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core.eager import EagerEngine
from ...core.engine import Engine, now
from ...core.events import Round
from ...core.loop import decode
from ...core.sampling import Decide
from ...core.types import LaneEvents
from ...environment import has_numba
from ...pairs.pair import Pair
from ...settings import Settings
from ...sides.fast_gpu.cuda_graphs import Program
from ...sides.heads.engine import HeadEngine

TURNS = 3  # how often a prompt is decoded with and without timed passes


@dataclass(frozen=True, slots=True)
class RoundParts:
    """Where the time of a speculative round goes: median seconds over rounds that drafted.

    draft_passes: all passes of the draft in a round. sampling: from the draft's logits to its
    tokens; where a draft run is one call, draft_passes contains it. target_pass: the pass of the
    target. judging: from the target's logits to the verdict. counting: rollback and all other work.
    outside: the share of the round outside of passes, 0 to 1.
    """

    draft_passes: float
    sampling: float
    target_pass: float
    judging: float
    counting: float
    outside: float


@contextmanager
def timed_passes() -> Iterator[list[float]]:
    """Time every pass of every engine during the block; yields the list of their seconds."""
    spent: list[float] = []
    plain = [(form, name, getattr(form, name)) for form, name in _calls()]

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(engine: Engine, *args: Any, **options: Any) -> Any:
            start = now(engine.device)
            result = call(engine, *args, **options)
            spent.append(now(engine.device) - start)
            return result

        return run

    for form, name, call in plain:
        setattr(form, name, timed(call))
    try:
        yield spent
    finally:
        for form, name, call in plain:
            setattr(form, name, call)


def _calls() -> Iterator[tuple[Any, str]]:
    """Every class with passes, and the method that makes one or a whole draft run of them.

    A CUDA program and a compiled draft run contain the sampling, which cannot be timed separately.
    """
    yield from ((EagerEngine, "forward"), (Program, "forward"), (HeadEngine, "forward"))
    if has_numba():
        from ...sides.fast_cpu.engine import CompiledEngine
        from ...sides.fast_cpu.head import CompiledHeadEngine

        yield from ((CompiledEngine, "forward"), (CompiledEngine, "draft"))
        yield CompiledHeadEngine, "forward"


def round_parts(
    pair: Pair, prompts: Sequence[str], settings: Settings, decider: Decide | None = None
) -> RoundParts | None:
    """The parts of the rounds of all prompts, or None if no round drafted.

    Timing each pass costs some microseconds. Each prompt is therefore decoded in two ways, `TURNS`
    times each after a warm-up: once to time whole rounds, once to time the passes of the same
    rounds.
    """
    parts = []
    for prompt in prompts:
        ids = pair.encode(prompt, chat=settings.chat)
        events = partial(decode, pair, ids, settings, "speculative", decider)
        _whole_rounds(events())
        whole, passes = [], []
        for _ in range(TURNS):
            whole.append(_whole_rounds(events()))
            with timed_passes() as spent:
                passes.append(_passes(events(), spent))
        rounds = zip(_medians(whole), _medians(passes), strict=True)
        parts += [_parts(seconds, timed) for (drafted, *seconds), timed in rounds if drafted]
    if not parts:
        return None
    return RoundParts(*_median_of_each(parts))


def _parts(whole: Sequence[float], passes: Sequence[float]) -> tuple[float, ...]:
    drafting, verifying, counting = whole
    *drafts, judged = passes  # the last pass of a round is the target's
    outside = 1 - sum(passes) / sum(whole)
    return sum(drafts), drafting - sum(drafts), judged, verifying - judged, counting, outside


def _whole_rounds(events: LaneEvents) -> list[tuple[float, ...]]:
    """For each round: the drafted tokens, and the seconds of drafting, verifying and the rest."""
    rounds = (event for event in events if isinstance(event, Round))
    return [(len(r.drafted), r.draft_seconds, r.verify_seconds, r.overhead_seconds) for r in rounds]


def _passes(events: LaneEvents, spent: list[float]) -> list[tuple[float, ...]]:
    """The seconds that were added to `spent` in each round."""
    found = []
    for event in events:
        if isinstance(event, Round):
            found.append(tuple(spent))
        spent.clear()
    return found


def _medians(turns: Sequence[Sequence[tuple[float, ...]]]) -> list[tuple[float, ...]]:
    """For each round, the medians over the turns; with one seed all turns have the same rounds."""
    return [_median_of_each(turn) for turn in zip(*turns, strict=True)]


def _median_of_each(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(statistics.median(values) for values in zip(*rows, strict=True))

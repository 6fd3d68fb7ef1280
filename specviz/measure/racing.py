"""Races for measurements: ended early, repeated with other seeds, with a number of threads."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ..core.engine import use_threads
from ..core.events import Event, Round
from ..core.race import race
from ..lanes import SPECULATIVE
from ..pairs.pair import Pair
from ..runs.metrics import Metrics
from ..runs.trace import Trace
from ..settings import Settings

Summary = TypeVar("Summary")


def raced(
    pair: Pair,
    prompt: str,
    settings: Settings,
    stop: Callable[[], bool] = lambda: False,
    *,
    most_seconds: float = math.inf,
    most_rounds: int | None = None,
) -> Trace | None:
    """A race, ended early after so many seconds on both clocks together or so many speculative
    rounds; None if `stop()` became true. Raises `SpecvizError`."""
    events: list[Event] = []
    clocks: dict[str, float] = {}
    rounds = 0
    running: Any = race(pair, prompt, settings)
    with closing(running):
        for event in running:
            if stop():
                return None
            events.append(event)
            if not isinstance(event, Round):
                continue
            clocks[event.lane] = event.clock
            rounds += event.lane == SPECULATIVE
            if sum(clocks.values()) > most_seconds or rounds == most_rounds:
                events.append(running.send(True))
                break
    return Trace.from_events(events)


def seeded(settings: Settings, repeat: int) -> Settings:
    """The settings of a repeat: greedy ones repeat exactly, others draw another sample."""
    return settings if settings.greedy else replace(settings, seed=settings.seed + repeat)


def over_prompts(
    runs: Sequence[Sequence[Metrics]],
    figure: Callable[[Metrics], float | None],
    summary: Callable[[list[float]], Summary],
) -> Summary | None:
    """The summary of a figure's values: of each prompt that has it, the median over its repeats.
    None if no prompt has it. runs: of each prompt."""
    known = ([v for m in again if (v := figure(m)) is not None] for again in runs)
    values = [statistics.median(some) for some in known if some]
    return summary(values) if values else None


@contextmanager
def all_with(threads: int) -> Iterator[None]:
    """Within, torch and compiled passes share their work among so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with use_threads(threads):
            yield
    finally:
        torch.set_num_threads(before)


def in_fp32(pair: Pair) -> Pair:
    """On a processor, the same pair with copies of those models that have other weights than fp32,
    in which the lanes compute there."""
    if pair.device.type != "cpu":
        return pair
    held: dict[str, Any] = {"target": pair.target, "draft": pair.draft}
    widened = {
        role: copy.deepcopy(model).float()
        for role, model in held.items()
        if model is not None and model.dtype != torch.float32
    }
    return replace(pair, **widened)

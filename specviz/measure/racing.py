"""Races for measurements: ended early, repeated with other seeds, with a number of threads."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..core.engine import use_threads
from ..core.events import End, Event, Round
from ..core.race import race
from ..pairs.pair import Pair
from ..runs.metrics import Metrics
from ..runs.trace import Trace
from ..settings import Settings

if TYPE_CHECKING:
    from ..core.protocols import Decide


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
    with closing(race(pair, prompt, settings)) as running:  # type: ignore[type-var]
        for event in running:
            if stop():
                return None
            events.append(event)
            if not isinstance(event, Round):
                continue
            clocks[event.lane] = event.clock
            rounds += event.lane == "speculative"
            if sum(clocks.values()) > most_seconds or rounds == most_rounds:
                events.append(_end(running))
                break
    return Trace.from_events(events)


def _end(running: object) -> End:
    end = running.send(True)  # type: ignore[attr-defined]
    assert isinstance(end, End)
    return end


def whole_race(pair: Pair, prompt: str, settings: Settings, decider: Decide | None = None) -> Trace:
    """A race to its end. decider: scripts the verdicts."""
    return Trace.from_events(race(pair, prompt, settings, decider=decider))


def seeded(settings: Settings, repeat: int) -> Settings:
    """The settings of a repeat: greedy ones repeat exactly, others draw another sample."""
    return settings if settings.greedy else replace(settings, seed=settings.seed + repeat)


def by_prompt(
    runs: Sequence[Sequence[Metrics]],
    figure: Callable[[Metrics], float | None],
    middle: Callable[[list[float]], float] = statistics.median,
) -> list[float]:
    """The middle of a figure over the repeats of each prompt that has it. runs: of each prompt."""
    known = ([v for m in again if (v := figure(m)) is not None] for again in runs)
    return [middle(values) for values in known if values]


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
    """The same pair, with copies of those models that have other weights than fp32."""

    def widened(model: Any) -> Any:
        if model is None or model.dtype == torch.float32:
            return model
        return copy.deepcopy(model).float()

    return replace(pair, target=widened(pair.target), draft=widened(pair.draft))

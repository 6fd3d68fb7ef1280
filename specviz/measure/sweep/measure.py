"""One piece of a sweep: a race on one prompt with one configuration, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.events import End, Event, Round
from ...core.race import race
from ...environment import ASSETS
from ...pairs.pair import Pair, context_length
from ...runs.metrics import compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import uncertainty
from ...settings import Settings
from ...sides.early_exit import best_exit
from .costs import counts_of
from .rounds import KnownText, RoundCounts
from .types import Machine

BUSY = ("price", "delay", "spread")
"""The doubts of `runs.uncertainty` that mean that something else used the machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one race gave.

    key: of the configuration. question: the index of its prompt. speedup: None if the run is too
    short. rate, alone_rate: tokens per second. draft, verify, overhead: seconds of all rounds.
    alone: seconds per round of the target alone. doubted: whether the machine was busy.
    """

    key: str
    question: int
    speedup: float | None
    rate: float | None
    alone_rate: float | None
    counts: RoundCounts
    c: float | None
    draft: float
    verify: float
    overhead: float
    alone: float
    doubted: bool

    @property
    def log_speedup(self) -> float | None:
        """The natural logarithm of the speed-up."""
        return math.log(self.speedup) if self.speedup else None


def raced(
    pair: Pair,
    prompt: str,
    settings: Settings,
    stop: Callable[[], bool],
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


def run_of(key: str, question: int, trace: Trace) -> Run:
    """The numbers of a race."""
    m, found = compute_metrics(trace), uncertainty(trace)
    alone = trace.lane("baseline")
    return Run(
        key=key,
        question=question,
        speedup=m.speedup,
        rate=m.tokens_per_second["speculative"],
        alone_rate=m.tokens_per_second["baseline"],
        counts=counts_of(trace),
        c=m.c,
        draft=m.draft_seconds,
        verify=m.verify_seconds,
        overhead=m.overhead_seconds,
        alone=m.seconds["baseline"] / len(alone) if alone else 0.0,
        doubted=found is not None and found.doubt in BUSY,
    )


def known_text(pair: Pair, trace: Trace) -> KnownText:
    """The text that the speculative lane of a race wrote."""
    header, rounds = trace.header, trace.lane("speculative")
    begin = len(header.prompt_ids)
    ids = header.prompt_ids + tuple(token.id for r in rounds for token in r.emitted)
    reason = trace.end.reasons["speculative"] if trace.end else "stopped"
    # A run that was stopped is read as one whose budget was what it wrote.
    budget = len(ids) if reason == "stopped" else begin + header.settings.max_new_tokens
    return KnownText(ids, begin, budget, context_length(pair.target))


def machine_of(pair: Pair, trace: Trace, known: Machine | None) -> Machine:
    """Where a race ran. known: the same from races before it."""
    head = trace.header
    layers = known.exit_layers if known else None
    if layers is None and head.settings.drafter == "early-exit":
        layers = best_exit(pair.target, pair.vocab).layers

    return Machine(
        pair=pair.name,
        target=_named(pair.target),
        draft=None if pair.draft is None else _named(pair.draft),
        device=head.device,
        processor=head.processor,
        dtype=head.dtype,
        form=str(head.target["form"]),
        threads=(head.lane_threads or {}).get("baseline", head.threads),
        versions=head.versions,
        date=known.date if known else head.date,
        exit_layers=layers,
    )


def weight_bytes(model: Any) -> int:
    """The bytes of a model's weights as they are loaded, tied ones once."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def _named(model: Any) -> str:
    # A model from a folder is named by the folder: whole paths are private.
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    if Path(name).is_relative_to(ASSETS):
        return f"assets/{Path(name).relative_to(ASSETS).as_posix()}"
    return Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name


def seeded(settings: Settings, repeat: int) -> Settings:
    """The settings of a repeat: greedy ones repeat exactly, others draw another sample."""
    return settings if settings.greedy else replace(settings, seed=settings.seed + repeat)

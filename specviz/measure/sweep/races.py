"""One race of a sweep as figures, and which races something else on the machine delayed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.events import Round
from ...lanes import BASELINE, SPECULATIVE
from ...runs.metrics import Metrics, compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import seconds_of, uncertainty, undelayed_seconds
from .along import Rounds, rounds_of

BUSY = ("price", "delay", "spread")  # doubts that mean that something else used the machine
SLOW = 1.5  # times the usual baseline round on a prompt: a race that was slower was delayed
SLOWEST = 2.0  # the same over all prompts, whose passes differ by their contexts
FEWEST_PEERS = 3  # races from which it is known what is usual


@dataclass(frozen=True, slots=True)
class PassCosts:
    """What passes of a race cost, in rounds of its own baseline. verify: a target pass by its
    width. step: a draft step, None if nothing was drafted. overhead: of a round."""

    verify: dict[int, float]
    step: float | None
    overhead: float


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """What one race gave.

    key: of the configuration. question: the index of its prompt. rounds: with drafts. rate,
    alone_rate: tokens per second with drafts and without; speedup: their ratio, None if the race is
    too short to compare. Delayed rounds count in these three as if they had taken their usual time.
    unit: the median round of the baseline, in seconds. costs: None if its clock is too coarse.
    doubted: whether the machine was busy.
    """

    key: str
    question: int
    metrics: Metrics
    rounds: Rounds
    rate: float
    alone_rate: float
    speedup: float | None
    unit: float
    costs: PassCosts | None
    doubted: bool


def race_figures(key: str, question: int, trace: Trace) -> RaceFigures:
    """The numbers of a race."""
    doubt = uncertainty(trace)
    metrics = compute_metrics(trace)
    rounds = trace.lane(SPECULATIVE)
    baseline_rounds = trace.lane(BASELINE)
    rate = _rate(rounds)
    alone_rate = _rate(baseline_rounds)
    speedup = None
    if metrics.speedup is not None and metrics.tau is not None and rate and alone_rate:
        # A round has a whole target pass, so what lies above tau tokens per pass is noise.
        speedup = min(rate / alone_rate, metrics.tau)
    seconds = [seconds_of(r) for r in baseline_rounds]
    unit = statistics.median(seconds) if seconds else 0.0
    return RaceFigures(
        key=key,
        question=question,
        metrics=metrics,
        rounds=rounds_of(trace),
        rate=rate,
        alone_rate=alone_rate,
        speedup=speedup,
        unit=unit,
        costs=_pass_costs(rounds, baseline_rounds, unit),
        doubted=doubt is not None and doubt.doubt in BUSY,
    )


def _rate(rounds: Sequence[Round]) -> float:
    """Tokens per second without delays; 0 where no time passed."""
    seconds = undelayed_seconds(rounds)
    return sum(len(r.emitted) for r in rounds) / seconds if seconds > 0 else 0.0


def _pass_costs(
    rounds: Sequence[Round], baseline_rounds: Sequence[Round], unit: float
) -> PassCosts | None:
    if not rounds or unit <= 0.0:
        return None
    by_width: dict[int, list[Round]] = defaultdict(list)
    by_width[1] += baseline_rounds
    for r in rounds:
        by_width[1 + len(r.drafted)].append(r)
    drafting = [r for r in rounds if r.drafted]
    step = None
    if drafting:
        # The mean: a drafter of two ways, one of which costs nothing, has no usual step.
        seconds = sum(r.draft_seconds for r in drafting)
        step = seconds / unit / sum(len(r.drafted) for r in drafting)
    return PassCosts(
        verify={
            width: statistics.median(r.verify_seconds for r in rounds_of_width) / unit
            for width, rounds_of_width in by_width.items()
        },
        step=step,
        overhead=statistics.median(r.overhead_seconds for r in rounds) / unit,
    )


def busy_runs(runs: Sequence[RaceFigures]) -> set[int]:
    """The places of the races that something delayed: those that are doubted, and those whose
    baseline was far slower than usual on its prompt, where all races have the same one."""
    by_question: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        by_question[run.question].append(run.unit)
    usual_of_all = _usual(run.unit for run in runs)
    usual = {question: _usual(units) for question, units in by_question.items()}
    return {
        place
        for place, run in enumerate(runs)
        if run.doubted or run.unit > SLOW * usual[run.question] or run.unit > SLOWEST * usual_of_all
    }


def _usual(units: Iterable[float]) -> float:
    """The usual one of some rounds, in seconds; infinite where they are too few to tell."""
    known = [unit for unit in units if unit > 0.0]
    return statistics.median(known) if len(known) >= FEWEST_PEERS else float("inf")

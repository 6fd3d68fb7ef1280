"""One race of a sweep as figures, and which races something else on the machine delayed."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.events import Round
from ...core.lanes import BASELINE, SPECULATIVE
from ...core.registry import drafter_kind
from ...core.settings import Settings
from ...runs.metrics import Metrics, compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import seconds_of, uncertainty, undelayed_seconds
from .along import Rounds, rounds_of

BUSY = ("price", "delay", "spread")  # doubts that mean that something else used the machine
# How many times as long as in the quietest race passes take in one that was delayed: rounds of the
# target alone on the same prompt; on any prompt, where contexts differ; draft steps of a row.
SLOW = 1.5
SLOWEST = 2.0
SLOW_STEP = 2.0


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
    unit: the median round of the baseline, in seconds. step: the median draft step, in seconds;
    None where steps differ from round to round. costs: None if its clock is too coarse. doubted:
    whether the machine was busy.
    """

    key: str
    question: int
    metrics: Metrics
    rounds: Rounds
    rate: float
    alone_rate: float
    speedup: float | None
    unit: float
    step: float | None
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
        step=_usual_step(trace.header.settings, rounds),
        costs=_pass_costs(rounds, baseline_rounds, unit),
        doubted=doubt is not None and doubt.doubt in BUSY,
    )


def _rate(rounds: Sequence[Round]) -> float:
    """Tokens per second without delays; 0 where no time passed."""
    seconds = undelayed_seconds(rounds)
    return sum(len(r.emitted) for r in rounds) / seconds if seconds > 0 else 0.0


def _usual_step(settings: Settings, rounds: Sequence[Round]) -> float | None:
    """The median draft step, in seconds. None for drafters that may copy and for adapted numbers of
    drafts, where a step's cost differs from round to round and from text to text."""
    is_model = drafter_kind(settings.drafter).predicted == "place"
    steps = [r.draft_seconds / len(r.drafted) for r in rounds if r.drafted]
    if not is_model or settings.gamma_policy != "fixed" or not steps:
        return None
    return statistics.median(steps)


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
    """The places of the races that something delayed: those that are doubted, those whose baseline
    was far slower than in the quietest race on the same prompt, and those whose drafts were far
    slower than in the quietest race of their row."""
    quietest: dict[int, float] = {}
    quietest_step: dict[str, float] = {}
    for run in runs:
        # Something else on the machine makes passes longer, and never shorter.
        quietest[run.question] = min(run.unit, quietest.get(run.question, math.inf))
        if run.step is not None:
            quietest_step[run.key] = min(run.step, quietest_step.get(run.key, math.inf))
    quietest_of_all = min(quietest.values(), default=math.inf)
    return {
        place
        for place, run in enumerate(runs)
        if run.doubted
        or run.unit > SLOW * quietest[run.question]
        or run.unit > SLOWEST * quietest_of_all
        or (run.step is not None and run.step > SLOW_STEP * quietest_step[run.key])
    }

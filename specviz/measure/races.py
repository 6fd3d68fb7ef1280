"""A race that `bench` and `sweep` measure, its figures, and which races were delayed by something
else on the machine."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.events import Event, Round
from ..core.lanes import BASELINE, SPECULATIVE
from ..core.messages import TextPrompt
from ..core.pair import Pair
from ..core.race import race
from ..core.registry import drafter_kind
from ..core.settings import Settings
from ..core.types import Mode
from ..runs.metrics import Metrics, compute_metrics
from ..runs.trace import Trace
from ..runs.uncertainty import at_most_wider, seconds_of, uncertainty, undelayed_seconds
from .samples import SPECVIZ, Variant, Writer, Written
from .sweep.predicted_rounds import MIN_TOKENS, Rounds, rounds_of

if TYPE_CHECKING:
    from ..core.protocols import Rule

K = TypeVar("K")

TIMED_ROUNDS = 6  # of the target alone, after which it is known how long a text takes
BUSY_DOUBTS = ("price", "delay", "spread")  # doubts that show a busy machine
MIN_PASSES = 3  # of the same width in a race, before their median is compared
# Thresholds of a delayed race, as multiples of the shortest time: of target passes on the same
# prompt, of those on any prompt (where contexts differ), and of draft steps of the same row.
SLOW_ON_PROMPT = 1.5
SLOW_ON_ANY = 2.0
SLOW_STEP = 2.0


class RaceStopped(Exception):
    """Raised by `raced` when its `stop()` became true."""


def raced(
    pair: Pair,
    prompt: TextPrompt,
    settings: Settings,
    stop: Callable[[], bool] = lambda: False,
    *,
    max_seconds: float = math.inf,
    mode: Mode = "interleaved",
    scripted_rule: Rule | None = None,
) -> Trace:
    """Run a race to its end, or cut it once its first passes show that both lanes together would
    take longer than `max_seconds` on their clocks.

    mode: as `race` has it. scripted_rule: its `decide`. Raises `RaceStopped` and `SpecvizError`.
    """
    events: list[Event] = []
    baseline_rounds: list[Round] = []
    running = race(pair, prompt, settings, mode=mode, decide=scripted_rule)
    with closing(running):
        for event in running:
            if stop():
                raise RaceStopped
            events.append(event)
            if not isinstance(event, Round) or event.lane != BASELINE:
                continue
            baseline_rounds.append(event)
            if len(baseline_rounds) != TIMED_ROUNDS:
                continue
            if tokens_within(max_seconds, baseline_rounds) < settings.max_new_tokens:
                events.append(running.send(True))
                break
    return Trace.from_events(events)


def tokens_within(seconds: float, baseline_rounds: Sequence[Round]) -> float:
    """Estimate how many tokens both lanes of a race write within this time: a whole number,
    `MIN_TOKENS` or more, or infinity. baseline_rounds: the first ones of the target alone."""
    # The shortest: something else on the machine makes passes longer, and never shorter.
    shortest = min((seconds_of(r) for r in baseline_rounds), default=0.0)
    if shortest <= 0.0 or math.isinf(seconds):
        return math.inf
    return max(MIN_TOKENS, int(seconds / (2 * shortest)))


def is_cut(trace: Trace) -> bool:
    """Whether a race ended before its texts did."""
    return trace.end is None or "stopped" in trace.end.reasons.values()


def race_writer(
    pair: Pair, settings: Settings, *, with_prefill: bool = False, **options: Any
) -> Writer:
    """Race both lanes. with_prefill: whether the rates count it. options: as in `raced`."""
    variants = [
        Variant(SPECVIZ, SPECULATIVE, gamma=settings.gamma),
        Variant(SPECVIZ, BASELINE),
    ]

    def write(prompt: TextPrompt) -> Written:
        trace = raced(pair, prompt, settings, **options)
        metrics = compute_metrics(trace)
        rates = {}
        for variant in variants:
            seconds = metrics.seconds[variant.lane]
            if with_prefill:
                seconds += sum(trace.header.prefill_seconds[variant.lane].values())
            rates[variant] = metrics.tokens[variant.lane] / (seconds or math.inf)
        return Written(rates, trace)

    return Writer("race", write)


@dataclass(frozen=True, slots=True)
class PassCosts:
    """The costs of a race's passes, in rounds of its own baseline.

    verify: of a target pass, by its width. step: of a draft step; None if nothing was drafted.
    overhead: of a round.
    """

    verify: dict[int, float]
    step: float | None
    overhead: float


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """The figures of one race, which are kept instead of its trace.

    key: of the writer or configuration.
    prompt: the index of the prompt.
    rounds: with drafts.
    rate, alone_rate: tokens per second with drafts and without, as if delayed rounds had taken
        their usual time.
    speedup: the ratio of these rates; None if the race is too short to compare.
    passes: the median round without its draft, in seconds, by the width of its target pass: of the
        baseline for 1, of rounds with drafts for more, if there are `MIN_PASSES` or more.
    step: the median draft step, in seconds; None where steps differ from round to round.
    costs: None if its clock is too coarse.
    doubted: whether the race itself shows that the machine was busy.
    """

    key: str
    prompt: int
    metrics: Metrics
    rounds: Rounds
    rate: float
    alone_rate: float
    speedup: float | None
    passes: dict[int, float]
    step: float | None
    costs: PassCosts | None
    doubted: bool


def race_figures(key: str, prompt: int, trace: Trace) -> RaceFigures:
    """Derive the figures of a race."""
    doubt = uncertainty(trace)
    metrics = compute_metrics(trace)
    rounds = trace.lane(SPECULATIVE)
    baseline_rounds = trace.lane(BASELINE)
    rate = _rate(rounds)
    alone_rate = _rate(baseline_rounds)
    passes = _usual_passes(rounds, baseline_rounds)
    return RaceFigures(
        key=key,
        prompt=prompt,
        metrics=metrics,
        rounds=rounds_of(trace),
        rate=rate,
        alone_rate=alone_rate,
        speedup=_speedup(metrics, rate, alone_rate),
        passes=passes,
        step=_usual_step(trace.header.settings, rounds),
        costs=_pass_costs(rounds, baseline_rounds, passes.get(1, 0.0)),
        doubted=doubt is not None and doubt.doubt in BUSY_DOUBTS,
    )


def _rate(rounds: Sequence[Round]) -> float:
    """Tokens per second without delays; 0 if no time passed."""
    seconds = undelayed_seconds(rounds)
    if seconds <= 0:
        return 0.0
    return sum(len(r.emitted) for r in rounds) / seconds


def _speedup(metrics: Metrics, rate: float, alone_rate: float) -> float | None:
    """The ratio of the rates; None if the race is too short to compare."""
    if metrics.speedup is None or metrics.tau is None:
        return None
    if not rate or not alone_rate:
        return None
    # A round has a whole target pass, so a ratio above tau is noise.
    return min(rate / alone_rate, metrics.tau)


def _usual_passes(rounds: Sequence[Round], baseline_rounds: Sequence[Round]) -> dict[int, float]:
    """`RaceFigures.passes` of a race."""
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        if r.drafted:
            by_width[1 + len(r.drafted)].append(r.verify_seconds + r.overhead_seconds)
    passes = {
        width: statistics.median(seconds)
        for width, seconds in by_width.items()
        if len(seconds) >= MIN_PASSES
    }
    if baseline_rounds:
        passes[1] = statistics.median(seconds_of(r) for r in baseline_rounds)
    return passes


def _usual_step(settings: Settings, rounds: Sequence[Round]) -> float | None:
    """The median draft step, in seconds. None for drafters that may copy and for policies that
    adapt gamma, whose steps differ from round to round and from text to text."""
    may_copy = drafter_kind(settings.drafter).predicted != "position"
    if may_copy or settings.gamma_policy != "fixed":
        return None
    steps = [r.draft_seconds / len(r.drafted) for r in rounds if r.drafted]
    if not steps:
        return None
    return statistics.median(steps)


def _pass_costs(
    rounds: Sequence[Round], baseline_rounds: Sequence[Round], unit: float
) -> PassCosts | None:
    """unit: a round of the baseline, in seconds."""
    if not rounds or unit <= 0.0:
        return None
    seconds_by_width: dict[int, list[float]] = defaultdict(list)
    seconds_by_width[1] += [r.verify_seconds for r in baseline_rounds]
    for r in rounds:
        seconds_by_width[1 + len(r.drafted)].append(r.verify_seconds)
    verify = {
        width: statistics.median(seconds) / unit for width, seconds in seconds_by_width.items()
    }
    overhead = statistics.median(r.overhead_seconds for r in rounds) / unit
    return PassCosts(verify=verify, step=_step_cost(rounds, unit), overhead=overhead)


def _step_cost(rounds: Sequence[Round], unit: float) -> float | None:
    """The mean cost of a draft step; None if nothing was drafted. Steps of a drafter that sometimes
    copies have no usual cost."""
    drafted = sum(len(r.drafted) for r in rounds)
    if not drafted:
        return None
    seconds = sum(r.draft_seconds for r in rounds if r.drafted)
    return seconds / unit / drafted


def busy_runs(runs: Sequence[RaceFigures]) -> set[int]:
    """The indices of the races that were delayed: those that are doubted, those whose target passes
    in either lane were far slower than others on the same prompt, and those whose drafts were far
    slower than in the quietest race of their row."""
    # Something else on the machine makes passes longer, and never shorter.
    passes_on: dict[int, list[dict[int, float]]] = defaultdict(list)
    for run in runs:
        passes_on[run.prompt].append(run.passes)
    shortest_on = {prompt: _shortest(passes) for prompt, passes in passes_on.items()}
    shortest_of_all = _shortest(run.passes for run in runs)
    shortest_step = _lowest((run.key, run.step) for run in runs if run.step is not None)

    def is_slow(run: RaceFigures) -> bool:
        for width, seconds in run.passes.items():
            if seconds > SLOW_ON_PROMPT * shortest_on[run.prompt][width]:
                return True
            if seconds > SLOW_ON_ANY * shortest_of_all[width]:
                return True
        return run.step is not None and run.step > SLOW_STEP * shortest_step[run.key]

    return {index for index, run in enumerate(runs) if run.doubted or is_slow(run)}


def _shortest(races: Iterable[dict[int, float]]) -> dict[int, float]:
    """The shortest pass of each width or of a greater one. races: the passes of each."""
    by_width = _lowest(pair for passes in races for pair in passes.items())
    return at_most_wider(by_width)


def _lowest(values: Iterable[tuple[K, float]]) -> dict[K, float]:
    """The lowest value of each key."""
    lowest: dict[K, float] = {}
    for key, value in values:
        lowest[key] = min(value, lowest.get(key, math.inf))
    return lowest


def by_prompt(
    runs: Iterable[RaceFigures], figure: Callable[[RaceFigures], float | None]
) -> dict[int, float]:
    """The median of a figure over the repeats of each prompt; prompts on which it is always None
    are left out."""
    repeats: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        value = figure(run)
        if value is not None:
            repeats[run.prompt].append(value)
    return {prompt: statistics.median(values) for prompt, values in repeats.items()}

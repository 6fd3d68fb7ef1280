"""The table of a sweep: from races and predictions to rows, and which of them noise cannot tell
from the best one.

Each run is compared with its own baseline, which was interleaved with it, so that a machine that
becomes slower or faster between runs changes nothing. A prompt's value is the median over its
repeats of the logarithm of the speed-up. Intervals are those of the bootstrap over prompts.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...core.events import Round
from ...core.policy import predicted_tau
from ...lanes import BASELINE, SPECULATIVE, Lane
from ...prompts import Question
from ...runs.metrics import Metrics, compute_metrics, ratio
from ...runs.trace import Trace
from ...runs.uncertainty import (
    Estimate,
    Spread,
    geometric_mean,
    mean_interval,
    seconds_of,
    spread,
    uncertainty,
)
from .along import Rounds, figures, rounds_of
from .types import Configuration, Mark, Measured, Predicted, RoundTimes, Row, Status

BUSY = ("price", "delay", "spread")  # doubts that mean that something else used the machine
FITS = 30  # turns of a fit, which has long settled by then
FEWEST = 4  # prompts that two rows share before one of them is given up
ENOUGH = 3  # prompts that two rows share before one may be called better or as good
KEEP = 0.8  # of the best predicted speed-up: a row predicted to be below it is not measured

Values = Mapping[int, float]
"""Question -> the logarithm of a row's speed-up there, measured or predicted."""


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """What one race gave. key: of the configuration. question: the index of its prompt. rounds:
    with drafts. doubted: whether the machine was busy."""

    key: str
    question: int
    metrics: Metrics
    rounds: Rounds
    doubted: bool


def race_figures(key: str, question: int, trace: Trace) -> RaceFigures:
    """The numbers of a race."""
    doubted = uncertainty(trace)
    return RaceFigures(
        key=key,
        question=question,
        metrics=compute_metrics(trace),
        rounds=rounds_of(trace),
        doubted=doubted is not None and doubted.doubt in BUSY,
    )


@dataclass(slots=True)
class Costs:
    """Samples, one for each run: verify by width of the target pass, a draft step by drafter, and
    the overhead of a round; all in rounds of the target alone."""

    verify: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    step: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    overhead: list[float] = field(default_factory=list)

    def add(self, trace: Trace) -> None:
        """Take account of a run, which may have ended early."""
        rounds = trace.lane(SPECULATIVE)
        baseline_rounds = trace.lane(BASELINE)
        if not rounds or not baseline_rounds:
            return
        unit = statistics.median(map(seconds_of, baseline_rounds))  # seconds
        if unit <= 0.0:  # the clock is too coarse for these passes
            return
        by_width: dict[int, list[Round]] = defaultdict(list)
        for r in rounds:
            by_width[1 + len(r.drafted)].append(r)
        self._add_passes(1, baseline_rounds, unit)
        for width, rounds_of_width in by_width.items():
            self._add_passes(width, rounds_of_width, unit)
        drafting = [r for r in rounds if r.drafted]
        if drafting:
            # The mean: a drafter of two ways, one of which costs nothing, has no usual step.
            cost = sum(r.draft_seconds for r in drafting) / unit
            drafted = sum(len(r.drafted) for r in drafting)
            self.step[trace.header.settings.drafter].append(cost / drafted)
        self.overhead.append(statistics.median(r.overhead_seconds / unit for r in rounds))

    def _add_passes(self, width: int, rounds: Sequence[Round], unit: float) -> None:
        cost = statistics.median(r.verify_seconds / unit for r in rounds)
        self.verify[width].append(cost)

    def speedup(self, drafter: str, rounds: Rounds) -> float | None:
        """The tokens of such rounds by their cost in rounds of the target alone; None if a cost is
        unknown."""
        if drafter not in self.step or len(self.verify) < 2 or not rounds:
            return None
        step = statistics.median(self.step[drafter])
        overhead = statistics.median(self.overhead)
        widths, pass_costs = self._by_width()
        cost = 0.0
        tokens = 0
        for counts, number in rounds.items():
            # The cost of a pass between two measured widths lies on the line through them.
            target_pass = np.interp(1 + counts.drafted, widths, pass_costs)
            cost += number * (counts.drafted * step + target_pass + overhead)
            tokens += number * counts.emitted
        return float(tokens / cost) if cost > 0 else None

    def _by_width(self) -> tuple[list[int], list[float]]:
        """Rising widths, and the median cost of each, averaged with its neighbours where it falls:
        a wider pass costs no less, so a fall is noise (isotonic regression, by pooling adjacent
        violators)."""
        blocks: list[_Block] = []
        for _, samples in sorted(self.verify.items()):
            block = _Block(statistics.median(samples), len(samples), 1)
            while blocks and blocks[-1].cost > block.cost:
                block = _pooled(blocks.pop(), block)
            blocks.append(block)
        costs = [block.cost for block in blocks for _ in range(block.widths)]
        return sorted(self.verify), costs


class _Block(NamedTuple):
    """Neighbouring widths that cost the same: their cost, the samples that it comes from, and the
    number of widths."""

    cost: float
    samples: int
    widths: int


def _pooled(narrow: _Block, wide: _Block) -> _Block:
    samples = narrow.samples + wide.samples
    cost = (narrow.cost * narrow.samples + wide.cost * wide.samples) / samples
    return _Block(cost, samples, narrow.widths + wide.widths)


@dataclass
class Findings:
    """All that a sweep knows. predicted: row -> question -> rounds. missing: why drafters are left
    out. memory: as in `Row`, by drafter."""

    rows: tuple[Configuration, ...]
    questions: tuple[Question, ...]
    runs: list[RaceFigures] = field(default_factory=list)
    predicted: dict[str, dict[int, Rounds]] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    missing: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int | None] = field(default_factory=dict)

    def table(self) -> tuple[Row, ...]:
        """Every row as it is known now."""
        runs: dict[str, list[RaceFigures]] = {row.key: [] for row in self.rows}
        for run in self.runs:
            runs[run.key].append(run)
        measured = {row.key: _measured_values(runs[row.key]) for row in self.rows}
        predicted = {row.key: self._predicted_values(row) for row in self.rows}
        marks: dict[str, Mark] = {}
        eliminated: set[str] = set()
        shifts: dict[str, float] = {}
        possible = [row for row in self.rows if row.drafter not in self.missing]
        for temperature in dict.fromkeys(row.temperature for row in possible):
            values = {
                row.key: measured[row.key] for row in possible if row.temperature == temperature
            }
            marks |= marked(values, predicted)
            eliminated |= slower(values)
            shifts |= fitted(values).shifts
        rows: list[Row] = []
        for row in self.rows:
            key = row.key
            shift = shifts.get(key, 0.0)
            rows.append(
                Row(
                    configuration=row,
                    status=self._status(row, bool(runs[key]), key in eliminated),
                    mark=marks.get(key),
                    predicted=self._prediction(row, predicted[key]),
                    measured=self._measured(row, runs[key], measured[key], shift),
                    memory=self.memory.get(row.drafter),
                    note=self.missing.get(row.drafter, ""),
                )
            )
        return without_hopeless(rows)

    def _predicted_values(self, row: Configuration) -> dict[int, float]:
        speeds = {
            question: self.costs.speedup(row.drafter, rounds)
            for question, rounds in self.predicted.get(row.key, {}).items()
        }
        return {question: math.log(speed) for question, speed in speeds.items() if speed}

    def _status(self, row: Configuration, is_measured: bool, is_eliminated: bool) -> Status:
        if row.drafter in self.missing:
            return "left out"
        if is_eliminated:
            return "eliminated"
        if is_measured:
            return "measured"
        if any(self.predicted.get(row.key, {}).values()):
            return "predicted"
        return "planned"

    def _prediction(self, row: Configuration, values: Values) -> Predicted | None:
        rounds = sum(self.predicted.get(row.key, {}).values(), Counter())
        if not rounds:
            return None
        # Speed-ups are averaged over prompts as the measured ones are.
        speedup = math.exp(statistics.fmean(values.values())) if values else None
        is_exact = row.temperature == 0.0
        return Predicted(exact=is_exact, speedup=speedup, **figures(rounds))

    def _measured(
        self, row: Configuration, runs: list[RaceFigures], values: Values, shift: float
    ) -> Measured | None:
        """shift: what is added to the mean of the values, for the prompts on which it ran."""
        if not runs:
            return None
        # A greedy repeat has the same rounds again: they are counted once.
        first_runs = list({run.question: run for run in reversed(runs)}.values())
        counted_runs = runs if row.temperature > 0.0 else first_runs
        rounds = sum((run.rounds for run in counted_runs), Counter())
        metrics = [run.metrics for run in runs]
        costs = [m.c for m in metrics if m.c is not None]
        speedup = None
        if values:
            speedup = geometric_mean([value + shift for value in values.values()])
        return Measured(
            runs=len(runs),
            prompts=len(first_runs),
            rate=_rate(metrics, SPECULATIVE),
            alone_rate=_rate(metrics, BASELINE),
            speedup=speedup,
            by_kind=self._by_kind(values),
            tau_predicted=_tau_predicted(rounds),
            c=statistics.median(costs) if costs else None,
            times=_round_times(metrics),
            doubts=sum(run.doubted for run in runs),
            **figures(rounds),
        )

    def _by_kind(self, values: Values) -> dict[str, Estimate]:
        by_kind: dict[str, list[float]] = defaultdict(list)
        for question, value in sorted(values.items()):
            by_kind[self.questions[question].kind].append(value)
        return {kind: geometric_mean(values_of_kind) for kind, values_of_kind in by_kind.items()}


def without_hopeless(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, those left out of which nothing can be predicted, by a drafter that is predicted to
    be far behind with every gamma: an adapted one does not save it."""
    found = []
    for row in rows:
        settings = row.configuration
        if row.status == "planned" and _is_far_behind(settings, rows):
            behind = f"{settings.drafter} is far behind at every gamma"
            note = f"{behind}, so {settings.policy} was not measured."
            row = replace(row, status="left out", note=note)
        found.append(row)
    return tuple(found)


def _is_far_behind(one: Configuration, rows: Sequence[Row]) -> bool:
    """Whether all that is predicted of its drafter is, at its temperature."""
    rivals = [row for row in rows if row.configuration.temperature == one.temperature]
    own = [row for row in rivals if row.configuration.drafter == one.drafter]
    return 0.0 < best_promise(own) < KEEP * best_promise(rivals)


def best_promise(rows: Sequence[Row]) -> float:
    """The highest predicted speed-up, 0 where none is predicted."""
    return max((row.promise or 0.0 for row in rows), default=0.0)


def _measured_values(runs: Sequence[RaceFigures]) -> dict[int, float]:
    repeats: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        if run.metrics.speedup:
            repeats[run.question].append(math.log(run.metrics.speedup))
    return {question: statistics.median(values) for question, values in repeats.items()}


def _tau_predicted(rounds: Rounds) -> float | None:
    """Tokens per round by the formula, from alpha; None if no draft was judged."""
    alpha = figures(rounds)["alpha"]
    if alpha is None:
        return None
    tokens = sum(predicted_tau(alpha, counts.drafted) * number for counts, number in rounds.items())
    return ratio(tokens, rounds.total())


def _rate(metrics: Sequence[Metrics], lane: Lane) -> Spread:
    rates = [m.tokens_per_second[lane] for m in metrics]
    return spread([rate for rate in rates if rate is not None] or [0.0])


def _round_times(metrics: Sequence[Metrics]) -> RoundTimes:
    # A round of the target alone writes one token.
    alone = [m.seconds[BASELINE] / max(1, m.tokens[BASELINE]) for m in metrics]
    scale = 1000 / max(1, sum(m.rounds for m in metrics))  # from seconds to ms per round
    return RoundTimes(
        draft=scale * sum(m.draft_seconds for m in metrics),
        verify=scale * sum(m.verify_seconds for m in metrics),
        overhead=scale * sum(m.overhead_seconds for m in metrics),
        alone=1000 * statistics.fmean(alone),
    )


def difference(values: Values, reference: Values, fewest: int = 2) -> tuple[float, float] | None:
    """The interval of how much a row is above another one, the reference, on the questions that
    both have; None if these are fewer than `fewest`."""
    shared = sorted(values.keys() & reference.keys())
    if len(shared) < fewest:
        return None
    return mean_interval(tuple(values[question] - reference[question] for question in shared))


@dataclass(frozen=True, slots=True)
class Fit:
    """How fast rows are when the prompts on which they happened to run are allowed for.

    effects: by row. shifts: what is to be added to the mean of a row's own values to have its mean
    on the prompts of all rows; 0 for one that ran on all of them.
    """

    effects: dict[str, float]
    shifts: dict[str, float]


def fitted(rows: Mapping[str, Values]) -> Fit:
    """The rows' parts in value = row + prompt, fitted by turns (least squares for an unbalanced
    table)."""
    rows = {key: values for key, values in rows.items() if values}
    if not rows:
        return Fit({}, {})
    effects = dict.fromkeys(rows, 0.0)
    prompt_effects = {question: 0.0 for values in rows.values() for question in values}
    for _ in range(FITS):
        for key, values in rows.items():
            rests = [value - prompt_effects[question] for question, value in values.items()]
            effects[key] = statistics.fmean(rests)
        for question in prompt_effects:
            rests = [
                values[question] - effects[key]
                for key, values in rows.items()
                if question in values
            ]
            prompt_effects[question] = statistics.fmean(rests)
    usual = statistics.fmean(prompt_effects.values())
    shifts = {
        key: usual - statistics.fmean(prompt_effects[question] for question in values)
        for key, values in rows.items()
    }
    return Fit(effects, shifts)


def best_row(rows: Mapping[str, Values]) -> str | None:
    """The key of the fastest row, as `fitted` has it, among those measured on at least half as many
    prompts as any."""
    effects = fitted(rows).effects
    most = max(map(len, rows.values()), default=0)
    comparable = [key for key in effects if 2 * len(rows[key]) >= most]
    return max(comparable, key=effects.__getitem__, default=None)


def is_open(measured: Values, best: Values, predicted: Values) -> bool:
    """Whether a row promises more than the best one and ran on too few of its prompts to tell.

    The promise is compared on the prompts that both have: what is predicted, or without a
    prediction what was measured, with what the best row reached.
    """
    if len(measured.keys() & best.keys()) >= min(ENOUGH, len(best)):
        return False
    promise = predicted or measured
    if not promise:
        return False
    shared = promise.keys() & best.keys()
    if not shared:
        return statistics.fmean(promise.values()) > statistics.fmean(best.values())
    return statistics.fmean(promise[question] - best[question] for question in shared) > 0


def marked(values: Mapping[str, Values], predicted: Mapping[str, Values]) -> dict[str, Mark]:
    """The marks of the rows of one temperature."""
    best = best_row(values)
    if best is None:
        return {}
    marks: dict[str, Mark] = {best: "best"}
    best_values = values[best]
    effects = fitted(values).effects
    behind = slower(values)
    # Faster as far as it is known, and not the best one only since it ran on too few prompts.
    ahead = {key for key, effect in effects.items() if effect > effects[best]} - behind
    for key, row_values in values.items():
        if key == best:
            continue
        interval = difference(row_values, best_values, min(ENOUGH, len(best_values)))
        if key in ahead or is_open(row_values, best_values, predicted[key]):
            marks[key] = "open"
        elif interval is not None and interval[1] >= 0:
            marks[key] = "tied"
    return marks


def slower(rows: Mapping[str, Values]) -> set[str]:
    """The rows that are slower than the best one beyond noise, on `FEWEST` prompts or more."""
    best = best_row(rows)
    if best is None:
        return set()
    behind: set[str] = set()
    for key, values in rows.items():
        interval = difference(values, rows[best], FEWEST)
        if key != best and interval is not None and interval[1] < 0:
            behind.add(key)
    return behind

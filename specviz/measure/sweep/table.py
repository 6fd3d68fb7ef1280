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
from dataclasses import dataclass, field

import numpy as np

from ...core.events import Round
from ...core.policy import predicted_tau
from ...lanes import BASELINE, SPECULATIVE, Lane
from ...prompts import Question
from ...runs.metrics import Metrics, compute_metrics, ratio
from ...runs.trace import Trace
from ...runs.uncertainty import (
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

Values = Mapping[int, float]
"""Question -> the logarithm of a row's speed-up there, measured or predicted."""


@dataclass(frozen=True, slots=True)
class OneRace:
    """What one race gave. key: of the configuration. question: the index of its prompt. rounds:
    with drafts. doubted: whether the machine was busy."""

    key: str
    question: int
    metrics: Metrics
    rounds: Rounds
    doubted: bool


def run_of(key: str, question: int, trace: Trace) -> OneRace:
    """The numbers of a race."""
    found = uncertainty(trace)
    is_doubted = found is not None and found.doubt in BUSY
    return OneRace(key, question, compute_metrics(trace), rounds_of(trace), is_doubted)


@dataclass(slots=True)
class Costs:
    """Samples, one for each run: verify by width of the target pass, a draft step by drafter, and
    the overhead of a round; all in rounds of the target alone."""

    verify: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    step: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    overhead: list[float] = field(default_factory=list)

    def add(self, trace: Trace) -> None:
        """Take account of a run, which may have ended early."""
        alone, rounds = trace.lane("baseline"), trace.lane("speculative")
        single = statistics.median(map(seconds_of, alone)) if alone and rounds else 0.0
        if single <= 0.0:  # there was no round, or the clock is too coarse for these passes
            return
        by_width: dict[int, list[Round]] = defaultdict(list)
        for r in rounds:
            by_width[1 + len(r.drafted)].append(r)
        for width, some in ((1, alone), *by_width.items()):
            self.verify[width].append(statistics.median(r.verify_seconds / single for r in some))
        drafting = [r for r in rounds if r.drafted]
        if drafting:
            # The mean: a drafter of two ways, one of which costs nothing, has no usual step.
            spent = sum(r.draft_seconds for r in drafting) / single
            drafted = sum(len(r.drafted) for r in drafting)
            self.step[trace.header.settings.drafter].append(spent / drafted)
        self.overhead.append(statistics.median(r.overhead_seconds / single for r in rounds))

    def speedup(self, drafter: str, rounds: Rounds) -> float | None:
        """The tokens of such rounds by their cost in rounds of the target alone; None if a cost is
        unknown."""
        if drafter not in self.step or len(self.verify) < 2 or not rounds:
            return None
        step, overhead = statistics.median(self.step[drafter]), statistics.median(self.overhead)
        known = self._by_width()
        cost = sum(
            # The cost of a pass between two measured widths lies on the line through them.
            count * (length * step + np.interp(1 + length, *known) + overhead)
            for (length, *_), count in rounds.items()
        )
        tokens = sum(emitted * count for (*_, emitted), count in rounds.items())
        return float(tokens / cost) if cost > 0 else None

    def _by_width(self) -> tuple[list[int], list[float]]:
        """Rising widths, and the median cost of each, averaged with its neighbours where it falls:
        a wider pass costs no less, so a fall is noise (isotonic regression, by pooling adjacent
        violators)."""
        blocks: list[tuple[float, int, int]] = []  # mean, samples, number of widths
        for _, some in sorted(self.verify.items()):
            mean, count, widths = statistics.median(some), len(some), 1
            while blocks and blocks[-1][0] > mean:
                before, many, wide = blocks.pop()
                mean = (before * many + mean * count) / (many + count)
                count, widths = many + count, wide + widths
            blocks.append((mean, count, widths))
        return sorted(self.verify), [mean for mean, _, widths in blocks for _ in range(widths)]


@dataclass
class Findings:
    """All that a sweep knows. predicted: row -> question -> rounds. missing: why drafters are left
    out. memory: as in `Row`, by drafter."""

    rows: tuple[Configuration, ...]
    questions: tuple[Question, ...]
    runs: list[OneRace] = field(default_factory=list)
    predicted: dict[str, dict[int, Rounds]] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    missing: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int | None] = field(default_factory=dict)

    def table(self) -> tuple[Row, ...]:
        """Every row as it is known now."""
        runs: dict[str, list[OneRace]] = defaultdict(list)
        for run in self.runs:
            runs[run.key].append(run)
        measured = {row.key: _values(runs[row.key]) for row in self.rows}
        predicted = {row.key: self._predicted_values(row) for row in self.rows}
        marks: dict[str, Mark] = {}
        eliminated: set[str] = set()
        shifts: dict[str, float] = {}
        possible = [row for row in self.rows if row.drafter not in self.missing]
        for temperature in dict.fromkeys(row.temperature for row in possible):
            group = [row.key for row in possible if row.temperature == temperature]
            values = {key: measured[key] for key in group}
            marks |= marked(values, predicted)
            eliminated |= slower(values)
            shifts |= fitted(values).shifts
        return tuple(
            Row(
                configuration=one,
                status=self._status(one, bool(runs[one.key]), one.key in eliminated),
                mark=marks.get(one.key),
                predicted=self._prediction(one, predicted[one.key]),
                measured=self._measured(
                    one, runs[one.key], measured[one.key], shifts.get(one.key, 0.0)
                ),
                memory=self.memory.get(one.drafter),
                note=self.missing.get(one.drafter, ""),
            )
            for one in self.rows
        )

    def _predicted_values(self, row: Configuration) -> dict[int, float]:
        speeds = {
            question: self.costs.speedup(row.drafter, rounds)
            for question, rounds in self.predicted.get(row.key, {}).items()
        }
        return {question: math.log(speed) for question, speed in speeds.items() if speed}

    def _status(self, row: Configuration, is_measured: bool, is_eliminated: bool) -> Status:
        if row.drafter in self.missing:
            return "left out"
        if is_measured:
            return "eliminated" if is_eliminated else "measured"
        return "predicted" if any(self.predicted.get(row.key, {}).values()) else "planned"

    def _prediction(self, row: Configuration, values: Values) -> Predicted | None:
        total = sum(self.predicted.get(row.key, {}).values(), Counter())
        # Speed-ups are averaged over prompts as the measured ones are.
        speedup = math.exp(statistics.fmean(values.values())) if values else None
        exact = row.temperature == 0.0
        return Predicted(exact=exact, speedup=speedup, **figures(total)) if total else None

    def _measured(
        self, row: Configuration, runs: list[OneRace], values: Values, shift: float
    ) -> Measured | None:
        """shift: what is added to the mean of the values, for the prompts on which it ran."""
        if not runs:
            return None
        # A greedy repeat has the same rounds again: they are counted once.
        once = {run.question: run for run in reversed(runs)}.values()
        total = sum((run.rounds for run in (runs if row.temperature > 0.0 else once)), Counter())
        found = figures(total)
        alpha = found["alpha"]
        tokens = sum(predicted_tau(alpha or 0.0, one[0]) * count for one, count in total.items())
        by_kind: dict[str, list[float]] = defaultdict(list)
        for question, value in sorted(values.items()):
            by_kind[self.questions[question].kind].append(value)
        metrics = [run.metrics for run in runs]
        c = [m.c for m in metrics if m.c is not None]
        return Measured(
            runs=len(runs),
            prompts=len(once),
            rate=_rate(metrics, SPECULATIVE),
            alone_rate=_rate(metrics, BASELINE),
            speedup=geometric_mean([v + shift for v in values.values()]) if values else None,
            by_kind={kind: geometric_mean(some) for kind, some in by_kind.items()},
            tau_predicted=None if alpha is None else ratio(tokens, total.total()),
            c=statistics.median(c) if c else None,
            times=_times(metrics),
            doubts=sum(run.doubted for run in runs),
            **found,
        )


def _values(runs: Sequence[OneRace]) -> dict[int, float]:
    seen: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        if run.metrics.speedup:
            seen[run.question].append(math.log(run.metrics.speedup))
    return {question: statistics.median(some) for question, some in seen.items()}


def _rate(metrics: Sequence[Metrics], lane: Lane) -> Spread:
    rates = [m.tokens_per_second[lane] for m in metrics]
    return spread([rate for rate in rates if rate is not None] or [0.0])


def _times(metrics: Sequence[Metrics]) -> RoundTimes:
    # A round of the target alone writes one token.
    alone = [m.seconds[BASELINE] / max(1, m.tokens[BASELINE]) for m in metrics]
    scale = 1000 / max(1, sum(m.rounds for m in metrics))  # from seconds to ms per round
    return RoundTimes(
        draft=scale * sum(m.draft_seconds for m in metrics),
        verify=scale * sum(m.verify_seconds for m in metrics),
        overhead=scale * sum(m.overhead_seconds for m in metrics),
        alone=1000 * statistics.fmean(alone),
    )


def difference(one: Values, other: Values, fewest: int = 2) -> tuple[float, float] | None:
    """The interval of how much `one` is above `other`, on the questions that both have; None if
    these are fewer than `fewest`."""
    shared = sorted(one.keys() & other.keys())
    if len(shared) < fewest:
        return None
    return mean_interval(tuple(one[question] - other[question] for question in shared))


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
    prompts = dict.fromkeys((question for values in rows.values() for question in values), 0.0)
    effects = dict.fromkeys(rows, 0.0)
    for _ in range(FITS):
        for key, values in rows.items():
            effects[key] = statistics.fmean(v - prompts[question] for question, v in values.items())
        for question in prompts:
            left = [v[question] - effects[key] for key, v in rows.items() if question in v]
            prompts[question] = statistics.fmean(left)
    usual = statistics.fmean(prompts.values()) if prompts else 0.0
    shifts = {
        key: usual - statistics.fmean(prompts[question] for question in values)
        for key, values in rows.items()
    }
    return Fit(effects, shifts)


def best_row(rows: Mapping[str, Values]) -> str | None:
    """The key of the fastest row, as `fitted` has it, among those measured on at least half as many
    prompts as any."""
    effects = fitted(rows).effects
    most = max(map(len, rows.values()), default=0)
    known = [key for key in effects if 2 * len(rows[key]) >= most]
    return max(known, key=effects.__getitem__, default=None)


def is_open(own: Values, best: Values, predicted: Values) -> bool:
    """Whether a row promises more than the best one and ran on too few of its prompts to tell.

    The promise is compared on the prompts that both have: what is predicted, or without a
    prediction what was measured, with what the best row reached.
    """
    if len(own.keys() & best.keys()) >= min(ENOUGH, len(best)):
        return False
    known = predicted or own
    shared = known.keys() & best.keys()
    if not shared:
        return bool(known) and statistics.fmean(known.values()) > statistics.fmean(best.values())
    return statistics.fmean(known[one] - best[one] for one in shared) > 0


def marked(values: Mapping[str, Values], predicted: Mapping[str, Values]) -> dict[str, Mark]:
    """The marks of the rows of one temperature."""
    best = best_row(values)
    if best is None:
        return {}
    marks: dict[str, Mark] = {best: "best"}
    effects = fitted(values).effects
    behind = slower(values)
    # Faster as far as it is known, and not the best one only since it ran on too few prompts.
    ahead = {key for key, effect in effects.items() if effect > effects[best]} - behind
    for key, own in values.items():
        interval = difference(own, values[best], min(ENOUGH, len(values[best])))
        if key != best and (key in ahead or is_open(own, values[best], predicted[key])):
            marks[key] = "open"
        elif key != best and interval is not None and interval[1] >= 0:
            marks[key] = "tied"
    return marks


def slower(rows: Mapping[str, Values]) -> set[str]:
    """The rows that are slower than the best one beyond noise, on `FEWEST` prompts or more."""
    best = best_row(rows)
    found = {key: difference(own, rows[best], FEWEST) for key, own in rows.items() if best}
    return {key for key, interval in found.items() if key != best and interval and interval[1] < 0}

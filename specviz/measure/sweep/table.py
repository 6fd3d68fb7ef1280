"""The table of a sweep: from runs and predictions to rows, and which of them noise cannot tell from
the best one.

A prompt's value is the median over its repeats of the logarithm of the speed-up. Intervals are
those of the bootstrap over prompts.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...core.policy import predicted_tau
from ...kinds import drafter_kind
from ...lanes import LANES
from ...prompts import Question
from ...runs.metrics import Metrics, ratio
from ...runs.uncertainty import geometric_mean, mean_interval, spread
from .along import Rounds, figures
from .observed import Costs, OneRace
from .types import Configuration, Mark, Measured, Predicted, RoundTimes, Row, Status

FITS = 30  # turns of a fit, which has long settled by then
FEWEST = 4  # prompts that two rows share before one of them is given up
ENOUGH = 3  # prompts that two rows share before one may be called better or as good

Values = Mapping[int, float]
"""Question -> the logarithm of a row's speed-up there, measured or predicted."""


@dataclass
class Findings:
    """All that a sweep knows. predicted: row -> question -> rounds. missing: why drafters are left
    out. weights: bytes of the target and the draft, once known."""

    rows: tuple[Configuration, ...]
    questions: tuple[Question, ...]
    runs: list[OneRace] = field(default_factory=list)
    predicted: dict[str, dict[int, Rounds]] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    missing: dict[str, str] = field(default_factory=dict)
    weights: tuple[int, int | None] | None = None

    def table(self) -> tuple[Row, ...]:
        """Every row as it is known now."""
        measured = self._measured_values()
        predicted = {row.key: self._predicted_values(row) for row in self.rows}
        marks: dict[str, Mark] = {}
        eliminated: set[str] = set()
        for temperature in dict.fromkeys(row.temperature for row in self.rows):
            group = [row for row in self.rows if row.temperature == temperature]
            possible = [row.key for row in group if row.drafter not in self.missing]
            values = {key: measured.get(key, {}) for key in possible}
            marks |= marked(values, predicted)
            eliminated |= slower(values)
        runs: dict[str, list[OneRace]] = defaultdict(list)
        for run in self.runs:
            runs[run.key].append(run)
        return tuple(
            Row(
                configuration=one,
                status=self._status(one, bool(runs[one.key]), one.key in eliminated),
                mark=marks.get(one.key),
                predicted=self._prediction(one, predicted[one.key]),
                measured=self._measurement(one, runs[one.key], measured.get(one.key, {})),
                memory=self._memory(one),
                note=self.missing.get(one.drafter, ""),
            )
            for one in self.rows
        )

    def _measured_values(self) -> dict[str, dict[int, float]]:
        seen: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in self.runs:
            if run.metrics.speedup:
                seen[run.key][run.question].append(math.log(run.metrics.speedup))
        return {
            key: {question: statistics.median(some) for question, some in by_question.items()}
            for key, by_question in seen.items()
        }

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

    def _memory(self, row: Configuration) -> int | None:
        needs = drafter_kind(row.drafter).needs
        if self.weights is None or needs not in (None, "layers", "draft"):
            return None  # the weights of other parts belong to neither model
        target, draft = self.weights
        return target + (draft or 0 if needs == "draft" else 0)

    def _prediction(self, row: Configuration, values: Values) -> Predicted | None:
        total = sum(self.predicted.get(row.key, {}).values(), Counter())
        # Speed-ups are averaged over prompts as the measured ones are.
        speedup = math.exp(statistics.fmean(values.values())) if values else None
        exact = row.temperature == 0.0
        return Predicted(exact=exact, speedup=speedup, **figures(total)) if total else None

    def _measurement(
        self, row: Configuration, runs: Sequence[OneRace], values: Values
    ) -> Measured | None:
        if not runs:
            return None
        # A greedy repeat has the same rounds again: they are counted once.
        once = {run.question: run for run in reversed(runs)}.values()
        total = sum((run.rounds for run in (runs if row.temperature > 0.0 else once)), Counter())
        found = figures(total)
        tokens = sum(
            predicted_tau(found["alpha"] or 0.0, drafted) * count
            for (drafted, *_), count in total.items()
        )
        by_kind: dict[str, list[float]] = defaultdict(list)
        for question, value in sorted(values.items()):
            by_kind[self.questions[question].kind].append(value)
        metrics = [run.metrics for run in runs]
        rates = {
            lane: spread(_known([m.tokens_per_second[lane] for m in metrics]) or [0.0])
            for lane in LANES
        }
        c = _known([m.c for m in metrics])
        return Measured(
            runs=len(runs),
            prompts=len(once),
            rate=rates["speculative"],
            alone_rate=rates["baseline"],
            speedup=geometric_mean([*values.values()]) if values else None,
            by_kind={kind: geometric_mean(some) for kind, some in by_kind.items()},
            tau_predicted=None if found["alpha"] is None else ratio(tokens, total.total()),
            c=statistics.median(c) if c else None,
            times=_times(metrics, statistics.fmean(run.alone for run in runs)),
            doubts=sum(run.doubted for run in runs),
            **found,
        )


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _times(metrics: Sequence[Metrics], alone: float) -> RoundTimes:
    scale = 1000 / max(1, sum(m.rounds for m in metrics))  # from seconds to ms per round
    parts = {
        part: scale * sum(getattr(m, f"{part}_seconds") for m in metrics)
        for part in ("draft", "verify", "overhead")
    }
    return RoundTimes(alone=1000 * alone, **parts)


def difference(one: Values, other: Values, fewest: int = 2) -> tuple[float, float] | None:
    """The interval of how much `one` is above `other`, on the questions that both have; None if
    these are fewer than `fewest`."""
    shared = sorted(one.keys() & other.keys())
    if len(shared) < fewest:
        return None
    return mean_interval([one[question] - other[question] for question in shared])


def best_row(rows: Mapping[str, Values]) -> str | None:
    """The key of the fastest row among those measured on at least half as many prompts as any.

    How fast a row is when the prompts on which it happened to run are allowed for: its part in
    value = row + prompt, fitted by turns (least squares for an unbalanced table).
    """
    rows = {key: values for key, values in rows.items() if values}
    prompts = dict.fromkeys((question for values in rows.values() for question in values), 0.0)
    effects = dict.fromkeys(rows, 0.0)
    for _ in range(FITS):
        for key, values in rows.items():
            effects[key] = statistics.fmean(v - prompts[question] for question, v in values.items())
        for question in prompts:
            left = [v[question] - effects[key] for key, v in rows.items() if question in v]
            prompts[question] = statistics.fmean(left)
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
    for key, own in values.items():
        interval = difference(own, values[best], min(ENOUGH, len(values[best])))
        if key != best and is_open(own, values[best], predicted[key]):
            marks[key] = "open"
        elif key != best and interval is not None and interval[1] >= 0:
            marks[key] = "tied"
    return marks


def slower(rows: Mapping[str, Values]) -> set[str]:
    """The rows that are slower than the best one beyond noise, on `FEWEST` prompts or more."""
    best = best_row(rows)
    found = {key: difference(own, rows[best], FEWEST) for key, own in rows.items() if best}
    return {key for key, interval in found.items() if key != best and interval and interval[1] < 0}

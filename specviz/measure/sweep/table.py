"""The table of a sweep: from runs and predictions to rows, and which of them noise cannot tell from
the best one.

A prompt's value is the median over its repeats of the logarithm of the speed-up. Intervals are
those of the bootstrap over prompts.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ...kinds import drafter_kind
from ...lanes import LANES
from ...prompts import Question
from ...runs.uncertainty import geometric_mean, mean_interval, spread
from .observed import Costs, Run, only
from .rounds import RoundCounts
from .types import Configuration, Mark, Measured, Predicted, RoundTimes, Row, Status

FITS = 30  # turns of a fit, which has long settled by then
FEWEST = 4  # prompts that two rows share before one of them is given up
ENOUGH = 3  # prompts that two rows share before one may be called better or as good

Values = Mapping[int, float]
"""Question -> the median logarithm of the speed-up there."""


def values_by_row(runs: Iterable[Run]) -> dict[str, dict[int, float]]:
    """The value of each question, by row."""
    seen: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.metrics.speedup:
            seen[run.key][run.question].append(math.log(run.metrics.speedup))
    return {
        key: {question: statistics.median(some) for question, some in by_question.items()}
        for key, by_question in seen.items()
    }


def difference(one: Values, other: Values, fewest: int = 2) -> tuple[float, float] | None:
    """The interval of how much `one` is above `other`, on the questions that both have; None if
    these are fewer than `fewest`."""
    shared = sorted(one.keys() & other.keys())
    if len(shared) < fewest:
        return None
    return mean_interval([one[question] - other[question] for question in shared])


def best_row(rows: Mapping[str, Values]) -> str | None:
    """The key of the fastest row among those measured on at least half as many prompts as any."""
    most = max(map(len, rows.values()), default=0)
    effects = _effects({key: values for key, values in rows.items() if values})
    known = [key for key in effects if 2 * len(rows[key]) >= most]
    return max(known, key=effects.__getitem__, default=None)


def _effects(rows: Mapping[str, Values]) -> dict[str, float]:
    """How fast each row is when the prompts on which it happened to run are allowed for: the row's
    part in value = row + prompt, fitted by turns (least squares for an unbalanced table)."""
    prompts = dict.fromkeys((question for values in rows.values() for question in values), 0.0)
    effects = dict.fromkeys(rows, 0.0)
    for _ in range(FITS):
        for key, values in rows.items():
            effects[key] = statistics.fmean(v - prompts[question] for question, v in values.items())
        for question in prompts:
            left = [v[question] - effects[key] for key, v in rows.items() if question in v]
            prompts[question] = statistics.fmean(left)
    return effects


def enough(best: Values) -> int:
    """On how many prompts of the best row another one must have run to be compared with it."""
    return min(ENOUGH, len(best))


def is_open(own: Values, best: Values, predicted: Values) -> bool:
    """Whether a row promises more than the best one and ran on too few of its prompts to tell.

    predicted: question -> the logarithm of the speed-up that is predicted for the row there. The
    promise is compared on the prompts that both have: what is predicted, or without a prediction
    what was measured, with what the best row reached.
    """
    if len(own.keys() & best.keys()) >= enough(best):
        return False
    known = predicted or own
    shared = known.keys() & best.keys()
    if not shared:
        return bool(known) and statistics.fmean(known.values()) > statistics.fmean(best.values())
    return statistics.fmean(known[one] - best[one] for one in shared) > 0


def slower(rows: Mapping[str, Values]) -> set[str]:
    """The rows that are slower than the best one beyond noise, on `FEWEST` prompts or more."""
    best = best_row(rows)
    if best is None:
        return set()
    others = {key: values for key, values in rows.items() if key != best}
    found = {key: difference(values, rows[best], FEWEST) for key, values in others.items()}
    return {key for key, interval in found.items() if interval is not None and interval[1] < 0}


@dataclass
class Findings:
    """All that a sweep knows. predicted: row -> question -> counts. missing: why drafters are left
    out. weights: bytes of the target and the draft, once known."""

    rows: tuple[Configuration, ...]
    questions: tuple[Question, ...]
    runs: list[Run] = field(default_factory=list)
    predicted: dict[str, dict[int, RoundCounts]] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    missing: dict[str, str] = field(default_factory=dict)
    weights: tuple[int, int | None] | None = None


def finished_rows(found: Findings, eliminated: AbstractSet[str]) -> tuple[Row, ...]:
    """Every row of the table. eliminated: those that are measured no more."""
    values = values_by_row(found.runs)
    marks: dict[str, Mark] = {}
    for temperature in {row.temperature for row in found.rows}:
        group = [row for row in found.rows if row.temperature == temperature]
        marks |= _marks(
            {row.key: values.get(row.key, {}) for row in group if row.drafter not in found.missing},
            {row.key: predicted_values(found, row) for row in group},
        )
    by_row: dict[str, list[Run]] = defaultdict(list)
    for run in found.runs:
        by_row[run.key].append(run)
    return tuple(
        _row(
            found,
            one,
            by_row[one.key],
            values.get(one.key, {}),
            "eliminated" if one.key in eliminated else "measured",
            marks.get(one.key),
        )
        for one in found.rows
    )


def _marks(values: Mapping[str, Values], predicted: Mapping[str, Values]) -> dict[str, Mark]:
    best = best_row(values)
    if best is None:
        return {}
    marks: dict[str, Mark] = {best: "best"}
    for key, own in values.items():
        interval = difference(own, values[best], enough(values[best]))
        if key == best:
            continue
        if is_open(own, values[best], predicted[key]):
            marks[key] = "open"
        elif interval is not None and interval[1] >= 0:
            marks[key] = "tied"
    return marks


def predicted_values(found: Findings, row: Configuration) -> dict[int, float]:
    """Question -> the logarithm of the row's predicted speed-up there, where it is known."""
    speeds = {
        question: found.costs.speedup(row.drafter, counts)
        for question, counts in found.predicted.get(row.key, {}).items()
    }
    return {question: math.log(speed) for question, speed in speeds.items() if speed}


def _row(
    found: Findings,
    one: Configuration,
    runs: Sequence[Run],
    values: Mapping[int, float],
    done: Status,
    mark: Mark | None,
) -> Row:
    counts = found.predicted.get(one.key)
    predicted = _predicted(found, one, counts) if counts else None
    status: Status = done if runs else "planned" if predicted is None else "predicted"
    note, kinds = found.missing.get(one.drafter, ""), [one.kind for one in found.questions]
    return Row(
        configuration=one,
        status="left out" if note else status,
        mark=mark,
        predicted=predicted,
        measured=_measured(one, runs, values, kinds) if runs else None,
        memory=_memory(one, found.weights),
        note=note,
    )


def _memory(one: Configuration, weights: tuple[int, int | None] | None) -> int | None:
    needs = drafter_kind(one.drafter).needs
    if weights is None or needs not in (None, "layers", "draft"):
        return None  # the weights of other parts belong to neither model
    target, draft = weights
    return target + (draft or 0 if needs == "draft" else 0)


def _predicted(
    found: Findings, one: Configuration, counts: Mapping[int, RoundCounts]
) -> Predicted | None:
    total = RoundCounts().merge(counts.values())
    if total.tau is None:
        return None
    # Speed-ups are averaged over prompts as the measured ones are.
    logs = predicted_values(found, one).values()
    speedup = math.exp(statistics.fmean(logs)) if logs else None
    return Predicted(exact=one.temperature == 0.0, speedup=speedup, **total.figures())


def _measured(
    one: Configuration, runs: Sequence[Run], values: Mapping[int, float], kinds: Sequence[str]
) -> Measured:
    # A greedy repeat has the same rounds again: they are counted once.
    once = {run.question: run for run in reversed(runs)}.values()
    total = RoundCounts().merge(run.counts for run in (runs if one.temperature > 0.0 else once))
    rounds = sum(run.counts.rounds for run in runs)
    parts = {
        part: 1000 * sum(getattr(run.metrics, f"{part}_seconds") for run in runs) / max(1, rounds)
        for part in ("draft", "verify", "overhead")
    }
    by_kind: dict[str, list[float]] = defaultdict(list)
    for question, value in sorted(values.items()):
        by_kind[kinds[question]].append(value)
    rates = {
        lane: spread(only([run.metrics.tokens_per_second[lane] for run in runs]) or [0.0])
        for lane in LANES
    }
    c = only([run.metrics.c for run in runs])
    return Measured(
        runs=len(runs),
        prompts=len({run.question for run in runs}),
        rate=rates["speculative"],
        alone_rate=rates["baseline"],
        speedup=geometric_mean([*values.values()]) if values else None,
        by_kind={kind: geometric_mean(some) for kind, some in by_kind.items()},
        tau_predicted=total.tau_predicted,
        c=statistics.median(c) if c else None,
        times=RoundTimes(alone=1000 * statistics.fmean(run.alone for run in runs), **parts),
        doubts=sum(run.doubted for run in runs),
        **total.figures(),
    )

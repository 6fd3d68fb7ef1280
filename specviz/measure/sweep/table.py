"""The table of a sweep: from runs and predictions to rows."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ...core.theory import predicted_tau
from ...runs.metrics import ratio
from ...runs.uncertainty import spread
from .compare import Values, best_row, difference, enough, estimate, is_open, values_by_row
from .costs import Costs, only
from .measure import Run
from .rounds import RoundCounts
from .types import Configuration, Estimate, Mark, Measured, Predicted, Rate, RoundTimes, Row, Status


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a sweep knows. kinds: of each question. predicted: row -> question -> counts.
    missing: why drafters are left out. weights: bytes of the target and the draft, once known."""

    rows: Sequence[Configuration]
    kinds: Sequence[str]
    runs: Sequence[Run]
    predicted: Mapping[str, Mapping[int, RoundCounts]]
    costs: Costs
    missing: Mapping[str, str]
    eliminated: AbstractSet[str]
    weights: tuple[int, int | None] | None


def finished_rows(found: Findings) -> tuple[Row, ...]:
    """Every row of the table."""
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
        _row(found, one, by_row[one.key], values.get(one.key, {}), marks.get(one.key))
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
    mark: Mark | None,
) -> Row:
    counts = found.predicted.get(one.key)
    predicted = _predicted(found, one, counts) if counts else None
    status: Status = "planned" if predicted is None else "predicted"
    if runs:
        status = "eliminated" if one.key in found.eliminated else "measured"
    note = found.missing.get(one.drafter, "")
    return Row(
        configuration=one,
        status="left out" if note else status,
        mark=mark,
        predicted=predicted,
        measured=_measured(one, runs, values, found.kinds) if runs else None,
        memory=_memory(one, found.weights),
        note=note,
    )


def _memory(one: Configuration, weights: tuple[int, int | None] | None) -> int | None:
    if weights is None or one.drafter == "head":  # a head's weights belong to neither model
        return None
    target, draft = weights
    return target + (draft or 0 if one.drafter == "model" else 0)


def _predicted(
    found: Findings, one: Configuration, counts: Mapping[int, RoundCounts]
) -> Predicted | None:
    total = RoundCounts().merge(counts.values())
    if total.tau is None:
        return None
    # Speed-ups are averaged over prompts as the measured ones are.
    logs = predicted_values(found, one).values()
    return Predicted(
        exact=one.temperature == 0.0,
        tau=total.tau,
        alpha=total.alpha,
        efficiency=total.efficiency,
        drafted=total.drafted / total.rounds,
        alpha_by_position=total.alpha_by_position,
        speedup=math.exp(statistics.fmean(logs)) if logs else None,
    )


def _counted(one: Configuration, runs: Sequence[Run]) -> list[Run]:
    """The runs whose rounds are counted: a greedy repeat has the same rounds again."""
    if one.temperature > 0.0:
        return list(runs)
    return list({run.question: run for run in reversed(runs)}.values())


def _measured(
    one: Configuration, runs: Sequence[Run], values: Mapping[int, float], kinds: Sequence[str]
) -> Measured:
    total = RoundCounts().merge(run.counts for run in _counted(one, runs))
    c = only([run.c for run in runs])
    return Measured(
        runs=len(runs),
        prompts=len({run.question for run in runs}),
        rate=_rate(only([run.rate for run in runs])),
        alone_rate=_rate(only([run.alone_rate for run in runs])),
        speedup=estimate(list(values.values())),
        by_kind=_by_kind(values, kinds),
        alpha=total.alpha,
        alpha_by_position=total.alpha_by_position,
        efficiency=total.efficiency,
        tau=total.tau,
        tau_predicted=_predicted_tau(total),
        drafted=total.drafted / max(1, total.rounds),
        c=statistics.median(c) if c else None,
        times=_times(runs),
        doubts=sum(run.doubted for run in runs),
    )


def _rate(values: Sequence[float]) -> Rate:
    found = spread(values or [0.0])
    return Rate(found.median, found.low, found.high)


def _by_kind(values: Mapping[int, float], kinds: Sequence[str]) -> dict[str, Estimate]:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for question, value in sorted(values.items()):
        by_kind[kinds[question]].append(value)
    found = {kind: estimate(some) for kind, some in by_kind.items()}
    return {kind: one for kind, one in found.items() if one is not None}


def _predicted_tau(counts: RoundCounts) -> float | None:
    """tau from alpha, if acceptances were independent, with the drafted numbers of the rounds."""
    alpha = counts.alpha
    if alpha is None:
        return None
    tokens = sum(predicted_tau(alpha, length) * n for length, n in counts.lengths.items())
    return ratio(tokens, counts.rounds)


def _times(runs: Sequence[Run]) -> RoundTimes:
    rounds = sum(run.counts.rounds for run in runs)

    def mean(name: str) -> float:
        total: float = sum(getattr(run, name) for run in runs)
        return 1000 * total / max(1, rounds)

    alone = 1000 * statistics.fmean(run.alone for run in runs)
    return RoundTimes(mean("draft"), mean("verify"), mean("overhead"), alone)

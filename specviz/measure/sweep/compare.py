"""Intervals of speed-ups over prompts, and which rows noise cannot tell from the best one.

A prompt's value is the median over its repeats of the logarithm of the speed-up. Intervals are
those of the bootstrap over prompts.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...runs.bootstrap import mean_interval
from .measure import Run
from .types import Estimate

FITS = 30  # turns of a fit, which has long settled by then
FEWEST = 4  # prompts that two rows share before one of them is given up
ENOUGH = 3  # prompts that two rows share before one may be called better or as good

Values = Mapping[int, float]
"""Question -> the median logarithm of the speed-up there."""


def values_by_row(runs: Iterable[Run]) -> dict[str, dict[int, float]]:
    """The value of each question, by row."""
    seen: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.log_speedup is not None:
            seen[run.key][run.question].append(run.log_speedup)
    return {
        key: {question: statistics.median(some) for question, some in by_question.items()}
        for key, by_question in seen.items()
    }


def estimate(values: Sequence[float]) -> Estimate | None:
    """The geometric mean of speed-ups, whose logarithms are given; None if there are none."""
    if not values:
        return None
    found = mean_interval(values)
    low, high = (None, None) if found is None else (float(np.exp(one)) for one in found)
    return Estimate(float(np.exp(statistics.fmean(values))), low, high)


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

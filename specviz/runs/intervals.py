"""Values with an interval: where repeated measurements lie, and how sure a mean is.

Intervals of means are those of the bootstrap. Samples have one value fewer than there are, which
corrects the narrowness of the plain bootstrap for few values (Hesterberg 2015, "What teachers
should know about the bootstrap", section 3.3).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

SAMPLES = 2000
LEVEL = (2.5, 97.5)  # percentiles of a 95% interval


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its quartiles, low and high."""

    median: float
    low: float
    high: float

    def shown(self, places: int = 2) -> str:
        """The median, and the quartiles in brackets."""
        return f"{self.median:.{places}f} ({self.low:.{places}f} - {self.high:.{places}f})"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95% interval, which is None where there is only one value."""

    value: float
    low: float | None
    high: float | None

    def shown(self, places: int = 2) -> str:
        """The mean, and its interval in brackets if it has one."""
        if self.low is None or self.high is None:
            return f"{self.value:.{places}f}"
        return f"{self.value:.{places}f} ({self.low:.{places}f} - {self.high:.{places}f})"


def spread(values: Iterable[float]) -> Spread:
    """The median and quartiles of one or more values."""
    known = list(values)
    if len(known) < 2:
        return Spread(known[0], known[0], known[0])
    low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
    return Spread(middle, low, high)


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one or more values with its interval."""
    return Estimate(statistics.fmean(values), *(mean_interval(values) or (None, None)))


def geometric_mean(logarithms: Sequence[float]) -> Estimate:
    """The geometric mean of one or more values, whose logarithms are given."""
    found = mean(logarithms)
    ends = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return Estimate(float(np.exp(found.value)), *ends)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval of the mean of some values; None for fewer than two."""
    return _interval(tuple(values)) if len(values) > 1 else None


@lru_cache(maxsize=4096)  # a sweep asks after every piece, mostly for the same values
def _interval(values: tuple[float, ...]) -> tuple[float, float]:
    draws = np.random.default_rng(0)
    picked = draws.integers(0, len(values), (SAMPLES, len(values) - 1))
    low, high = np.percentile(np.asarray(values)[picked].mean(1), LEVEL)
    return float(low), float(high)

"""Intervals of means by the bootstrap.

Samples have one value fewer than there are, which corrects the narrowness of the plain bootstrap
for few values (Hesterberg 2015, "What teachers should know about the bootstrap", section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

SAMPLES = 2000
LEVEL = (2.5, 97.5)  # percentiles of a 95% interval


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval of the mean of some values; None for fewer than two."""
    return _interval(tuple(values)) if len(values) > 1 else None


@lru_cache(maxsize=4096)  # a sweep asks after every piece, mostly for the same values
def _interval(values: tuple[float, ...]) -> tuple[float, float]:
    draws = np.random.default_rng(0)
    picked = draws.integers(0, len(values), (SAMPLES, len(values) - 1))
    low, high = np.percentile(np.asarray(values)[picked].mean(1), LEVEL)
    return float(low), float(high)

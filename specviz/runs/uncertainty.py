"""The uncertainty of numbers: the spread of repeated measurements, the interval of a mean, and
doubts about a run's measured speed-up.

Intervals of means are bootstrap intervals. Samples have one value fewer than there are, which
corrects the narrowness of the plain bootstrap for few values (Hesterberg 2015, "What teachers
should know about the bootstrap", section 3.3).

The tokens of a seeded run repeat exactly, so what differs from one run to the next are times. A
round takes its usual time unless something else used the processor. The usual time is the median
over the rounds with as many drafted tokens.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from ..core.events import Round
from ..core.lanes import BASELINE, Lane
from .metrics import compute_metrics
from .trace import Trace

NEAR = 0.03
"""A speed-up that differs less from 1 counts as even, also in `words/verdict.js`."""
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
    values = list(values)
    if len(values) < 2:
        return Spread(median=values[0], low=values[0], high=values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median=median, low=low, high=high)


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one or more values with its interval."""
    value = statistics.fmean(values)
    interval = mean_interval(tuple(values))
    if interval is None:
        return Estimate(value, None, None)
    low, high = interval
    return Estimate(value, low, high)


def geometric_mean(logarithms: Sequence[float]) -> Estimate:
    """The geometric mean of one or more values, whose logarithms are given."""
    logarithm = mean(logarithms)
    value = float(np.exp(logarithm.value))
    if logarithm.low is None or logarithm.high is None:
        return Estimate(value, None, None)
    low = float(np.exp(logarithm.low))
    high = float(np.exp(logarithm.high))
    return Estimate(value, low, high)


@lru_cache(maxsize=4096)  # a sweep computes it after every piece, mostly from the same values
def mean_interval(values: tuple[float, ...]) -> tuple[float, float] | None:
    """The 95% interval of the mean of some values; None for fewer than two."""
    if len(values) < 2:
        return None
    generator = np.random.default_rng(0)
    size = len(values) - 1
    picked = generator.integers(0, len(values), (SAMPLES, size))  # indices
    samples = np.asarray(values)[picked]  # [SAMPLES, size]
    low, high = np.percentile(samples.mean(1), LEVEL)
    return float(low), float(high)


Doubt: TypeAlias = Literal["price", "delay", "spread", "outside", "short"]
DOUBTS: dict[Doubt, str] = {
    "price": "the machine was busy: a round took less time than the target pass in it",
    "delay": "the machine was busy: many passes took longer than usual",
    "spread": "the machine was busy: parts of the run give very different ratios",
    "outside": "the ratio is outside the range that most parts of the run give",
    "short": "the run has few rounds",
}
"""Why a ratio is uncertain, as half a sentence."""

# The least price of a speculative round in baseline rounds: it has a whole target pass, and a tenth
# less is as far as two means of undisturbed passes differ.
MIN_PRICE = 0.9
MAX_DELAY = 0.25  # the share of its usual time that a lane may lose before its speed is doubted
MAX_SPREAD = 0.3  # how far the quartiles may be apart, as a share of the median
WINDOW = 3  # rounds of each lane in a window, at least
MAX_WINDOWS = 8
MIN_WINDOWS = 3
MIN_ROUNDS = WINDOW * MIN_WINDOWS
"""The fewest rounds of a lane for a statement on its speed."""
DELAYED = 1.5  # times its usual time: a round that took longer was delayed


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Evidence for and against a measured speed-up.

    price: the cost of a speculative round in baseline rounds. delays: the share by which a lane's
    rounds took longer than usual, by lane. spread: of the speed-up over windows of the run, at the
    tau of the whole run, so that only times tell windows apart; None if there are too few rounds.
    doubt: the first of `Doubt` that applies, if any does.
    """

    price: float
    delays: dict[Lane, float]
    spread: Spread | None
    doubt: Doubt | None


def uncertainty(trace: Trace, lane: Lane | None = None) -> Uncertainty | None:
    """The uncertainty of a speculative lane's speed-up; None if it has none.

    lane: None is the first. Raises `TraceError` if the trace has no such lane.
    """
    speedup = compute_metrics(trace, lane).speedup
    if speedup is None or trace.header.source is not None:
        return None
    name = trace.speculative_lane(lane)
    rounds = trace.lane(name)
    baseline_rounds = trace.lane(BASELINE)
    usual = _usual_seconds(rounds)
    baseline_usual = _usual_seconds(baseline_rounds)
    delay = _delay(rounds, usual)
    baseline_delay = _delay(baseline_rounds, baseline_usual)
    price = _mean_seconds(rounds) / _mean_seconds(baseline_rounds)

    undelayed = speedup * (1 + delay) / (1 + baseline_delay)
    ratios = []
    for window, baseline_window in _windows(rounds, baseline_rounds):
        window_delay = _delay(window, usual)
        baseline_window_delay = _delay(baseline_window, baseline_usual)
        ratios.append(undelayed * (1 + baseline_window_delay) / (1 + window_delay))
    by_windows: Spread | None = None
    if len(ratios) >= MIN_WINDOWS:
        by_windows = spread(ratios)
    delays = {name: delay, BASELINE: baseline_delay}
    doubt = _doubt(speedup, price, delays, by_windows)
    return Uncertainty(price=price, delays=delays, spread=by_windows, doubt=doubt)


def seconds_of(r: Round) -> float:
    """A round's seconds on its lane's clock."""
    return r.draft_seconds + r.verify_seconds + r.overhead_seconds


def undelayed_seconds(rounds: Sequence[Round]) -> float:
    """The seconds that some rounds of a lane would have taken together if none had been delayed.

    A delayed round counts with its usual time: the median over the rounds with as many drafted
    tokens, or over those with more if that is less, since a narrower pass costs no more.
    """
    usual = at_most_wider(_usual_seconds(rounds))
    seconds = 0.0
    for r in rounds:
        measured = seconds_of(r)
        expected = usual[len(r.drafted)]
        is_delayed = measured > DELAYED * expected
        seconds += expected if is_delayed else measured
    return seconds


def at_most_wider(seconds: Mapping[int, float]) -> dict[int, float]:
    """The seconds of each width, or those of a wider pass if they are less: a narrower pass costs
    no more."""
    least = math.inf
    limited: dict[int, float] = {}
    for width in sorted(seconds, reverse=True):
        least = min(least, seconds[width])
        limited[width] = least
    return limited


def _mean_seconds(rounds: Sequence[Round]) -> float:
    return sum(map(seconds_of, rounds)) / len(rounds)


def _usual_seconds(rounds: Sequence[Round]) -> dict[int, float]:
    """The median seconds of a round, by the number of its drafted tokens."""
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_width[len(r.drafted)].append(seconds_of(r))
    return {width: statistics.median(seconds) for width, seconds in by_width.items()}


def _delay(rounds: Sequence[Round], usual: dict[int, float]) -> float:
    """The share by which these rounds took longer than usual."""
    expected = sum(usual[len(r.drafted)] for r in rounds)
    if not expected:
        return 0.0
    measured = sum(map(seconds_of, rounds))
    return measured / expected - 1


def _windows(
    rounds: Sequence[Round], baseline_rounds: Sequence[Round]
) -> list[tuple[Sequence[Round], Sequence[Round]]]:
    """Cut both lanes into the same number of consecutive parts of nearly equal length. The cut
    ignores clocks: the slower lane runs alone at the end, and the measured ratio counts that too.
    """
    shorter = min(len(rounds), len(baseline_rounds))
    count = min(MAX_WINDOWS, shorter // WINDOW)
    windows = _cut(rounds, count)
    baseline_windows = _cut(baseline_rounds, count)
    return list(zip(windows, baseline_windows, strict=True))


def _cut(rounds: Sequence[Round], count: int) -> list[Sequence[Round]]:
    """Cut rounds into `count` consecutive parts of nearly equal length."""
    parts = []
    for index in range(count):
        begin = len(rounds) * index // count
        end = len(rounds) * (index + 1) // count
        parts.append(rounds[begin:end])
    return parts


def _doubt(
    speedup: float, price: float, delays: dict[Lane, float], by_windows: Spread | None
) -> Doubt | None:
    if price < MIN_PRICE:
        return "price"
    if max(delays.values()) > MAX_DELAY:
        return "delay"
    if by_windows is None:
        return "short"
    quartile_range = by_windows.high - by_windows.low
    if quartile_range > MAX_SPREAD * by_windows.median:
        return "spread"
    if not by_windows.low <= speedup <= by_windows.high:
        return "outside"
    return None

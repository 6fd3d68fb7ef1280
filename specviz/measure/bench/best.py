"""The variants that a benchmark compares, and each at its best number of threads."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ...lanes import LANE_LABELS
from ...runs.uncertainty import Spread, spread

BASELINE, SPECULATIVE = LANE_LABELS["baseline"], LANE_LABELS["speculative"]
GENERATE, ASSISTED = "generate()", "generate(assistant)"
PLAIN = f"{SPECULATIVE}, plain"  # the speculative lane on the same modules that generate() runs


@dataclass(frozen=True, slots=True)
class Best:
    """Every variant with the number of threads that suits it best, at one temperature.

    threads, tokens_per_second: by variant. ratios: "one / other" -> how many times as fast, prompt
    by prompt and repeat by repeat.
    """

    temperature: float
    threads: dict[str, int]
    tokens_per_second: dict[str, Spread]
    ratios: dict[str, Spread]


def best_of(temperature: float, rates: dict[int, dict[str, list[float]]]) -> Best:
    """Compare each variant at its best number of threads.

    rates: threads -> variant -> tokens per second of all runs, in one order for all.
    """
    names = next(iter(rates.values()))
    medians = {
        name: {count: statistics.median(some[name]) for count, some in rates.items()}
        for name in names
    }
    threads = {name: max(by_count, key=by_count.__getitem__) for name, by_count in medians.items()}
    best = {name: rates[count][name] for name, count in threads.items()}

    def ratio(one: str, other: str) -> Spread:
        return spread(a / b for a, b in zip(best[one], best[other], strict=True))

    compared = [(SPECULATIVE, BASELINE), (SPECULATIVE, ASSISTED), (BASELINE, GENERATE)]
    ratios = {f"{a} / {b}": ratio(a, b) for a, b in compared if {a, b} <= best.keys()}
    spreads = {name: spread(values) for name, values in best.items()}
    return Best(temperature, threads, spreads, ratios)

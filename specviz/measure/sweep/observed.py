"""What one race tells a sweep: its numbers, and what a round costs, in rounds of the target alone.

Each run is compared with its own baseline, which was interleaved with it, so that a machine that
becomes slower or faster between runs changes nothing.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from ...runs.metrics import Metrics, compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import seconds_of, uncertainty
from .along import Rounds

BUSY = ("price", "delay", "spread")
"""The doubts of `runs.uncertainty` that mean that something else used the machine."""


@dataclass(frozen=True, slots=True)
class OneRace:
    """What one race gave.

    key: of the configuration. question: the index of its prompt. rounds: with drafts. alone:
    seconds per round of the target alone. doubted: whether the machine was busy.
    """

    key: str
    question: int
    metrics: Metrics
    rounds: Rounds
    alone: float
    doubted: bool


def run_of(key: str, question: int, trace: Trace) -> OneRace:
    """The numbers of a race."""
    m, found = compute_metrics(trace), uncertainty(trace)
    rounds = Counter(
        (
            len(r.drafted),
            sum(token.outcome != "ignored" for token in r.drafted),
            sum(token.outcome == "accepted" for token in r.drafted),
            len(r.emitted),
        )
        for r in trace.lane("speculative")
    )
    seconds = m.seconds["baseline"] / max(1, len(trace.lane("baseline")))
    return OneRace(key, question, m, rounds, seconds, found is not None and found.doubt in BUSY)


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
        by_width: dict[int, list[float]] = defaultdict(list)
        for r in rounds:
            by_width[1 + len(r.drafted)].append(r.verify_seconds / single)
        self.verify[1].append(statistics.median(r.verify_seconds / single for r in alone))
        for width, shares in by_width.items():
            self.verify[width].append(statistics.median(shares))
        steps = [r.draft_seconds / len(r.drafted) / single for r in rounds if r.drafted]
        if steps:
            self.step[trace.header.settings.drafter].append(statistics.median(steps))
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
        blocks: list[tuple[float, int, list[int]]] = []  # mean, samples, widths
        for width, some in sorted(self.verify.items()):
            mean, count, widths = statistics.median(some), len(some), [width]
            while blocks and blocks[-1][0] > mean:
                before, many, wide = blocks.pop()
                mean = (before * many + mean * count) / (many + count)
                count, widths = many + count, wide + widths
            blocks.append((mean, count, widths))
        pairs = [(width, mean) for mean, _, widths in blocks for width in widths]
        return [width for width, _ in pairs], [mean for _, mean in pairs]

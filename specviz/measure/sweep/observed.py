"""What one race tells a sweep: its numbers, the text that it wrote, where it ran, and what a round
costs, in rounds of the target alone: measured, and interpolated where it was not.

Each run is compared with its own baseline, which was interleaved with it, so that a machine that
becomes slower or faster between runs changes nothing.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.header import model_name
from ...environment import ASSETS
from ...kinds import drafter_kind
from ...pairs.pair import Pair, context_length
from ...runs.metrics import Metrics, compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import seconds_of, uncertainty
from ...sides.early_exit import best_exit
from .rounds import KnownText, RoundCounts
from .types import Machine

BUSY = ("price", "delay", "spread")
"""The doubts of `runs.uncertainty` that mean that something else used the machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one race gave.

    key: of the configuration. question: the index of its prompt. alone: seconds per round of the
    target alone. doubted: whether the machine was busy.
    """

    key: str
    question: int
    metrics: Metrics
    counts: RoundCounts
    alone: float
    doubted: bool


def run_of(key: str, question: int, trace: Trace) -> Run:
    """The numbers of a race."""
    m, found = compute_metrics(trace), uncertainty(trace)
    alone = trace.lane("baseline")
    seconds = m.seconds["baseline"] / len(alone) if alone else 0.0
    doubted = found is not None and found.doubt in BUSY
    return Run(key, question, m, counts_of(trace), seconds, doubted)


def known_text(pair: Pair, trace: Trace) -> KnownText:
    """The text that the speculative lane of a race wrote."""
    header, rounds = trace.header, trace.lane("speculative")
    begin = len(header.prompt_ids)
    ids = header.prompt_ids + tuple(token.id for r in rounds for token in r.emitted)
    reason = trace.end.reasons["speculative"] if trace.end else "stopped"
    # A run that was stopped is read as one whose budget was what it wrote.
    budget = len(ids) if reason == "stopped" else begin + header.settings.max_new_tokens
    return KnownText(ids, begin, budget, context_length(pair.target))


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
        if not alone or not rounds:
            return
        single = statistics.median(map(seconds_of, alone))
        if single <= 0.0:  # the clock is too coarse for these passes
            return
        by_width: dict[int, list[float]] = defaultdict(list)
        for r in rounds:
            by_width[1 + len(r.drafted)].append(r.verify_seconds / single)
        self.verify[1].append(statistics.median(r.verify_seconds / single for r in alone))
        for width, shares in by_width.items():
            self.verify[width].append(statistics.median(shares))
        drafting = [r for r in rounds if r.drafted]
        if drafting:
            shares = [r.draft_seconds / len(r.drafted) / single for r in drafting]
            self.step[trace.header.settings.drafter].append(statistics.median(shares))
        self.overhead.append(statistics.median(r.overhead_seconds / single for r in rounds))

    def price(self, drafter: str, counts: RoundCounts) -> float | None:
        """The mean cost of such rounds in rounds of the target alone; None if it is unknown."""
        if drafter not in self.step or len(self.verify) < 2 or not counts.rounds:
            return None
        step, overhead = statistics.median(self.step[drafter]), statistics.median(self.overhead)
        total = sum(
            rounds * (length * step + self._verify(1 + length) + overhead)
            for length, rounds in counts.lengths.items()
        )
        return total / counts.rounds

    def speedup(self, drafter: str, counts: RoundCounts) -> float | None:
        """tau / price: the speed-up of such rounds; None if it is unknown."""
        price, tau = self.price(drafter, counts), counts.tau
        return tau / price if price and tau else None

    def _verify(self, width: int) -> float:
        """The cost of a pass of this width, on the line through the nearest measured widths."""
        found = _rising({w: self.verify[w] for w in sorted(self.verify)})
        if width in found:
            return found[width]
        known = list(found)
        above = next((i for i, w in enumerate(known) if w > width), len(known) - 1)
        left, right = known[max(0, above - 1)], known[max(1, above)]
        slope = (found[right] - found[left]) / (right - left)
        return found[left] + slope * (width - left)


def _rising(samples: dict[int, list[float]]) -> dict[int, float]:
    """The median by width, averaged with its neighbours where it falls: a wider pass costs no
    less, so a fall is noise (isotonic regression, by pooling adjacent violators)."""
    blocks: list[tuple[float, int, list[int]]] = []  # mean, samples, widths
    for width, some in samples.items():
        mean, count, widths = statistics.median(some), len(some), [width]
        while blocks and blocks[-1][0] > mean:
            before, many, wide = blocks.pop()
            mean = (before * many + mean * count) / (many + count)
            count, widths = many + count, wide + widths
        blocks.append((mean, count, widths))
    return {width: mean for mean, _, widths in blocks for width in widths}


def counts_of(trace: Trace) -> RoundCounts:
    """The counts of a run's speculative rounds."""
    counts = RoundCounts()
    for r in trace.lane("speculative"):
        judged = sum(token.outcome != "ignored" for token in r.drafted)
        accepted = sum(token.outcome == "accepted" for token in r.drafted)
        counts.add(len(r.drafted), judged, accepted, len(r.emitted))
    return counts


def only(values: Sequence[float | None]) -> list[float]:
    """The values that are not None."""
    return [value for value in values if value is not None]


def machine_of(pair: Pair, trace: Trace, known: Machine | None) -> Machine:
    """Where a race ran. known: the same from races before it."""
    head = trace.header
    layers = known.exit_layers if known else None
    if layers is None and drafter_kind(head.settings.drafter).needs == "layers":
        layers = best_exit(pair.target, pair.vocab).layers
    return Machine(
        pair=pair.name,
        target=_named(pair.target),
        draft=None if pair.draft is None else _named(pair.draft),
        device=head.device,
        processor=head.processor,
        dtype=head.dtype,
        form=str(head.target["form"]),
        threads=(head.lane_threads or {}).get("baseline", head.threads),
        versions=head.versions,
        date=known.date if known else head.date,
        exit_layers=layers,
    )


def _named(model: Any) -> str:
    # The built-in pair is named by its place in the repository, which can be pasted.
    path = Path(str(getattr(model, "name_or_path", "")))
    is_ours = path.is_relative_to(ASSETS)
    return f"assets/{path.relative_to(ASSETS).as_posix()}" if is_ours else model_name(model)

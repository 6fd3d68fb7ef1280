"""Runs with the times of a steady, a busy or an impossible machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specviz import Round, Trace
from specviz.core.lanes import LANES

# Seconds on the steady machine.
TARGET_PASS = 0.010
DRAFT_STEP = 0.001


def steady(r: Round) -> float:
    """Delay no round."""
    return 1.0


def slow_middle(r: Round) -> float:
    """Delay the middle of the target alone, as if another program used half of the processor."""
    return 1.9 if r.lane == "baseline" and 16 <= r.index < 40 else 1.0


def slower_later(r: Round) -> float:
    """Delay the later rounds of the target alone a little."""
    return 1.45 if r.lane == "baseline" and r.index >= 28 else 1.0


def too_fast(r: Round) -> float:
    """Shorten rounds with drafts below the time of their target pass."""
    return 0.5 if r.lane == "speculative" else 1.0


def costly(r: Round) -> float:
    """Make drafts, and passes over several tokens, too slow to pay."""
    return 3.0 if r.lane == "speculative" else 1.0


def timed(run: Trace, factor: Callable[[Round], float]) -> Trace:
    """Time the run like a machine that delays each round by this factor."""
    lanes = {}
    for lane in LANES:
        clock = 0.0
        lanes[lane] = list[Round]()
        prefill = sum(run.header.prefill_seconds[lane].values())
        for r in run.lane(lane):
            drafting = factor(r) * (DRAFT_STEP * len(r.drafted))
            verifying = factor(r) * TARGET_PASS
            clock += drafting + verifying
            times = {"draft_seconds": drafting, "verify_seconds": verifying, "clock": clock}
            lanes[lane].append(replace(r, **times, overhead_seconds=0.0, wall=prefill + clock))
    rounds = sorted((r for lane in LANES for r in lanes[lane]), key=lambda r: r.clock)
    return replace(run, rounds=rounds)

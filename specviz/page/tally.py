"""What the page has done since it was started, counted for its operator."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..core.events import Round
from ..lanes import BASELINE, LANES, SPECULATIVE, Lane

ENDS = ("complete", "stopped", "failed")


class Tally:
    """Counts that only grow. One thread adds to each of them, any may read.

    runs: that ended, by one of `ENDS`. refused: because the queue was full or the server about to
    end. rounds, tokens: by lane. seconds: of decoding on the lanes' clocks, without prefill.
    drafted: tokens by outcome.
    """

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.refused = 0
        self.rounds: Counter[Lane] = Counter()
        self.tokens: Counter[Lane] = Counter()
        self.seconds: dict[Lane, float] = dict.fromkeys(LANES, 0.0)
        self.drafted: Counter[str] = Counter()

    def add(self, item: Any) -> None:
        """Count a round; ignores all other results."""
        if isinstance(item, Round):
            lane = BASELINE if item.lane == BASELINE else SPECULATIVE
            self.rounds[lane] += 1
            self.tokens[lane] += len(item.emitted)
            self.seconds[lane] += item.draft_seconds + item.verify_seconds + item.overhead_seconds
            self.drafted.update(str(token.outcome) for token in item.drafted)

    def ended(self, *, error: bool, stopped: bool) -> None:
        """Count a run or an experiment that has ended."""
        self.runs["failed" if error else "stopped" if stopped else "complete"] += 1

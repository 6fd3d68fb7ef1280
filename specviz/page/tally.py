"""What the page has done since it was started, counted for its operator; and how long a job takes,
judged by past ones of its kind, and how that is told."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from ..core.events import Round
from ..lanes import BASELINE, LANES, SPECULATIVE, Lane

if TYPE_CHECKING:
    from .jobs import Job

REMEMBERED = 9  # past jobs of a kind
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


class Durations:
    """The lengths and the durations of past jobs, by kind."""

    def __init__(self) -> None:
        self._past: dict[type, deque[tuple[int, float]]] = {}

    def add(self, job: Job, seconds: float) -> None:
        """Remember a job that has ended."""
        self._past.setdefault(type(job.task), deque(maxlen=REMEMBERED)).append(
            (job.length, seconds)
        )

    def expected(self, job: Job) -> float | None:
        """Seconds that a job of this length takes; None if there was none of its kind yet.

        A line through the past jobs, by least squares. If all had one length, or longer ones were
        no slower, it is the median; a job of another length then takes its proportion.
        """
        past = self._past.get(type(job.task))
        if not past:
            return None
        lengths = [length for length, _ in past]
        seconds = [duration for _, duration in past]
        median = statistics.median(seconds)
        if len(set(lengths)) == 1:
            return median * job.length / lengths[0]
        line = statistics.linear_regression(lengths, seconds)
        if line.slope <= 0:
            return median
        return max(min(seconds), line.slope * job.length + line.intercept)


def about(seconds: float | None) -> str:
    """A duration in words, to be put behind what takes so long."""
    if seconds is None:
        return ""
    return (
        f", about {max(1, round(seconds))} s" if seconds < 90 else f", about {seconds / 60:.0f} min"
    )

"""What the page has done since it was started, how long its jobs take, and the addresses for those
who operate it: whether it lives, whether it is ready, and its figures.

/healthz answers 200 while the server answers at all. /readyz answers 200 from when the models have
loaded the pair until the server is about to end, and 503 otherwise. /metrics is for Prometheus.
"""

from __future__ import annotations

import base64
import secrets
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from ..core.events import OUTCOMES, Round
from ..lanes import BASELINE, LANES, SPECULATIVE, Lane
from ..variables import AUTH, METRICS

if TYPE_CHECKING:
    from .jobs import Job
    from .queue import RunQueue

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
    if seconds < 90:
        return f", about {max(1, round(seconds))} s"
    return f", about {seconds / 60:.0f} min"


HEALTH, READY, FIGURES = "/healthz", "/readyz", "/metrics"
FORMAT = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus's exposition format
Row: TypeAlias = "tuple[str, str, str, Mapping[Any, float]]"
"""A figure's name and meaning, and its values by what the third says, which may be empty."""
NOT_LOADED = "The models have not loaded their pair yet, or could not: see the log."
SIGN_IN = "This page has a password: send it with HTTP's Basic authentication."


async def probed(scope: Scope, runs: RunQueue | None) -> Response | None:
    """The answer to a request of operators; None for any other request. runs: the queue of the
    page, if it has one yet."""
    path = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
    if path == HEALTH:
        return _told(200, "alive")
    if path == READY and runs is not None:
        if runs.closing:
            return _told(503, "The server is being restarted.")
        return _told(200, "ready") if runs.answered else _told(503, NOT_LOADED)
    if path != FIGURES or runs is None or not METRICS.read():
        return None
    password = AUTH.read()
    if password and not _signed_in(Headers(scope=scope).get("authorization", ""), password):
        return _told(401, SIGN_IN, {"www-authenticate": 'Basic realm="specviz"'})
    # Looking at the memory of processes takes some milliseconds.
    return Response(await run_in_threadpool(figures, runs), media_type=FORMAT)


def figures(runs: RunQueue) -> str:
    """All figures of the page with this queue, in Prometheus's format."""
    tally = runs.tally
    ready = runs.answered and not runs.closing
    counters: list[Row] = [
        ("runs", "Runs and experiments that have ended.", "end", _of(tally.runs, ENDS)),
        ("rounds", "Rounds.", "lane", _of(tally.rounds, LANES)),
        ("tokens", "Emitted tokens.", "lane", _of(tally.tokens, LANES)),
        ("decoding_seconds", "On the lanes' clocks, without prefill.", "lane", tally.seconds),
        ("drafted_tokens", "By outcome.", "outcome", _of(tally.drafted, OUTCOMES[:3])),
        ("refusals", "The queue was full, or the server ending.", "", {"": tally.refused}),
        ("model_process_restarts", "Times it was replaced.", "", {"": runs.restarts}),
    ]
    gauges: list[Row] = [
        ("waiting", "Runs and experiments that wait in the queue.", "", {"": runs.waiting}),
        ("running", "Whether one uses the models.", "", {"": runs.current is not None}),
        ("ready", "Whether /readyz answers 200.", "", {"": ready}),
        ("resident_bytes", "Memory.", "process", _resident()),
    ]
    told = [_figure("counter", row, "_total") for row in counters]
    return "".join([*told, *(_figure("gauge", row) for row in gauges)])


def _of(counts: Mapping[Any, float], keys: Iterable[Any]) -> dict[str, float]:
    return {str(key): counts.get(key, 0) for key in keys}


def _figure(kind: str, row: Row, end: str = "") -> str:
    name, meaning, label, values = row
    name = f"specviz_{name}{end}"
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for key, value in values.items():
        which = f'{{{label}="{key}"}}' if label else ""
        lines.append(f"{name}{which} {float(value)!r}")
    return "\n".join(lines) + "\n"


def _resident() -> dict[str, int]:
    """Bytes of memory of this process, and of those of the models and the doctor together."""
    page = psutil.Process()
    models = 0
    for child in page.children():
        try:
            models += child.memory_info().rss
        except psutil.Error:  # it has just ended
            continue
    return {"page": page.memory_info().rss, "models": models}


def _told(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(text + "\n", status, headers)


def _signed_in(authorization: str, wanted: tuple[str, str]) -> bool:
    kind, _, given = authorization.partition(" ")
    same = secrets.compare_digest(given.encode(), base64.b64encode(":".join(wanted).encode()))
    return kind.lower() == "basic" and same

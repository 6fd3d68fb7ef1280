"""The page's figures in the format of Prometheus. Needs the optional package prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import psutil
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..core.events import OUTCOMES
from ..lanes import LANES
from .queue import RunQueue
from .tally import ENDS

FORMAT = CONTENT_TYPE_LATEST
PREFIX = "specviz_"


def figures(runs: RunQueue) -> bytes:
    """All figures of the page with this queue, as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(runs))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, runs: RunQueue) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        runs, tally = self._runs, self._runs.tally
        yield _counts("runs", "Runs and experiments that have ended.", "end", tally.runs, ENDS)
        yield _counts("rounds", "Rounds.", "lane", tally.rounds, LANES)
        yield _counts("tokens", "Emitted tokens.", "lane", tally.tokens, LANES)
        clocks = "Seconds on the lanes' clocks, without prefill."
        yield _counts("decoding_seconds", clocks, "lane", tally.seconds, LANES)
        judged = "Drafted tokens by outcome."
        yield _counts("drafted_tokens", judged, "outcome", tally.drafted, OUTCOMES[:3])
        for name, meaning, count in (
            ("refusals", "Runs refused: the queue was full, or the server ending.", tally.refused),
            ("model_process_restarts", "Times the models' process was replaced.", runs.restarts),
        ):
            yield CounterMetricFamily(PREFIX + name, meaning, value=count)
        for name, meaning, value in (
            ("waiting", "Runs and experiments that wait in the queue.", runs.waiting),
            ("running", "Whether one uses the models.", runs.current is not None),
            ("ready", "Whether /readyz answers 200.", runs.answered and not runs.closing),
        ):
            yield GaugeMetricFamily(PREFIX + name, meaning, value=int(value))
        memory = GaugeMetricFamily(PREFIX + "resident_bytes", "Memory.", labels=["process"])
        for process, size in _resident().items():
            memory.add_metric([process], size)
        yield memory


def _counts(
    name: str, meaning: str, label: str, counts: Mapping[Any, float], keys: Iterable[Any]
) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    for key in keys:
        family.add_metric([str(key)], counts.get(key, 0))
    return family


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

"""What the page costs the engine: the same run with a browser that watches, and with none."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from typing import Any

from .browser import chromium, served_page
from .engine import spare_threads
from .metrics import compute_metrics
from .pairs import load_pair
from .race import race
from .settings import Settings
from .trace import LANES, Header, Trace

ENDED = '[data-player][data-state="ended"][data-source="live"]'


def page_cost(repeats: int) -> dict[str, dict[str, float]]:
    """Median tokens per second of each lane's clock, and seconds from header to end, with the
    page ("page") and without ("alone"), on the page's own first settings; runs take turns.

    Raises `SpecvizError` without a browser.
    """
    figures: dict[str, dict[str, list[float]]] = {
        "page": defaultdict(list),
        "alone": defaultdict(list),
    }
    spare_threads()
    pair = load_pair()
    with served_page() as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(url)
        for again in range(repeats + 1):
            watched, seconds = _watched_run(page)
            settings = Settings.from_dict(watched["header"]["settings"])
            prompt_ids = watched["header"]["prompt_ids"]
            alone, seconds_alone = _run_alone(pair, prompt_ids, settings)
            if again == 0:
                continue
            _add(figures["page"], Trace.from_dict(watched), seconds)
            _add(figures["alone"], alone, seconds_alone)
    return {
        way: {name: statistics.median(values) for name, values in measured.items()}
        for way, measured in figures.items()
    }


def _watched_run(page: Any) -> tuple[dict[str, Any], float]:
    before = page.evaluate("window.specviz?.trace?.header?.date ?? null")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(
        "before => (window.specviz?.trace?.header?.date ?? null) !== before", arg=before
    )
    start = time.perf_counter()
    page.wait_for_selector(ENDED, timeout=300_000)
    seconds = time.perf_counter() - start
    trace: dict[str, Any] = page.evaluate("JSON.parse(JSON.stringify(window.specviz.trace))")
    return trace, seconds


def _run_alone(pair: Any, prompt_ids: list[int], settings: Settings) -> tuple[Trace, float]:
    events = race(pair, prompt_ids, settings)
    header = next(events)
    assert isinstance(header, Header)
    start = time.perf_counter()
    trace = Trace.from_events([header, *events])
    return trace, time.perf_counter() - start


def _add(measured: dict[str, list[float]], trace: Trace, seconds: float) -> None:
    rates = compute_metrics(trace).tokens_per_second
    for lane in LANES:
        measured[lane].append(rates[lane] or 0.0)
    measured["seconds"].append(seconds)

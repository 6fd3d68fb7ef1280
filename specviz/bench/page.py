"""What the page costs the engine: the same run with and without a browser that shows it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.events import Event
from ..environment import BUILTIN
from ..lanes import LANES
from ..runs.metrics import compute_metrics
from ..runs.trace import Trace
from ..settings import Settings
from ..worker.client import ProcessWorker, Worker, results_of
from ..worker.tasks import RaceTask
from .browser import chromium, served_page

CONDITIONS = ("page", "alone", "loop")

# Measures the milliseconds from a run's header to its end in the page.
_WATCH = """() => {
  const player = document.querySelector("[data-player]");
  const before = window.specviz?.trace?.header?.date ?? null;
  let begun = null;
  window.watchedRun = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("the run did not end")), 300000);
    new MutationObserver((_, observer) => {
      const live = player.dataset.source === "live" && window.specviz?.trace?.header?.date;
      if (begun === null && live && live !== before) begun = performance.now();
      if (begun === null || player.dataset.state !== "ended") return;
      observer.disconnect();
      resolve(performance.now() - begun);
    }).observe(player, { attributes: true });
  });
}"""


def page_cost(repeats: int) -> dict[str, dict[str, float]]:
    """Median tokens per second of each lane, and median seconds from header to end, by condition.

    The conditions: with the page in a browser ("page"), without it ("alone"), and without it but
    beside an empty loop that keeps another core busy ("loop"), which shows what any other program
    costs on this machine. They run in turn, with the settings that the page starts with. Raises
    `SpecvizError` without a browser.
    """
    figures: dict[str, dict[str, list[float]]] = {
        condition: defaultdict(list) for condition in CONDITIONS
    }
    worker = ProcessWorker()
    with served_page() as url, chromium() as browser:
        # Without motion, so that no finished run plays again beside the next measurement.
        page = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        page.goto(url)
        page.wait_for_function("window.specviz")
        for again in range(repeats + 1):
            watched, seconds = _watched_run(page)
            settings = Settings.from_dict(watched["header"]["settings"])
            task = RaceTask(BUILTIN, watched["header"]["prompt"], settings)
            alone = _run_alone(worker, task)
            with _loop():
                beside = _run_alone(worker, task)
            if again == 0:
                continue
            runs = ((Trace.from_dict(watched), seconds), alone, beside)
            for condition, run in zip(CONDITIONS, runs, strict=True):
                _add(figures[condition], *run)
    worker.close()
    return {
        condition: {name: statistics.median(values) for name, values in measured.items()}
        for condition, measured in figures.items()
    }


def _watched_run(page: Any) -> tuple[dict[str, Any], float]:
    # The page waits on one promise: polling would keep the browser busy.
    page.evaluate(_WATCH)
    page.get_by_role("button", name="Run", exact=True).click()
    seconds: float = page.evaluate("window.watchedRun") / 1000
    trace: dict[str, Any] = page.evaluate("JSON.parse(JSON.stringify(window.specviz.trace))")
    return trace, seconds


def _run_alone(worker: Worker, task: RaceTask) -> tuple[Trace, float]:
    events: list[Event] = []
    begun: list[float] = []

    for event in results_of(worker, task):
        if not isinstance(event, str):
            events.append(event)
            begun.append(time.perf_counter())
    return Trace.from_events(events), begun[-1] - begun[0]


@contextmanager
def _loop() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)  # seconds for the process to start; no lane runs yet
        yield
    finally:
        process.kill()
        process.wait()


def _add(measured: dict[str, list[float]], trace: Trace, seconds: float) -> None:
    rates = compute_metrics(trace).tokens_per_second
    for lane in LANES:
        measured[lane].append(rates[lane] or 0.0)
    measured["seconds"].append(seconds)


def page_lines(cost: dict[str, dict[str, float]]) -> Iterator[str]:
    """The result of `page_cost` as a table."""
    head = ("with the page", "without", "ratio", "beside a loop", "ratio")
    yield f"{'':22} {head[0]:>14} {head[1]:>9} {head[2]:>6} {head[3]:>14} {head[4]:>6}"
    for name, watched in cost["page"].items():
        alone, beside = cost["alone"][name], cost["loop"][name]
        unit = "s, header to end" if name == "seconds" else f"{name}, tokens/s"
        yield (
            f"{unit:22} {watched:14.2f} {alone:9.2f} {watched / alone:6.3f} "
            f"{beside:14.2f} {beside / alone:6.3f}"
        )
    yield "The loop only keeps another core busy: it shows what any other program costs here."

"""The soak test: the page with many visitors and some hostile clients for a minute, then 2,000
short runs.

    make soak                  the whole test, about ten minutes
    make soak ARGS=--short 15 seconds, as in the test suite

This process is the server and another process the visitors, so leaks can be counted here. Prints a
table; the exit status is 1 if a request failed, memory grew or objects were left.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import AsyncGeneratorType, GeneratorType
from typing import Any, TypeAlias

import psutil

from scripts.browsers import free_port

ROOT = Path(__file__).resolve().parent.parent
SETTLING = 30.0  # seconds for the server to notice that visitors have left
Census: TypeAlias = dict[str, float]
"""Memory (floats) and objects (whole numbers) while nothing runs, by name."""


@dataclass(frozen=True)
class Plan:
    """The size of the test: visitors and strangers at the same time, seconds, and runs.

    warmup, warmup_runs: seconds and runs before those; without such runs, Gradio's records of past
    visitors are not filled first. still: counts in a row, a second apart, in which memory has not
    fallen. flat: the fraction by which the memory of a process may grow after the warm-up.
    patience: seconds for which the page keeps unread results.
    """

    visitors: int = 50
    strangers: int = 6
    warmup: float = 30.0
    seconds: float = 60.0
    warmup_runs: int = 300
    runs: int = 2000
    still: int = 4
    flat: float = 0.05
    patience: float = 15.0


# After so short a warm-up, Python's allocator and Gradio's caches still grow.
SHORT = Plan(
    visitors=6,
    strangers=2,
    warmup=1.0,
    seconds=1.5,
    warmup_runs=0,
    runs=40,
    still=1,
    flat=0.08,
    patience=4.0,
)


def main() -> int:
    """Serve the page, run the test and print its results; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--short", action="store_true", help="a short run of 15 seconds")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    options = parser.parse_args()
    from specviz.base.variables import PAIR

    os.environ.setdefault("GRADIO_SERVER_NAME", "127.0.0.1")
    os.environ.setdefault(PAIR.name, "builtin")  # the test is of the page, not of a model
    os.environ.setdefault("GRADIO_SERVER_PORT", str(free_port()))
    from specviz.page.serve import start_page

    worker, page = start_page()
    page.serve(quiet=True)
    plan = Plan()
    if options.short:
        plan = SHORT
    figures = soaked(page, page.url.rstrip("/"), plan)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    _print(figures)
    worker.close()
    page.close()
    return int(bool(figures["problems"]))


def soaked(page: Any, url: str, plan: Plan) -> dict[str, Any]:
    """Run both parts; returns their results, the counts before and after, and all problems."""
    from specviz.page.security import sessions
    from specviz.page.server import SESSIONS

    sessions.READER_PATIENCE = plan.patience
    few: dict[str, Any] = {"url": url, "visitors": 6, "tokens": 4}
    many = {"url": url, "visitors": plan.visitors, "strangers": plan.strangers}
    if plan.warmup_runs:
        _visits(**few, only="ask", times=SESSIONS + 50)
    _visits(**many, seconds=plan.warmup, seed=1)
    before = census(page, plan.still)
    # With this seed each action is the first of some visitor, even with few visitors.
    crowd = _visits(**many, seconds=plan.seconds, seed=15)
    first = after = census(page, plan.still)
    if plan.warmup_runs:
        _visits(**few, only="run", times=plan.warmup_runs)
        first = census(page, plan.still)
    runs = _visits(**few, only="run", times=plan.runs)
    last = census(page, plan.still)
    strangers = crowd.pop("strangers")
    del runs["strangers"]
    crowd |= {"before": before, "after": after}
    runs |= {"before": first, "after": last}
    problems = list(_problems("crowd", crowd, plan.flat))
    for error, times in strangers["errors"].items():
        problems.append(f"strangers: {times} times {error}")
    problems += _problems("runs", runs, plan.flat)
    return {"strangers": strangers, "crowd": crowd, "runs": runs, "problems": problems}


def _visits(**arguments: Any) -> dict[str, Any]:
    """What `crowd_figures` returns for these arguments, and the seconds that it took."""
    command = [sys.executable, "-m", "scripts.crowd", json.dumps(arguments)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    seconds = time.monotonic() - began
    return {**json.loads(done.stdout), "seconds": round(seconds, 1)}


def census(page: Any, steady: int) -> Census:
    """The counts when no stream and no event is left, or after `SETTLING` seconds; for memory the
    minimum of several counts: at any moment it also includes memory that is about to be freed."""
    deadline = time.monotonic() + SETTLING
    while time.monotonic() < deadline:
        # Only then, because counting all objects takes a fifth of a second.
        if not _streams(page) and not _events(page):
            latest = _census(page)
            if not latest["generators"]:
                break
        time.sleep(0.5)
    else:
        latest = _census(page)
    unchanged = 0
    while unchanged < steady and time.monotonic() < deadline + SETTLING:
        time.sleep(1.0)
        before = latest
        latest = _census(page)
        has_fallen = False
        for name in ("server", "worker"):
            if latest[name] < before[name]:
                has_fallen = True
            else:
                latest[name] = before[name]
        unchanged += 1
        if has_fallen:
            unchanged = 0
    return latest


def _streams(page: Any) -> list[Any]:
    return [stream for stream in page.iterators.values() if stream is not None]


def _events(page: Any) -> int:
    """Requests for results that Gradio still has, and sessions for which it keeps data."""
    queue = page.get_blocks()._queue
    return len(queue.event_ids_to_events) + len(queue.pending_messages_per_session)


def _census(page: Any) -> Census:
    """server, worker: resident memory in MiB, without freed memory that the allocator keeps in the
    server. events: what `_events` counts. runs: those that have not ended.
    """
    from specviz.page.jobs import Run

    gc.collect()
    # glibc returns freed memory, so that peaks do not count as growth.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    objects = gc.get_objects()
    codes = [item.gi_code for item in objects if isinstance(item, GeneratorType)]
    codes += [item.ag_code for item in objects if isinstance(item, AsyncGeneratorType)]
    generators = [code for code in codes if "specviz" in code.co_filename]
    runs = [item for item in objects if isinstance(item, Run) and not item.over]
    server = psutil.Process()
    children = server.children()
    return {
        "server": _resident(server),
        "worker": _resident(*children),
        # The number of idle threads in the pool for handlers varies; all others must not grow.
        "threads": sum("AnyIO" not in thread.name for thread in threading.enumerate()),
        "processes": len(children),
        "generators": len(generators),
        "streams": len(_streams(page)),
        "events": _events(page),
        "runs": len(runs),
    }


def _problems(part: str, figures: dict[str, Any], flat: float) -> Iterator[str]:
    for error in figures["first_errors"]:
        yield f"{part}: {error}"
    for name, old in figures["before"].items():
        new = figures["after"][name]
        limit = old
        if isinstance(old, float):  # memory
            limit *= 1 + flat
        if new > limit:
            yield f"{part}: {name} grew from {old:g} to {new:g}"


def _resident(*processes: psutil.Process) -> float:
    size: int = sum(process.memory_info().rss for process in processes)
    return round(size / 2**20, 1)


def _print(figures: dict[str, Any]) -> None:
    print(f"strangers: {figures['strangers']}")
    for part in ("crowd", "runs"):
        results = figures[part]
        print(f"{part}: {results['seconds']} s, errors {results['errors']}, {results['counts']}")
        for kind, waits in results["waits"].items():
            print(f"  first {kind}: p50 {waits['p50']} s, p95 {waits['p95']} s")
        for name, old in results["before"].items():
            print(f"  {name}: {old} -> {results['after'][name]}")
    print(*figures["problems"] or ["no failures, no growth, nothing left"], sep="\n")


if __name__ == "__main__":
    sys.exit(main())

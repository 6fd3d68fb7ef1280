"""The soak test: the page with many visitors and some hostile clients for a minute, then 2,000
short runs.

    make soak                  the whole test, about ten minutes
    make soak ARGS=--short     a quarter of a minute, as in the test suite

This process is the server and another process the visitors, so leaks can be counted here. Prints a
table; the exit status is 1 if a request failed, memory grew or objects were left.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETTLING = 30.0  # seconds for the server to notice that visitors have left


@dataclass(frozen=True)
class Census:
    """Memory and objects while nothing runs.

    server, worker: resident memory in MiB, the server's without freed memory that the allocator
    keeps. The others are counts. events: requests for results that Gradio still knows. runs: those
    that have not ended.
    """

    server: float
    worker: float
    threads: int
    processes: int
    generators: int
    streams: int
    events: int
    runs: int


@dataclass(frozen=True)
class Plan:
    """The size of the test: visitors and strangers at the same time, seconds, and runs.

    fill: whether other visitors come first, to fill what Gradio keeps of past ones. still: counts
    in a row, a second apart, in which memory has not fallen. flat: the fraction by which the
    memory of a process may grow after the warm-up.
    """

    visitors: int = 50
    strangers: int = 6
    warmup: float = 30.0
    seconds: float = 60.0
    warmup_runs: int = 300
    runs: int = 2000
    fill: bool = True
    still: int = 4
    flat: float = 0.05


# After so short a warm-up, Python's allocator and Gradio's caches still grow.
SHORT = Plan(
    visitors=6,
    strangers=2,
    warmup=2.0,
    seconds=3.0,
    warmup_runs=0,
    runs=40,
    fill=False,
    still=1,
    flat=0.2,
)


def main() -> int:
    """Serve the page, run the test and print its results; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--short", action="store_true", help="a quarter of a minute in all")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    from specviz.variables import PAIR

    os.environ.setdefault("GRADIO_SERVER_NAME", "127.0.0.1")
    os.environ.setdefault(PAIR.name, "builtin")  # it is the page that is tried, not a model
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.setdefault("GRADIO_SERVER_PORT", str(free.getsockname()[1]))
    import app  # the page itself, with its worker
    from specviz.page import launch_options

    _, url, _ = app.demo.launch(quiet=True, prevent_thread_lock=True, **launch_options())
    figures = soaked(url.rstrip("/"), SHORT if options.short else Plan())
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    _print(figures)
    app.worker.close()
    app.demo.close()
    return 1 if figures["problems"] else 0


def soaked(url: str, plan: Plan) -> dict[str, Any]:
    """Run both parts; returns their results, the counts before and after, and all problems."""
    from specviz.page.look import SESSIONS

    if plan.fill:
        _visits(url, "--visitors", 6, "--questions", SESSIONS + 50)
    _crowded(url, plan, plan.warmup, 1)
    before = census(plan.still)
    # With this seed each action is the first of some visitor, however few there are.
    crowd, strangers = _crowded(url, plan, plan.seconds, 15)
    first = after = census(plan.still)
    if plan.warmup_runs:
        _visits(url, "--visitors", 6, "--runs", plan.warmup_runs, "--tokens", 4)
        first = census(plan.still)
    runs = _visits(url, "--visitors", 6, "--runs", plan.runs, "--tokens", 4)
    last = census(plan.still)
    problems = [
        *_problems("crowd", crowd, before, after, plan.flat),
        *(f"strangers: {many} times {what}" for what, many in strangers["errors"].items()),
        *_problems("runs", runs, first, last, plan.flat),
    ]
    return {
        "strangers": strangers,
        "crowd": {**crowd, "before": asdict(before), "after": asdict(after)},
        "runs": {**runs, "before": asdict(first), "after": asdict(last)},
        "problems": problems,
    }


def _crowded(
    url: str, plan: Plan, seconds: float, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of the visitors, and of the strangers beside them."""
    command = [sys.executable, "-m", "scripts.strangers", url, "--strangers", str(plan.strangers)]
    beside = subprocess.Popen(
        [*command, "--seconds", str(seconds)], cwd=ROOT, stdout=subprocess.PIPE
    )
    visitors = _visits(url, "--visitors", plan.visitors, "--seconds", seconds, "--seed", seed)
    said, _ = beside.communicate()
    return visitors, json.loads(said)


def _visits(url: str, *arguments: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "scripts.crowd", url, *map(str, arguments)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return {**json.loads(done.stdout), "seconds": round(time.monotonic() - began, 1)}


def census(steady: int) -> Census:
    """The counts when no stream and no event is left, or after `SETTLING` seconds; of memory what
    stays, which is the least of several counts: at one moment it also holds what is about to be
    freed."""
    deadline = time.monotonic() + SETTLING
    while (now := _census()).generators + now.streams + now.events and time.monotonic() < deadline:
        time.sleep(0.5)
    still = 0
    while still < steady and time.monotonic() < deadline + SETTLING:
        time.sleep(1.0)
        again = _census()
        least = min(now.server, again.server), min(now.worker, again.worker)
        still = still + 1 if least == (now.server, now.worker) else 0
        now = replace(again, server=least[0], worker=least[1])
    return now


def _census() -> Census:
    import app
    from specviz.page.jobs import Run

    gc.collect()
    _give_back_freed_memory()
    things = gc.get_objects()
    generators = [one for one in things if type(one).__name__ == "generator"]
    ours = [one for one in generators if "specviz" in one.gi_code.co_filename]
    runs = [one for one in things if isinstance(one, Run) and not one.over]
    streams = [one for one in app.demo.app.iterators.values() if one is not None]
    children = _children(os.getpid())
    return Census(
        server=_resident(os.getpid()),
        worker=sum(map(_resident, children)),
        # The number of idle threads in the pool for handlers varies; all others must not grow.
        threads=sum("AnyIO" not in one.name for one in threading.enumerate()),
        processes=len(children),
        generators=len(ours),
        streams=len(streams),
        events=len(app.demo._queue.event_ids_to_events),
        runs=len(runs),
    )


def _problems(
    part: str, figures: dict[str, Any], before: Census, after: Census, flat: float
) -> list[str]:
    problems = [f"{part}: {one}" for one in figures["first_errors"]]
    for field in fields(Census):
        old, new = getattr(before, field.name), getattr(after, field.name)
        grown = new > old * (1 + flat) if isinstance(old, float) else new > old
        if grown:
            problems.append(f"{part}: {field.name} grew from {old:g} to {new:g}")
    return problems


def _give_back_freed_memory() -> None:
    """Make glibc return freed memory, so that peaks do not count as growth."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]


def _resident(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def _print(figures: dict[str, Any]) -> None:
    print(f"strangers: {figures['strangers']}")
    for part in ("crowd", "runs"):
        one = figures[part]
        print(f"{part}: {one['seconds']} s, errors {one['errors']}, {one['counts']}")
        for kind, waits in one["waits"].items():
            print(f"  first {kind}: p50 {waits['p50']} s, p95 {waits['p95']} s")
        for name, old in one["before"].items():
            print(f"  {name}: {old} -> {one['after'][name]}")
    print(*figures["problems"] or ["no failures, no growth, nothing left"], sep="\n")


if __name__ == "__main__":
    sys.exit(main())

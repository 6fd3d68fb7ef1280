"""The news of jobs on their way to visitors: those of a run are sent as they come, with numbers, by
which they can be asked for again; those of all other jobs are asked for from a number on."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

from ..errors import SettingsError, SpecvizError
from .jobs import GRACE, Polled, Run
from .queue import RunQueue
from .wire import Update

TICK = 0.1  # seconds between updates; each costs the browser a frame, and a core may be short
HEARTBEAT = 0.5  # seconds after which an empty update is sent, so that a closed tab is noticed

CUT_SHORT = "The server is being restarted, so this run ended with what it had."
LAST_WORDS = 1.0  # seconds for visitors to be sent the last results of their runs
_STEP = 0.02
ASK_EVERY = 0.5  # seconds between questions for a job's news by a program
FORGOTTEN = "The server does not know this any more: begin it again. What had arrived stays."


def updates(runs: RunQueue, run: Run) -> Generator[Update, None, None]:
    """Submit a run and yield its updates, at most one per `TICK`, until it is over.

    Closing the generator stops the run.
    """
    status = "Getting ready."
    yield run.update(status)
    try:
        runs.submit(run)
    except SpecvizError as refusal:
        run.error, run.fall_back = str(refusal), True
        yield run.update(over=True)
        return
    sent = time.monotonic()
    try:
        while not run.delivered:
            time.sleep(TICK)
            update = run.next_update()
            if update is None:
                reason = status if run.racing else runs.status_of(run)
                if reason != status or time.monotonic() - sent > HEARTBEAT:
                    runs.clean_up()
                    status = reason
                    update = run.update() if run.racing else run.update(status)
            if update is not None:
                sent = time.monotonic()
                yield update
    finally:
        runs.cancel(run)


def deltas(runs: RunQueue, run: Run) -> Generator[str, None, None]:
    """The updates of a run as deltas for the browser. Closing the generator stops the run."""
    with closing(updates(runs, run)) as stream:
        for update in stream:
            yield run.delta(update)


def states(runs: RunQueue, job: Polled) -> Iterator[dict[str, Any]]:
    """The states of a job that was submitted, the last one with its result. Closing the iterator
    stops the job."""
    try:
        while True:
            state = job.state(runs.status_of(job), job.number)
            yield state
            if state["over"]:
                return
            time.sleep(ASK_EVERY)
    finally:
        runs.cancel(job)


def finished_run(runs: RunQueue, asked: dict[str, Any]) -> Run | None:
    """The run of the visitor who asks for something about it, if the server knows it. Raises
    `SettingsError` if it has not ended."""
    run = runs.job(str(asked.get("run")))
    if run is not None and not run.over:
        raise SettingsError("your run is still under way: wait for its end, or stop it.")
    return run if isinstance(run, Run) else None


def delivery_functions(runs: RunQueue) -> list[Callable[[dict[str, Any]], Any]]:
    """The server functions that send the deltas of a run again, that tell the news of all other
    jobs, and that end these."""

    # Functions and not methods, because Gradio marks them; it passes exactly one argument.
    def missed(asked: dict[str, Any]) -> list[str] | None:
        run = str(asked["run"])
        known = not run or runs.job(run) is not None
        return runs.deltas_from(run, int(asked["seq"])) if known else None

    def ask_job(asked: dict[str, Any]) -> dict[str, Any]:
        job = runs.job(str(asked["id"]))
        if not isinstance(job, Polled):
            raise SpecvizError(FORGOTTEN)
        since, hidden = int(asked.get("since", -1)), bool(asked.get("hidden"))
        return job.state(runs.status_of(job), since, hidden=hidden)

    def end_job(asked: dict[str, Any]) -> None:
        job = runs.job(str(asked["id"]))
        if isinstance(job, Polled):
            runs.cancel(job)

    return [missed, ask_job, end_job]


def drain(runs: RunQueue, seconds: float) -> None:
    """End the queue: waiting jobs are refused at once, the current one has `seconds` to end by
    itself and `GRACE` more to stop. Returns when visitors were sent its results, or soon after."""
    runs.refuse_from_now_on()
    deadline = time.monotonic() + seconds
    while runs.current is not None and time.monotonic() < deadline:
        time.sleep(_STEP)
    job = runs.current
    if job is not None:
        job.end_early(CUT_SHORT)
    deadline = time.monotonic() + GRACE
    while runs.current is not None and time.monotonic() < deadline:
        time.sleep(_STEP)
    deadline = time.monotonic() + LAST_WORDS
    while _unread(runs) and time.monotonic() < deadline:
        time.sleep(_STEP)


def close_page(page: Any) -> None:
    """Close Gradio's server, also if visitors keep connections open."""
    page.server.config.timeout_graceful_shutdown = 1
    page.close(verbose=False)


def _unread(runs: RunQueue) -> bool:
    """Whether a visitor waits for the last results of a run or a sweep."""
    return any(not (job.delivered or job.abandoned()) for job in runs.jobs())

"""Delivery of jobs' news to visitors: as a stream, or by polling from a number.

The browser gets the news of a run as deltas: `{"run", "seq", "next", "over"}` and any of `header`,
`rounds`, `end`, `status`, `left` (estimated seconds until the run begins), `error`, `fall_back`
(whether a recording should play instead of the failed run) and `remark` (why a run without an
error ended early). A delta holds the events from number `seq` up to, but not including, `next`, so
the player knows which events it has and which it missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from ..base.errors import SettingsError, SpecvizError
from ..runs.trace import event_dict, round_values
from .failures import PageQuestion
from .jobs import GRACE, Job, Run
from .queue import RunQueue

TICK = 0.1  # seconds between states; each costs the browser a frame, and a core may be short
HEARTBEAT = 0.5  # seconds after which a state without news is sent, to notice a closed tab

READY = "Getting ready."
CUT_SHORT = "The server is being restarted, so this run ended early; its results are kept."
LAST_WORDS = 1.0  # seconds for visitors to be sent the last results of their runs
_STEP = 0.02
FORGOTTEN = "The server no longer has this job: start it again. Received results are kept."

States = AsyncGenerator[dict[str, Any], None]


async def states(runs: RunQueue, job: Job) -> States:
    """Submit a job and yield its states, at most one per `TICK` and at least one per `HEARTBEAT`,
    until it is over. Closing the generator stops the job."""
    yield job.state(READY)
    try:
        runs.submit(job)
    except SpecvizError as refusal:
        job.refuse(str(refusal))
        yield job.state("")
        return
    sent_next = job.next_seq
    sent_status = READY
    sent_at = time.monotonic()
    try:
        while not job.ending.is_delivered:
            await asyncio.sleep(TICK)
            status = runs.status_of(job)
            is_due = time.monotonic() - sent_at > HEARTBEAT
            state = job.state(status, sent_next)
            if isinstance(job, Run) and not job.racing:
                state["left"] = runs.seconds_to_first_event(job)
            has_news = state["next"] != sent_next or status != sent_status
            if has_news or is_due or state["over"]:
                sent_next = state["next"]
                sent_status = status
                sent_at = time.monotonic()
                yield state
    finally:
        runs.cancel(job)


async def deltas(runs: RunQueue, run: Run) -> States:
    """Yield the deltas of a run. Closing the generator stops the run."""
    async with aclosing(states(runs, run)) as stream:
        async for state in stream:
            yield delta_of(state)


def delta_of(state: dict[str, Any]) -> dict[str, Any]:
    """Convert a state of a run to a delta. Tokens stay dataclasses, which orjson reads in C."""
    delta = {
        "run": state["id"],
        "seq": max(0, state["seq"]),
        "next": state["next"],
        "over": state["over"],
    }
    if state.get("header"):
        delta["header"] = event_dict(state["header"])
    if state.get("rounds"):
        delta["rounds"] = [round_values(event) for event in state["rounds"]]
    if state.get("end"):
        delta["end"] = event_dict(state["end"])
    error = state["error"]
    if error and state.get("fall_back"):
        delta["fall_back"] = True
    if state["remark"] and not error:
        delta["remark"] = state["remark"]
    if state["status"]:
        delta["status"] = state["status"]
    if error:
        delta["error"] = error
    if state.get("left") is not None:
        delta["left"] = state["left"]
    return delta


def refusal(error: str) -> dict[str, Any]:
    """The only delta of a run that the page refuses."""
    return {"run": uuid4().hex, "seq": 0, "next": 0, "over": True, "error": error}


def begun(runs: RunQueue, job: Job) -> dict[str, Any]:
    """Submit a job that the client polls, and return its first state. Raises `SpecvizError`."""
    runs.submit(job)
    return job.state(runs.status_of(job))


def finished_run(runs: RunQueue, request: dict[str, Any]) -> Run | None:
    """The run that a visitor's question is about, if the server still has it. Raises
    `SettingsError` if it has not ended."""
    run = runs.job(str(request.get("run")))
    if run is not None and not run.over:
        raise SettingsError("your run is still under way: wait until it ends, or stop it.")
    if not isinstance(run, Run):
        return None
    return run


def delivery_functions(runs: RunQueue) -> list[PageQuestion]:
    """The questions that poll a run, another job or the load of the page's pair, and those that end
    jobs."""

    def missed(request: dict[str, Any]) -> list[dict[str, Any]] | None:
        return _missed_deltas(runs, request["run"], int(request["seq"]))

    def ask_job(request: dict[str, Any]) -> dict[str, Any]:
        job = runs.job(str(request["id"]))
        if job is None or isinstance(job, Run):
            raise SpecvizError(FORGOTTEN)
        seq = int(request.get("seq", -1))
        hidden = bool(request.get("hidden"))
        return job.state(runs.status_of(job), seq, hidden=hidden)

    def end_job(request: dict[str, Any]) -> None:
        job = runs.job(str(request["id"]))
        if job is not None:
            runs.cancel(job)

    def stop(request: dict[str, Any]) -> None:
        runs.stop(str(request["session"]))

    def loading(_: dict[str, Any]) -> dict[str, Any]:
        if runs.page_load is None:
            return {"over": True}
        return runs.page_load.state()

    return [missed, ask_job, end_job, stop, loading]


def _missed_deltas(runs: RunQueue, run_id: object, seq: int) -> list[dict[str, Any]] | None:
    """The deltas of a run from number `seq`; None if the server does not know the run."""
    if not run_id:
        return []
    run = runs.job(str(run_id))
    if not isinstance(run, Run):
        return None
    if run.is_forgotten:
        return []
    state = run.state(runs.status_of(run), seq)
    return [delta_of(state)]


def drain(runs: RunQueue, seconds: float) -> None:
    """Close the queue: waiting jobs are refused at once; the current job has `seconds` to end by
    itself and `GRACE` more to stop. Returns once its results were sent to visitors, or soon after.
    """
    runs.refuse_from_now_on()
    _wait_while(lambda: runs.current is not None, seconds)
    current = runs.current
    if current is not None:
        current.end_early(CUT_SHORT)
    _wait_while(lambda: runs.current is not None, GRACE)
    _wait_while(lambda: any(_is_awaited(job) for job in runs.jobs()), LAST_WORDS)


def _is_awaited(job: Job) -> bool:
    """Whether the visitor of a job still waits for its end."""
    return not (job.ending.is_delivered or job.is_abandoned())


def _wait_while(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while holds() and time.monotonic() < deadline:
        time.sleep(_STEP)

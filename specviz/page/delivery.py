"""Delivery of jobs' results to visitors: as a stream, or by polling from a number.

The browser gets the events of a run as deltas: `{"run", "seq", "next", "over"}` and any of
`header`, `rounds`, `end`, `status`, `left` (estimated seconds until the run begins), `error`,
`fall_back` (whether a recording should play instead of the failed run) and `remark` (why a run
without an error ended early). A delta holds the events from number `seq` up to, but not including,
`next`, so the player knows which events it has and which it missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from ..base.errors import SpecvizError
from ..runs.trace import event_dict, round_values
from .failures import PageQuestion
from .jobs import GRACE, Job, Run
from .queue import RunQueue

TICK = 0.1  # seconds between states; each costs the browser a frame, and a core may be short
VISITOR_HEARTBEAT = 0.5  # seconds until an unchanged state is sent, to notice a closed tab

GETTING_READY = "Getting ready."
CUT_BY_RESTART = "The server is being restarted, so this run ended early; its results are kept."
LAST_DELIVERY_SECONDS = 1.0  # seconds for visitors to be sent the last results of their runs
_POLL_SECONDS = 0.02
FORGOTTEN = "The server no longer has this job: start it again. Received results are kept."

States = AsyncGenerator[dict[str, Any], None]


def deliver(queue: RunQueue, job: Job, seq: int = -1, *, hidden: bool = False) -> dict[str, Any]:
    """Return a job's state with its results from number `seq`, for its visitor, who polls just now.

    The poll keeps the job alive, and a state that says the job is over counts as delivered. Each
    poll also cleans up the queue, which has no clock of its own. hidden: whether the browser shows
    another tab.
    """
    job.visitor.note_poll(hidden=hidden)
    job.release_visitor()
    queue.clean_up()
    state = job.state(queue.status_of(job), seq)
    if state["over"]:
        job.ending.is_delivered = True
    return state


def submit_polled(queue: RunQueue, job: Job) -> dict[str, Any]:
    """Submit a job that its visitor polls, and return its first state. Raises `SpecvizError`."""
    queue.submit(job)
    return deliver(queue, job)


async def stream_states(queue: RunQueue, job: Job) -> States:
    """Submit a job and yield its states, at most one per `TICK` and at least one per
    `VISITOR_HEARTBEAT`, until it is over. Closing the generator stops the job."""
    yield job.state(GETTING_READY)
    try:
        queue.submit(job)
    except SpecvizError as refusal:
        job.refuse(str(refusal))
        yield job.state("")
        return
    sent_next = job.next_seq
    sent_status = GETTING_READY
    sent_at = time.monotonic()
    is_over = False
    try:
        while not is_over:
            await asyncio.sleep(TICK)
            state = deliver(queue, job, sent_next)
            is_over = state["over"]
            if isinstance(job, Run) and not job.racing:
                state["left"] = queue.seconds_to_first_event(job)
            has_changed = state["next"] != sent_next or state["status"] != sent_status
            is_due = time.monotonic() - sent_at > VISITOR_HEARTBEAT
            if has_changed or is_due or is_over:
                sent_next = state["next"]
                sent_status = state["status"]
                sent_at = time.monotonic()
                yield state
    finally:
        queue.cancel(job)


async def stream_deltas(queue: RunQueue, run: Run) -> States:
    """Submit a run and yield its deltas. Closing the generator stops the run."""
    async with aclosing(stream_states(queue, run)) as stream:
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


def delivery_questions(queue: RunQueue) -> list[PageQuestion]:
    """The questions that poll a run, another job or the load of the page's pair, and those that end
    jobs."""

    def missed(request: dict[str, Any]) -> list[dict[str, Any]] | None:
        return _missed_deltas(queue, request["run"], int(request["seq"]))

    def ask_job(request: dict[str, Any]) -> dict[str, Any]:
        job = queue.job(str(request["id"]))
        if job is None or isinstance(job, Run):
            raise SpecvizError(FORGOTTEN)
        seq = int(request.get("seq", -1))
        hidden = bool(request.get("hidden"))
        return deliver(queue, job, seq, hidden=hidden)

    def end_job(request: dict[str, Any]) -> None:
        job = queue.job(str(request["id"]))
        if job is not None:
            queue.cancel(job)

    def stop(request: dict[str, Any]) -> None:
        queue.stop(str(request["session"]))

    def loading(_: dict[str, Any]) -> dict[str, Any]:
        if queue.page_load is None:
            return {"over": True}
        return queue.page_load.state()

    return [missed, ask_job, end_job, stop, loading]


def _missed_deltas(queue: RunQueue, run_id: object, seq: int) -> list[dict[str, Any]] | None:
    """The deltas of a run from number `seq`; None if the server does not know the run."""
    if not run_id:
        return []
    run = queue.job(str(run_id))
    if not isinstance(run, Run):
        return None
    if run.is_forgotten:
        return []
    return [delta_of(deliver(queue, run, seq))]


def drain(queue: RunQueue, seconds: float) -> None:
    """Close the queue: waiting jobs are refused at once; the current job has `seconds` to end by
    itself and `GRACE` more to stop. Returns once its results were sent to visitors, or soon after.
    """
    queue.refuse_from_now_on()
    _wait_while(lambda: queue.visitors_job is not None, seconds)
    current = queue.visitors_job
    if current is not None:
        current.end_early(CUT_BY_RESTART)
    _wait_while(lambda: queue.visitors_job is not None, GRACE)
    _wait_while(lambda: any(_is_awaited(job) for job in queue.jobs()), LAST_DELIVERY_SECONDS)


def _is_awaited(job: Job) -> bool:
    """Whether the visitor of a job still waits for its end."""
    return not (job.ending.is_delivered or job.is_abandoned())


def _wait_while(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while holds() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)

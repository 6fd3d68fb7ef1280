"""Endpoints for programs: `generate`, `race`, `doctor` and `sweep`, in the visitors' queue."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import asdict
from inspect import Parameter
from typing import Any, get_type_hints
from uuid import uuid4

from starlette.concurrency import run_in_threadpool

from ..core.events import Event, Round
from ..core.registry import swept_drafters
from ..core.settings import Settings
from ..runs.metrics import compute_metrics
from ..runs.trace import Trace, event_dict
from .choices import asked_pair
from .controls import (
    CHOICES,
    LIMITS,
    checked_others,
    checked_prompt,
    checked_settings,
    defaults_of,
)
from .delivery import States, stream_states
from .doctor import Doctor
from .endpoints import Endpoints
from .failures import sentence
from .jobs import Run
from .queue import RunQueue
from .sweeps import SweepJob, asked_request, sweep_of, sweeps_allowed

RUNS = 2  # of programs that may be in the queue at a time, so that visitors need not wait long
ENDED_EARLY = "This was stopped before there was any result: call it again."
LATER = ("verdict",)  # settings that came after the others had places

Values = AsyncGenerator[dict[str, Any], None]


def add_api(endpoints: Endpoints, queue: RunQueue, examiner: Doctor, page_pair: str) -> None:
    """Add the endpoints for programs. page_pair: the pair that the page was started with."""

    def race(*values: Any) -> Values:
        """Race all lanes on a prompt and stream the events, about ten times a second: each value
        has any of "status" (a sentence), "header", "rounds" (new ones) and "end". lanes: further
        lanes with drafts, by their differences, such as ["drafter=ngram,gamma=3"]."""
        return streamed(_run_states(queue, page_pair, values))

    def generate(*values: Any) -> Values:
        """Race all lanes on a prompt: the result has "text" (the continuation), "metrics", "lanes"
        (the metrics of each lane with drafts) and "trace" (the run in the form of a recording).
        Until then the values have a "status". lanes: as in `race`."""
        return collected(_run_states(queue, page_pair, values))

    def doctor(pair: str = page_pair) -> Any:
        """Whether two models can race each other here, before any weights are fetched: "verdict"
        (good, warning or stop), "summary" and "findings"."""
        return examiner.examine(asked_pair(pair, page_pair=page_pair))

    racing = signature_of(page_pair)
    places = asyncio.Semaphore(RUNS)
    endpoints.add_stream(generate, signature=racing, places=places)
    endpoints.add_stream(race, signature=racing, places=places)
    endpoints.add(doctor)
    if sweeps_allowed():
        _add_sweep(endpoints, queue, page_pair)


def signature_of(page_pair: str) -> inspect.Signature:
    """The parameters of `generate` and `race`: a prompt, a pair, and the page's settings with its
    defaults. Programs may pass them by position, so their order never changes."""
    types = get_type_hints(Settings)
    usual = defaults_of(page_pair)

    def setting(name: str) -> Parameter:
        return _parameter(name, types[name], usual[name])

    names = [name for name in (*LIMITS, *CHOICES) if name not in LATER]
    parameters = [
        _parameter("prompt", str, Parameter.empty),
        _parameter("pair", str, page_pair),
        *map(setting, names),
        _parameter("stop", list[str] | None, None),
        _parameter("lanes", list[str] | None, None),
        *map(setting, LATER),
    ]
    return inspect.Signature(parameters, return_annotation=Iterator[dict[str, Any]])


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(name, kind, default=default, annotation=hint)


async def _run_states(queue: RunQueue, page_pair: str, values: tuple[Any, ...]) -> States:
    """Yield the states of the run that a program asks for. Raises `SpecvizError`, or `gr.Error`
    with a sentence."""
    # A pair's name may have to be looked up on the disk.
    run = await run_in_threadpool(_requested_run, page_pair, values)
    async with aclosing(_without_errors(stream_states(queue, run))) as stream:
        async for state in stream:
            yield state


def _requested_run(page_pair: str, values: tuple[Any, ...]) -> Run:
    """The run that a program asks for. Raises `SpecvizError`."""
    bound = signature_of(page_pair).bind(*values)
    bound.apply_defaults()
    fields = bound.arguments
    prompt = fields.pop("prompt")
    pair = fields.pop("pair")
    stop = fields.pop("stop")
    others = fields.pop("lanes")
    settings = checked_settings({**fields, "stop": stop or ()})
    lanes = checked_others(settings, others)
    # Each run has a session of its own, because a program may ask for several at a time.
    session = f"api-{uuid4().hex}"
    pair = asked_pair(pair, page_pair=page_pair)
    return Run(session, pair, checked_prompt(prompt), settings, lanes)


async def _without_errors(stream: States) -> States:
    """Yield the states of a job, and raise its error if it fails."""
    async with aclosing(stream):
        async for state in stream:
            yield state
            if state["error"]:
                raise sentence(state["error"])


async def streamed(stream: States) -> Values:
    """Yield each state of a run for a program, with events in the form of a recording. A state
    without anything new is sent as {}, since the server notices only by sending that a program has
    left. An empty value also separates two values with rounds: Gradio sends the difference to the
    previous value, and computes it wrongly for nested lists that become shorter.
    """
    rounds_before = False
    begun = False
    async with aclosing(stream):
        async for state in stream:
            begun = begun or state.get("header") is not None
            value = _value_of(state)
            has_rounds = "rounds" in value
            if rounds_before and has_rounds:
                yield {}
            rounds_before = has_rounds
            if value or not state["over"]:
                yield value
            elif not begun and not state.get("error"):
                raise sentence(ENDED_EARLY)


def _value_of(state: dict[str, Any]) -> dict[str, Any]:
    """What is new in a run's state, with events in the form of a recording; {} if nothing is."""
    value: dict[str, Any] = {}
    if state.get("header"):
        value["header"] = event_dict(state["header"])
    if state.get("end"):
        value["end"] = event_dict(state["end"])
    if state.get("rounds"):
        value["rounds"] = [event_dict(event) for event in state["rounds"]]
    if state["status"]:
        value["status"] = state["status"]
    return value


async def collected(stream: States) -> Values:
    """Yield the progress of a run, and at last the run as one value."""
    events: list[Event] = []
    status = ""
    async with aclosing(stream):
        async for state in stream:
            if state.get("header"):
                events.append(state["header"])
            events += state.get("rounds", ())
            if state.get("end"):
                events.append(state["end"])
            status = state["status"] or status
            rounds = sum(isinstance(event, Round) for event in events)
            if rounds:
                yield {"status": f"{rounds} rounds so far."}
            else:
                yield {"status": status}
    if not events:
        raise sentence(ENDED_EARLY)
    yield await run_in_threadpool(_whole, events)


def _whole(events: list[Event]) -> dict[str, Any]:
    """A run as one value."""
    trace = Trace.from_events(events)
    lanes = {}
    for lane in trace.header.speculative:
        metrics = compute_metrics(trace, lane)
        lanes[lane] = asdict(metrics)
    first = trace.header.speculative[0]
    return {
        "text": trace.text(first),
        "texts": {lane: trace.text(lane) for lane in trace.lanes},
        "metrics": lanes[first],
        "lanes": lanes,
        "trace": trace.to_dict(),
    }


def _add_sweep(endpoints: Endpoints, queue: RunQueue, page_pair: str) -> None:
    def sweep(
        pair: str = page_pair,
        prompts: list[str] | None = None,
        drafters: str = " ".join(swept_drafters()),
        gammas: str = "1 2 3 5 8",
        policies: str = "fixed",
        temperatures: str = "0",
        length: int = 64,
        seconds: float = 60.0,
    ) -> Values:
        """Which drafter and which gamma, and whether to speculate at all: the last value has
        "result" (rows and recommendations) and "csv"; until then the values have a "status". Lists
        may be strings with spaces; without prompts the built-in set is used."""
        fields = {
            "prompts": prompts,
            "drafters": drafters,
            "gammas": gammas,
            "policies": policies,
            "temperatures": temperatures,
            "length": length,
            "seconds": seconds,
        }
        return _swept(queue, page_pair, pair, fields)

    endpoints.add_stream(sweep, places=asyncio.Semaphore(1))


async def _swept(queue: RunQueue, page_pair: str, pair: str, fields: dict[str, Any]) -> Values:
    job = await run_in_threadpool(_sweep_job, page_pair, pair, fields)
    async with aclosing(_without_errors(stream_states(queue, job))) as stream:
        async for state in stream:
            if state["over"]:
                continue  # its results come below
            status = state["status"]
            if job.progress:
                status = f"{job.progress.done} of about {job.progress.total} runs."
            yield {"status": status}
    if "whole" not in state:
        raise sentence(ENDED_EARLY)
    yield {"result": state["whole"], "csv": state["csv"]}


def _sweep_job(page_pair: str, pair: str, fields: dict[str, Any]) -> SweepJob:
    name = asked_pair(pair, page_pair=page_pair)
    return sweep_of(name, asked_request(fields, name))

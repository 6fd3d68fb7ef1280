"""The endpoint `sweep` for programs: what the view "Choose" does, in the same queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..errors import SpecvizError
from ..kinds import swept_drafters
from .choices import asked_pair
from .choosing import asked_request, begin, sweeps_allowed
from .queue import RunQueue
from .security.errors import sentence

ASK_EVERY = 0.5  # seconds; only by sending does the server notice that a program has left


def add_sweep_api(runs: RunQueue, own: str) -> None:
    """Add the endpoint to the current page, if there are sweeps here. own: the pair that the page
    was started with."""
    if not sweeps_allowed():
        return

    def sweep(
        pair: str = own,
        prompts: list[str] | None = None,
        drafters: str = " ".join(swept_drafters()),
        gammas: str = "1 2 3 5 8",
        policies: str = "fixed",
        temperatures: str = "0",
        length: int = 64,
        seconds: float = 60.0,
    ) -> Iterator[dict[str, Any]]:
        """Which drafter and which gamma, and whether to speculate at all: the last value holds
        "result" (rows and recommendations) and "csv"; until then there are values with a "status".
        Lists are texts with blanks; without prompts it is the built-in set."""
        asked = {
            "drafters": drafters.split(),
            "gammas": _numbers(gammas),
            "policies": policies.split(),
            "temperatures": _numbers(temperatures),
            "length": length,
            "seconds": seconds,
        }
        yield from _swept(runs, own, pair, {**asked, "prompts": prompts})

    gr.api(sweep, concurrency_limit=1, concurrency_id="sweep")


def _swept(runs: RunQueue, own: str, pair: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        job = begin(runs, asked_pair(pair, own=own), asked_request(asked))
    except SpecvizError as error:
        raise sentence(str(error)) from None
    try:
        while True:
            state = job.state(runs.status_of(job), job.version)
            if state["over"]:
                break
            progress = job.progress
            done = f"{progress.done} of about {progress.total} runs." if progress else ""
            yield {"status": done or state["status"]}
            time.sleep(ASK_EVERY)
    finally:
        runs.cancel(job)
    if "whole" not in state:
        raise sentence(str(state["error"]))
    yield {"result": state["whole"], "csv": state["csv"]}


def _numbers(text: str) -> list[float]:
    try:
        return [float(one) for one in text.split()]
    except ValueError:
        raise sentence(f"{text[:40]!r} are no numbers: use some like '1 2 5'.") from None

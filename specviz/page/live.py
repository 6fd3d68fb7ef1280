"""The run of a visitor: one request, answered by a stream of deltas as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import gradio as gr
import orjson
from fastapi import Body, HTTPException, Request
from gradio.context import LocalContext
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..base.errors import SpecvizError
from .choices import Offers, requested_pair
from .controls import (
    DEFAULTS,
    checked_others,
    checked_prompt,
    checked_settings,
    compared_with,
)
from .delivery import refusal, stream_deltas
from .jobs import Run
from .queue import RunQueue
from .security.addresses import RUN_PATH
from .security.requests import NOT_OURS

MAX_SESSION = 64  # characters of the name of a tab
NEEDED = {"session", "prompt", "pair", "lanes", *DEFAULTS}
"""The fields of a run request: the name of a tab, and the values of controls by name."""


class RunStream(StreamingResponse):
    """An answer that closes its generator whenever it ends, which stops the run."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        super().__init__(frames, media_type="text/event-stream")
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames):
            await super().__call__(scope, receive, send)


def add_run(page: gr.Server, queue: RunQueue, offers: Offers, page_pair: str) -> None:
    """Add the route. offers: drafters of pairs. page_pair: the pair that the page was started
    with."""

    @page.post(RUN_PATH, include_in_schema=False)
    async def run(request: Request, fields: dict[str, Any] = Body()) -> RunStream:  # noqa: B008
        """Race all lanes, and stream the deltas."""
        if NEEDED - fields.keys() or not _is_session(fields["session"]):
            raise HTTPException(400, NOT_OURS)
        # ZeroGPU charges a call to the visitor of this request, as with Gradio's own endpoints.
        LocalContext.request.set(gr.Request(request))
        try:
            # A pair's name may have to be looked up on the disk.
            requested = await run_in_threadpool(_requested_run, fields, offers, page_pair)
        except SpecvizError as error:
            return RunStream(_refusal_frame(str(error)))
        return RunStream(_delta_frames(queue, requested))


def _is_session(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_SESSION


def _requested_run(fields: dict[str, Any], offers: Offers, page_pair: str) -> Run:
    """The run that a visitor asks for. Raises `SpecvizError`."""
    settings = checked_settings({name: fields[name] for name in DEFAULTS})
    pair = requested_pair(fields, page_pair=page_pair)
    prompt = checked_prompt(fields["prompt"])
    others = compared_with(settings, fields["lanes"], offers.of(pair))
    lanes = checked_others(settings, others)
    return Run(fields["session"], pair, prompt, settings, lanes)


async def _delta_frames(queue: RunQueue, run: Run) -> AsyncGenerator[bytes, None]:
    async with aclosing(stream_deltas(queue, run)) as deltas:
        async for delta in deltas:
            yield _frame(delta)


async def _refusal_frame(error: str) -> AsyncGenerator[bytes, None]:
    yield _frame(refusal(error))


def _frame(delta: dict[str, Any]) -> bytes:
    """A delta as a server-sent event."""
    return b"data: " + orjson.dumps(delta) + b"\n\n"

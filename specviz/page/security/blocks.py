"""Gradio's `Blocks` for strangers: limits of events and of the time that the head of a request may
take, and failures of events, server functions and the API as sentences."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import gradio as gr
import h11
import uvicorn
from gradio.queueing import Queue
from gradio.routes import App
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import SettingsError, SpecvizError
from ...logs import brief
from ...worker.failures import FAILED
from .bodies import NOT_OURS
from .events import HeardQueue

if TYPE_CHECKING:
    from ..files import FileReader
    from ..queue import RunQueue

log = logging.getLogger(__name__)

HEAD_PATIENCE = 10.0  # seconds from the first byte of a head, or from the connection, to its end
MOST_CONNECTIONS = 2048  # more get the status 503

Answer = Callable[[dict[str, Any]], Any]


class PatientProtocol(H11Protocol):
    """uvicorn's, which ends a connection whose next head is not here in time. An idle connection
    between two requests is uvicorn's own affair."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._deadline is None:
                self._await_head()
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _await_head(self) -> None:
        # A transport that is closed already does nothing.
        self._deadline = self.loop.call_later(HEAD_PATIENCE, self.transport.close)


class Page(gr.Blocks):
    """Blocks whose events wait for somebody who reads their results, and fail with a sentence. The
    details are in the log. runs: its queue. reader: of visitors' files."""

    runs: RunQueue
    reader: FileReader

    def launch(self, *args: Any, **kwargs: Any) -> Any:
        """As Gradio's, with time limits of uvicorn that Gradio has no options for."""
        blocks = not kwargs.get("prevent_thread_lock", False)
        launched = super().launch(*args, **{**kwargs, "prevent_thread_lock": True})
        # uvicorn reads its configuration for each connection.
        self.server.config.http_protocol_class = PatientProtocol
        self.server.config.limit_concurrency = MOST_CONNECTIONS
        if blocks:
            self.block_thread()
        return launched

    def queue(self, *args: Any, **kwargs: Any) -> Page:
        """As Gradio's, with a `HeardQueue`."""
        super().queue(*args, **kwargs)
        self._queue = HeardQueue(self._queue)
        return self

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        """Read the values of an event; if the page cannot have sent them, the error says so."""
        try:
            return await super().preprocess_data(*args, **kwargs)
        except Exception as error:
            log.info("an event came with values that it cannot have: %s", brief(error))
            raise sentence(NOT_OURS) from None

    async def process_api(self, *args: Any, **kwargs: Any) -> Any:
        """Handle an event, or compute its next value."""
        try:
            return await super().process_api(*args, **kwargs)
        except gr.Error:
            raise
        except Exception:
            log.exception("an event failed")
            raise sentence(FAILED) from None


def sentence(text: str) -> gr.Error:
    """An error that shows this sentence and no traceback."""
    return gr.Error(text, print_exception=False)


def answering(function: Answer) -> Answer:
    """A server function that answers `{"error": sentence, "over": True}` if it fails."""

    @wraps(function)
    def answer(asked: dict[str, Any]) -> Any:
        try:
            return function(asked)
        except SpecvizError as error:
            return {"error": str(error), "over": True}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            log.info("a question made no sense: %s", brief(error))
            return {"error": NOT_OURS, "over": True}
        except Exception:
            log.exception("a question could not be answered")
            return {"error": FAILED, "over": True}

    return answer


RELIED_ON: dict[type, tuple[str, ...]] = {
    App: ("build_middleware_stack", "get_blocks"),
    gr.Blocks: ("launch", "queue", "preprocess_data", "process_api"),
    Queue: ("push", "send_message", "clean_events"),
    H11Protocol: ("connection_made", "data_received"),
}
"""What the page changes in Gradio and uvicorn. Under another name it would change nothing there,
and nobody would notice."""


def check_libraries() -> None:
    """Raise `SettingsError` if this Gradio or uvicorn is not one that the page can be made safe
    in."""
    missing = [
        f"{one.__module__}.{one.__name__}.{name}"
        for one, names in RELIED_ON.items()
        for name in names
        if not hasattr(one, name)
    ]
    if "_app" not in inspect.signature(gr.Blocks.launch).parameters:
        missing.append("Blocks.launch(_app=...)")
    if missing:
        raise SettingsError(
            f"gradio {gr.__version__} and uvicorn {uvicorn.__version__} lack "
            f"{', '.join(missing)}, on which the page's limits rest: install the versions in "
            "requirements.lock."
        )

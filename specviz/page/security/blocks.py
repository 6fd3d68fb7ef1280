"""What the page changes in Gradio and uvicorn for strangers: limits of events, of their results and
of the time that the head of a request may take, and failures as sentences.

Gradio itself runs every event to its end, and keeps the results of 2,000 sessions: those of the
oldest are lost when strangers send new names. Here an event begins once somebody reads its results,
and what nobody reads is forgotten.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

import gradio as gr
import h11
import uvicorn
from gradio.queueing import Event, Queue
from gradio.routes import App
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import SettingsError, SpecvizError
from ...logs import brief
from ...variables import MOST_PER_CLIENT
from ...worker.failures import FAILED
from .requests import NOT_OURS, Refused, client_of

if TYPE_CHECKING:
    from ..files import FileReader
    from ..queue import RunQueue

log = logging.getLogger(__name__)

HEAD_PATIENCE = 10.0  # seconds from the first byte of a head, or from the connection, to its end
MOST_CONNECTIONS = 2048  # more get the status 503
PATIENCE = 15.0  # seconds that an event waits for somebody who reads its results
MOST_EVENTS = 512  # unfinished ones, of all clients
MOST_UNREAD = 4096  # results that were not read yet, of all sessions
IDLE = 0.02  # seconds between looks for new events; Gradio's millisecond would disturb engines
RETRY = 5  # seconds after which a refused client may try again

TOO_MANY = "Too many requests of your network are unfinished: wait for some of them to end."
BUSY = "The server is busy: try again in a minute."

# Where Gradio's queue keeps events and their results.
KEPT_IN = (
    *("pending_messages_per_session", "pending_event_ids_session", "event_ids_to_events"),
    *("event_queue_per_concurrency_id", "active_jobs"),
)


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


class Inboxes(dict[str, Any]):
    """The results of each session that were not read yet. Gradio may remove one that is gone."""

    def __delitem__(self, session: str) -> None:
        self.pop(session, None)


class HeardQueue(Queue):
    """Gradio's queue, whose events come into their line once the stream of their session is open.

    plain: Gradio's own, in whose place this one comes. All of it happens in the server's event
    loop, so nothing here needs a lock.
    """

    def __init__(self, plain: Queue) -> None:
        vars(self).update(vars(plain))
        for name in KEPT_IN:  # raises if Gradio keeps it elsewhere: nothing would be limited
            getattr(self, name)
        self.pending_messages_per_session = Inboxes()  # type: ignore[assignment]
        self._open: Counter[str] = Counter()  # streams by session
        self._silent: dict[str, asyncio.TimerHandle] = {}  # sessions that nobody reads
        self._unheard: list[Event] = []
        self._arriving: Counter[str] = Counter()  # events on their way here, by client
        self._read: deque[str] = deque(maxlen=MOST_UNREAD)  # sessions whose results all were
        self.sleep_when_free = IDLE
        self._most = 4 * MOST_PER_CLIENT.read()

    @contextmanager
    def arriving(self, client: str) -> Iterator[None]:
        """Count an event of this client while it is on its way. Raises `Refused` if the client has
        too many unfinished ones."""
        events = self.event_ids_to_events.values()
        own = self._arriving[client] + sum(client_of(e.request.scope) == client for e in events)
        if own >= self._most:
            raise Refused(429, TOO_MANY, retry=RETRY)
        if len(events) + self._arriving.total() >= MOST_EVENTS:
            if not self._silent:
                raise Refused(503, BUSY, retry=RETRY)
            self._forget(next(iter(self._silent)))  # the one that nobody has read for longest
        self._arriving[client] += 1
        try:
            yield
        finally:
            self._arriving -= Counter([client])

    def session_of(self, name: str) -> str | None:
        """The session with this name, or to which the event of this id belongs."""
        if name in self.pending_messages_per_session:
            return name
        pending = self.pending_event_ids_session.items()
        return next((session for session, ids in pending if name in ids), None)

    def has_read_all(self, session: str) -> bool:
        """Whether a session that is unknown now was read to its end. Gradio's page opens a stream
        too many if an event ends while the answer that names it is still on its way."""
        return session in self._read

    @contextmanager
    def listening(self, session: str) -> Iterator[None]:
        """While the block runs, somebody reads the results of this session."""
        self._open[session] += 1
        if session in self._silent:
            self._silent.pop(session).cancel()
        for event in _taken(self._unheard, session):
            self.event_queue_per_concurrency_id[event.concurrency_id].queue.append(event)
        try:
            yield
        finally:
            self._open -= Counter([session])
            if not self._open[session]:
                self._fall_silent(session)
                if not self.pending_event_ids_session.get(session):
                    inbox = self.pending_messages_per_session.get(session)
                    if inbox is not None and inbox.empty():
                        self._read.append(session)
                    self._forget(session)

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        begun, name, _ = pushed = await super().push(body, request, username)
        event = self.event_ids_to_events.get(str(name)) if begun else None
        if event is not None and not self._open[event.session_hash]:
            self.event_queue_per_concurrency_id[event.concurrency_id].queue.remove(event)
            self._unheard.append(event)
            self._fall_silent(event.session_hash)
        return pushed

    def send_message(self, event: Event, event_message: Any) -> None:
        inboxes: Any = self.pending_messages_per_session
        if event.session_hash not in inboxes:
            return
        super().send_message(event, event_message)
        # Whoever reads at once has next to nothing unread, so the rest is seldom needed.
        if inboxes[event.session_hash].qsize() > MOST_UNREAD / MOST_EVENTS:
            while sum(one.qsize() for one in inboxes.values()) > MOST_UNREAD:
                self._forget(max(inboxes, key=lambda name: inboxes[name].qsize()))

    def _fall_silent(self, session: str) -> None:
        """Forget a session unless somebody reads it within `PATIENCE`."""
        if session not in self._silent:
            later = asyncio.get_running_loop().call_later
            self._silent[session] = later(PATIENCE, self._forget, session)

    def _forget(self, session: str) -> None:
        """End the events of a session, and free the memory of their results."""
        for event in [e for job in self.active_jobs for e in job or ()]:
            event.alive &= event.session_hash != session
        lines = [one.queue for one in self.event_queue_per_concurrency_id.values()]
        for line in (self._unheard, *lines):
            for event in _taken(line, session):
                self.event_ids_to_events.pop(event._id, None)
        inbox = self.pending_messages_per_session.pop(session, None)
        while inbox is not None and not inbox.empty():  # a stream that stalls holds on to it
            inbox.get_nowait()
        self.pending_event_ids_session.pop(session, None)
        if session in self._silent:
            self._silent.pop(session).cancel()


def _taken(line: list[Event], session: str) -> list[Event]:
    """The events of this session, which are no longer in the line."""
    found = [event for event in line if event.session_hash == session]
    line[:] = [event for event in line if event.session_hash != session]
    return found


class Page(gr.Blocks):
    """Blocks whose events wait for somebody who reads their results, and fail with a sentence. The
    details are in the log. runs: its queue. reader: of visitors' files. programs: the endpoints for
    programs by name, with their parameters."""

    runs: RunQueue
    reader: FileReader
    programs: Mapping[str, inspect.Signature]

    @cached_property
    def event_names(self) -> dict[int, str]:
        """The names of events by the number with which a client may call them."""
        return {number: str(event.api_name) for number, event in self.fns.items()}

    def launch(self, *args: Any, prevent_thread_lock: bool = False, **kwargs: Any) -> Any:
        """As Gradio's, with time limits of uvicorn that Gradio has no options for."""
        kwargs["prevent_thread_lock"] = True
        launched = super().launch(*args, **kwargs)
        # uvicorn reads its configuration for each connection.
        self.server.config.http_protocol_class = PatientProtocol
        self.server.config.limit_concurrency = MOST_CONNECTIONS
        if not prevent_thread_lock:
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


def answering(function: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
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
    """Raise `SettingsError` if the page cannot be made safe in this Gradio or uvicorn."""
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

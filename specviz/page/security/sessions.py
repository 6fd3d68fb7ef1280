"""Readers and unfinished events of Gradio's queue.

Gradio runs every event to its end, and keeps the results of 2,000 sessions: those of the oldest are
lost when strangers send new names. Here an endpoint produces results only while there is a reader,
it waits for a slow reader, and a session that nobody reads is forgotten, also by Gradio.

Two kinds of streams bring results: one of a session, for Gradio's clients, and one of an event, for
any other program. The session of an event is the one that its request named, or else the event
itself. All of it happens in the server's event loop, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import orjson
from anyio import move_on_after
from starlette.types import Message, Receive, Send

from ...base.variables import MAX_PER_CLIENT
from .requests import Refused

READER_PATIENCE = 15.0  # seconds that an event waits for somebody who reads its results
MAX_EVENTS = 512  # unfinished ones, of all clients
MAX_UNREAD = 8  # unsent results of one session
MAX_REMEMBERED = 4096  # remembered sessions whose results were all read
RETRY = 5  # seconds after which a refused client may try again

TOO_MANY = "Too many requests from your network are unfinished: wait for some of them to end."
BUSY = "The server is busy: try again in a minute."

T = TypeVar("T")
_END = object()

Pass = Callable[[Receive, Send], Awaitable[None]]
"""Passes a request on to Gradio."""


class EventQueue(Protocol):
    """The used part of Gradio's queue: unsent results and unread events by session."""

    pending_messages_per_session: Any
    pending_event_ids_session: dict[str, set[str]]

    async def clean_events(self, *, session_hash: str) -> None:
        """End the events of a session."""


@dataclass(eq=False)
class Waiter:
    """An endpoint that waits for a change of its session. is_given_up: whether the session was
    forgotten."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    is_given_up: bool = False


@dataclass
class Session:
    """client: the address that sent its events. streams: the number of open streams. has_left:
    whether a reader left before the end of a stream. silent: the timer that forgets a session
    without a reader."""

    client: str
    streams: int = 0
    has_left: bool = False
    silent: asyncio.TimerHandle | None = None


class Sessions:
    """The sessions with unfinished events or open streams; nothing is kept of any other. queue:
    returns Gradio's queue, which exists once the page is served.
    """

    def __init__(self, queue: Callable[[], EventQueue]) -> None:
        self._queue = queue
        self._sessions: dict[str, Session] = {}
        self._arriving: Counter[str] = Counter()  # events on their way here, by client
        self._waiters: dict[str, set[Waiter]] = {}  # by session
        self._read_whole: deque[str] = deque(maxlen=MAX_REMEMBERED)
        self._max_of_client = 4 * MAX_PER_CLIENT.read()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def unfinished(self) -> int:
        """The number of unfinished events, including arriving ones."""
        unread = sum(map(self._unread, self._sessions))
        return unread + self._arriving.total()

    async def begin(self, passed: Pass, client: str, receive: Receive, send: Send) -> None:
        """Pass on to Gradio a request that begins an event, and note it. Raises `Refused`."""
        arriving = ExitStack()
        arriving.enter_context(self.arriving(client))

        async def note_and_send(message: Message) -> None:
            # Noted before it is sent: the client reads the results at once.
            event = _event_of(message.get("body", b""))
            if event is not None:
                arriving.close()
                self.note(event, client)
            await send(message)

        with arriving:
            await passed(receive, note_and_send)

    async def read(self, passed: Pass, name: str, receive: Receive, send: Send) -> None:
        """Let Gradio stream the results of a session while they are read."""

        async def watch(session: Session) -> Message:
            message = await receive()
            session.has_left = session.has_left or message["type"] == "http.disconnect"
            return message

        async def send_and_wake(message: Message) -> None:
            await send(message)
            self._wake(name)  # an endpoint may wait until this is sent

        with self.reading(name) as session:
            await passed(lambda: watch(session), send_and_wake)

    @contextmanager
    def arriving(self, client: str) -> Iterator[None]:
        """Count an arriving event of this client inside the block. Raises `Refused` if the client
        has too many unfinished ones."""
        unread = 0
        for name, session in self._sessions.items():
            if session.client == client:
                unread += self._unread(name)
        if unread + self._arriving[client] >= self._max_of_client:
            raise Refused(429, TOO_MANY, retry=RETRY)
        if self.unfinished >= MAX_EVENTS:
            self._forget_oldest()
        self._arriving[client] += 1
        try:
            yield
        finally:
            self._arriving -= Counter([client])

    def _forget_oldest(self) -> None:
        """Forget the oldest session without a reader. Raises `Refused` if all have readers."""
        for name, session in self._sessions.items():
            if not session.streams:
                self.forget(name)
                return
        raise Refused(503, BUSY, retry=RETRY)

    def note(self, event: str, client: str) -> None:
        """Note an event that Gradio has accepted, unless its end was read meanwhile."""
        name = self._session_in_queue(event)
        if name is None:
            return
        session = self._sessions.setdefault(name, Session(client))
        if not session.streams:
            self._start_timer(name, session)

    def session_of(self, name: str) -> str | None:
        """The session with this name, or the session of the event with this id."""
        if name in self._sessions:
            return name
        session = self._session_in_queue(name)
        if session not in self._sessions:
            return None
        return session

    def was_read_whole(self, name: str) -> bool:
        """Whether a session that is now unknown was read to its end. Gradio's clients open a
        superfluous stream if an event ends before the answer that names it arrives."""
        return name in self._read_whole

    @contextmanager
    def reading(self, name: str) -> Iterator[Session]:
        """Count an open stream of this session inside the block."""
        session = self._sessions[name]
        session.streams += 1
        if session.silent is not None:
            session.silent.cancel()
            session.silent = None
        self._wake(name)
        try:
            yield session
        finally:
            session.streams -= 1
            if not session.streams and self._sessions.get(name) is session:
                self._close(name, session)

    def is_read(self, name: str) -> bool:
        """Whether somebody reads this session."""
        session = self._sessions.get(name)
        return session is not None and session.streams > 0

    async def wait_for_reader(self, name: str) -> bool:
        """Wait for up to `READER_PATIENCE`, and return whether there is a reader. An endpoint may
        begin before the answer that names its event, and so before its session is known."""
        with move_on_after(READER_PATIENCE):
            while not self.is_read(name):
                if not await self._has_news(name):
                    return False
        return self.is_read(name)

    async def stream_results(
        self, name: str, results: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Yield the results of an event as its reader receives them. The stream begins once there
        is a reader, and ends when the reader has left; the generator is then closed."""
        async with aclosing(results):
            if not await self.wait_for_reader(name):
                return
            reader_left = asyncio.create_task(self._wait_until_left(name))
            try:
                while not reader_left.done():
                    result = await _next_unless(reader_left, results)
                    if result is _END:
                        return
                    yield result  # type: ignore[misc]
                    await self._wait_for_slow_reader(name)
            finally:
                reader_left.cancel()

    def forget(self, name: str) -> None:
        """End the events of a session, and make Gradio forget it."""
        session = self._sessions.pop(name)
        if session.silent is not None:
            session.silent.cancel()
        for waiter in self._waiters.get(name, ()):
            waiter.is_given_up = True
        self._wake(name)
        if not self._unread(name):
            self._drop_results(name)
            return
        task = asyncio.get_running_loop().create_task(self._end_events(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_events(self, name: str) -> None:
        """End the events that Gradio still runs for a session. This comes first: a running event
        looks up the queue of its results."""
        await self._queue().clean_events(session_hash=name)
        self._drop_results(name)

    def _drop_results(self, name: str) -> None:
        self._queue().pending_messages_per_session.pop(name, None)
        self._queue().pending_event_ids_session.pop(name, None)

    def _close(self, name: str, session: Session) -> None:
        """Handle the close of a session's last stream."""
        if not self._unread(name):
            self._read_whole.append(name)
            self.forget(name)
        elif session.has_left:
            self.forget(name)
        else:
            self._start_timer(name, session)

    def _start_timer(self, name: str, session: Session) -> None:
        """Forget a session unless somebody reads it within `READER_PATIENCE`."""
        self._wake(name)
        if session.silent is None:
            later = asyncio.get_running_loop().call_later
            session.silent = later(READER_PATIENCE, self.forget, name)

    def _unread(self, name: str) -> int:
        """The number of events of a session whose end nobody has read."""
        return len(self._queue().pending_event_ids_session.get(name, ()))

    def _session_in_queue(self, event: str) -> str | None:
        """The session of an event whose end nobody has read; None if there is no such event."""
        for name, events in self._queue().pending_event_ids_session.items():
            if event in events:
                return name
        return None

    async def _wait_until_left(self, name: str) -> None:
        while self.is_read(name):
            await self._has_news(name)

    async def _wait_for_slow_reader(self, name: str) -> None:
        """Wait while a session has too many unsent results."""
        while self.is_read(name):
            unsent = self._queue().pending_messages_per_session.get(name)
            if unsent is None or unsent.qsize() < MAX_UNREAD:
                return
            await self._has_news(name)

    async def _has_news(self, name: str) -> bool:
        """Wait until this session has changed. Returns False if it was forgotten."""
        waiter = Waiter()
        waiters = self._waiters.setdefault(name, set())
        waiters.add(waiter)
        try:
            await waiter.news.wait()
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiters.get(name) is waiters:
                del self._waiters[name]
        return not waiter.is_given_up

    def _wake(self, name: str) -> None:
        for waiter in self._waiters.get(name, ()):
            waiter.news.set()


async def _next_unless(left: asyncio.Task[None], results: AsyncGenerator[T, None]) -> T | object:
    """Return the next result, or `_END` if there is none or the reader has left before it came."""
    step = asyncio.create_task(_next(results))
    try:
        await asyncio.wait({step, left}, return_when=asyncio.FIRST_COMPLETED)
        if step.done():
            return step.result()
        return _END
    finally:
        if not step.done():  # a generator cannot be closed while it computes a value
            step.cancel()
            await asyncio.wait({step})


async def _next(results: AsyncGenerator[T, None]) -> T | object:
    return await anext(results, _END)


def _event_of(raw: bytes) -> str | None:
    """The id in Gradio's answer to a request that begins an event; None in any other answer."""
    try:
        answer: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict):
        return None
    event = answer.get("event_id")
    if not isinstance(event, str):
        return None
    return event

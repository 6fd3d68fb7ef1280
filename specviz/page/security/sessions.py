"""Who reads the results of which event, and how many events are unfinished.

Gradio runs every event to its end, and keeps the results of 2,000 sessions: those of the oldest are
lost when strangers send new names. Here an endpoint makes results for a reader and for nobody else,
it waits for one that is slow, and a session that nobody reads is forgotten, also by Gradio.

Two kinds of streams bring results: one of a session, for Gradio's clients, and one of an event, for
any other program. The session of an event is what its request named, or else the event itself. All
of it happens in the server's event loop, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import move_on_after

from ...base.variables import MOST_PER_CLIENT
from .requests import Refused

PATIENCE = 15.0  # seconds that an event waits for somebody who reads its results
MOST_EVENTS = 512  # unfinished ones, of all clients
MOST_UNREAD = 8  # results of one session that were made and not sent
REMEMBERED = 4096  # sessions whose results all were read, or that were forgotten
RETRY = 5  # seconds after which a refused client may try again

TOO_MANY = "Too many requests of your network are unfinished: wait for some of them to end."
BUSY = "The server is busy: try again in a minute."

T = TypeVar("T")
_END = object()


@dataclass
class Session:
    """client: whose events these are. unfinished: events of which nobody has read the end. streams:
    that are open. gone: those of them whose client has left. left: whether one has. unread: results
    that were made and not sent. events: their ids. silent: the timer that forgets it."""

    client: str
    unfinished: int = 0
    streams: int = 0
    gone: int = 0
    left: bool = False
    unread: int = 0
    events: list[str] = field(default_factory=list)
    silent: asyncio.TimerHandle | None = None


class Sessions:
    """The sessions with unfinished events or open streams; no other one leaves anything behind.

    leave: has Gradio forget a session; it is told whether all of its events have ended.
    """

    def __init__(self, leave: Callable[[str, bool], None]) -> None:
        self._leave = leave
        self._sessions: dict[str, Session] = {}
        self._events: dict[str, str] = {}  # sessions by event
        self._arriving: Counter[str] = Counter()  # events on their way here, by client
        self._waiting: dict[str, set[asyncio.Event]] = {}  # endpoints by session
        self._read: deque[str] = deque(maxlen=REMEMBERED)
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._most = 4 * MOST_PER_CLIENT.read()

    @property
    def unfinished(self) -> int:
        """How many events are unfinished, those included that are on their way."""
        events = sum(session.unfinished for session in self._sessions.values())
        return events + self._arriving.total()

    @contextmanager
    def arriving(self, client: str) -> Iterator[None]:
        """Count an event of this client while it is on its way. Raises `Refused` if the client has
        too many unfinished ones."""
        sessions = self._sessions.values()
        of_client = sum(session.unfinished for session in sessions if session.client == client)
        if of_client + self._arriving[client] >= self._most:
            raise Refused(429, TOO_MANY, retry=RETRY)
        if self.unfinished >= MOST_EVENTS:
            unheard = (name for name, session in self._sessions.items() if not session.streams)
            oldest = next(unheard, None)
            if oldest is None:
                raise Refused(503, BUSY, retry=RETRY)
            self.forget(oldest)
        self._arriving[client] += 1
        try:
            yield
        finally:
            self._arriving -= Counter([client])

    def expect(self, name: str) -> None:
        """An event of this session is on its way to Gradio, where it may begin at once."""
        self._forgotten.pop(name, None)

    def begun(self, event: str, name: str | None, client: str) -> None:
        """Note an event of this session, which Gradio has taken."""
        name = name or event
        session = self._sessions.setdefault(name, Session(client))
        session.unfinished += 1
        session.events.append(event)
        self._events[event] = name
        if not session.streams:
            self._fall_silent(name, session)

    def session_of(self, name: str) -> str | None:
        """The session with this name, or to which the event of this id belongs."""
        return name if name in self._sessions else self._events.get(name)

    def has_read_all(self, name: str) -> bool:
        """Whether a session that is unknown now was read to its end. Gradio's clients open a stream
        too many if an event ends while the answer that names it is still on its way."""
        return name in self._read

    @contextmanager
    def reading(self, name: str) -> Iterator[Session]:
        """While the block runs, a stream of this session is open."""
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
            session.gone = min(session.gone, session.streams)
            if not session.streams and self._sessions.get(name) is session:
                self._closed(name, session)

    def _closed(self, name: str, session: Session) -> None:
        """The last stream of a session is closed."""
        if session.unfinished > 0 and not session.left:
            self._fall_silent(name, session)
            return
        if not session.left:
            self._read.append(name)
        self.forget(name)

    def leave(self, session: Session, name: str) -> None:
        """The client of one of its streams has left, before the end."""
        session.gone += 1
        session.left = True
        self._wake(name)

    def sent(self, session: Session, name: str) -> None:
        """A result has gone to the reader of this session."""
        session.unread = max(0, session.unread - 1)
        self._wake(name)

    def is_read(self, name: str) -> bool:
        """Whether somebody reads this session."""
        session = self._sessions.get(name)
        return session is not None and session.streams > session.gone

    async def come(self, name: str) -> bool:
        """Wait for a reader, for up to `PATIENCE`; whether there is one. An endpoint may begin
        before the answer that names its event, and so before its session is known."""
        with move_on_after(PATIENCE):
            while not (self.is_read(name) or name in self._forgotten):
                await self._news(name)
        return self.is_read(name)

    async def heard(self, name: str, results: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The results of an event, as its reader takes them. It begins once there is a reader, and
        ends when that one has left; the generator is then closed."""
        async with aclosing(results):
            if not await self.come(name):
                return
            left = asyncio.create_task(self._left(name))
            try:
                while not left.done():
                    step = asyncio.create_task(_next(results))
                    await asyncio.wait({step, left}, return_when=asyncio.FIRST_COMPLETED)
                    if not step.done():
                        step.cancel()
                        await asyncio.wait({step})
                        return
                    result = step.result()
                    session = self._sessions.get(name)
                    if result is _END or session is None:
                        return
                    session.unread += 1
                    yield result  # type: ignore[misc]
                    await self._caught_up(name)
            finally:
                left.cancel()

    def forget(self, name: str) -> None:
        """End the events of a session, and have Gradio forget it."""
        session = self._sessions.pop(name)
        if session.silent is not None:
            session.silent.cancel()
        for event in session.events:
            self._events.pop(event, None)
        session.streams = 0
        self._forgotten[name] = None
        if len(self._forgotten) > REMEMBERED:
            self._forgotten.popitem(last=False)
        self._wake(name)
        self._leave(name, session.unfinished <= 0)

    async def _left(self, name: str) -> None:
        while self.is_read(name):
            await self._news(name)

    async def _caught_up(self, name: str) -> None:
        """Wait while a reader is behind."""
        session = self._sessions.get(name)
        while session is not None and self.is_read(name) and session.unread >= MOST_UNREAD:
            await self._news(name)

    def _fall_silent(self, name: str, session: Session) -> None:
        """Forget a session unless somebody reads it within `PATIENCE`."""
        self._wake(name)
        if session.silent is None:
            later = asyncio.get_running_loop().call_later
            session.silent = later(PATIENCE, self.forget, name)

    async def _news(self, name: str) -> None:
        """Wait until something about this session has changed."""
        news = asyncio.Event()
        waiting = self._waiting.setdefault(name, set())
        waiting.add(news)
        try:
            await news.wait()
        finally:
            waiting.discard(news)
            if not waiting and self._waiting.get(name) is waiting:
                del self._waiting[name]

    def _wake(self, name: str) -> None:
        for news in self._waiting.get(name, ()):
            news.set()


async def _next(results: AsyncGenerator[T, None]) -> T | object:
    return await anext(results, _END)

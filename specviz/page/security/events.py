"""Gradio's queue of events, with limits: an event begins once somebody reads its results, and what
nobody reads is forgotten.

Gradio itself runs every event to its end, and keeps the results of 2,000 sessions: those of the
oldest are lost when strangers send new names.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradio.queueing import Event, Queue

from ...variables import MOST_PER_CLIENT
from ..requests import client_of
from .bodies import Refused

PATIENCE = 15.0  # seconds that an event waits for somebody who reads its results
MOST_EVENTS = 512  # unfinished ones, of all clients
MOST_UNREAD = 4096  # results that were not read yet, of all sessions
IDLE_SECONDS = 0.02
"""Between looks for new events; a visitor does not notice so short a wait. Gradio wakes each
millisecond, beside an engine that times itself."""
RETRY = 5  # seconds after which a refused client may try again

TOO_MANY = "Too many requests of your network are unfinished: wait for some of them to end."
BUSY = "The server is busy: try again in a minute."


RELIED_ON = (
    *("pending_messages_per_session", "pending_event_ids_session", "event_ids_to_events"),
    *("event_queue_per_concurrency_id", "active_jobs"),
)
"""Where Gradio's queue keeps events and their results."""


class Inboxes(dict[str, Any]):
    """The results of each session that were not read yet. Gradio may remove one that is gone."""

    def __delitem__(self, session: str) -> None:
        self.pop(session, None)


class HeardQueue(Queue):
    """Gradio's queue, whose events come into their line once the stream of their session is open.

    All of it happens in the server's event loop, so nothing here needs a lock.
    """

    def __init__(self, plain: Queue) -> None:
        """plain: Gradio's own queue, in whose place this one comes."""
        vars(self).update(vars(plain))
        for name in RELIED_ON:  # raises if Gradio keeps it elsewhere: nothing would be limited
            getattr(self, name)
        self.pending_messages_per_session = Inboxes()  # type: ignore[assignment]
        self._open: Counter[str] = Counter()  # streams by session
        self._silent: dict[str, asyncio.TimerHandle] = {}  # sessions that nobody reads
        self._unheard: list[Event] = []
        self._arriving: Counter[str] = Counter()  # events on their way here, by client
        self._read: deque[str] = deque(maxlen=MOST_UNREAD)  # sessions whose results all were
        self.sleep_when_free = IDLE_SECONDS
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
            self._line_of(event).append(event)
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
        pushed = await super().push(body, request, username)
        event = self.event_ids_to_events.get(str(pushed[1])) if pushed[0] else None
        if event is not None and not self._open[event.session_hash]:
            self._line_of(event).remove(event)
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

    def _line_of(self, event: Event) -> list[Event]:
        return self.event_queue_per_concurrency_id[event.concurrency_id].queue

    def _fall_silent(self, session: str) -> None:
        """Forget a session unless somebody reads it within `PATIENCE`."""
        if session not in self._silent:
            loop = asyncio.get_running_loop()
            self._silent[session] = loop.call_later(PATIENCE, self._forget, session)

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

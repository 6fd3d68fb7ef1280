"""An endpoint makes results only for a reader. Readers are observed before Gradio, and a session
without a reader is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from specviz.page.security import sessions
from specviz.page.security.requests import Refused
from specviz.page.security.sessions import MAX_UNREAD, Sessions


class Source:
    """An endpoint that yields numbers. made: their count. closed: whether the endpoint was
    closed."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = False

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            while True:
                self.made += 1
                yield self.made
        finally:
            self.closed = True


class FakeQueue:
    """The used parts of Gradio's queue. ended: sessions whose events were ended."""

    def __init__(self) -> None:
        self.pending_messages_per_session: dict[str, asyncio.Queue[int]] = {}
        self.pending_event_ids_session: dict[str, set[str]] = {}
        self.ended: list[str] = []

    def push(self, name: str, event: str) -> None:
        self.pending_messages_per_session.setdefault(name, asyncio.Queue())
        self.pending_event_ids_session.setdefault(name, set()).add(event)

    def end(self, name: str) -> None:
        """Mark the ends of all events of a session as read."""
        self.pending_event_ids_session[name].clear()

    async def clean_events(self, *, session_hash: str) -> None:
        self.ended.append(session_hash)


class Story:
    """A scenario with two sessions, "a" and "b", and an endpoint of the first."""

    def __init__(self) -> None:
        self.queue = FakeQueue()
        self.known = Sessions(lambda: self.queue)
        self.source = Source()
        self.found: list[int] = []
        for name in ("a", "b"):
            self.begin(f"event of {name}", name)
        self.task = asyncio.create_task(self._read())

    def begin(self, event: str, name: str, client: str = "client") -> None:
        self.queue.push(name, event)
        self.known.note(event, client)

    async def _read(self) -> None:
        async for number in self.known.stream_results("a", self.source.numbers()):
            self.found.append(number)
            unsent = self.queue.pending_messages_per_session.get("a")
            if unsent is not None:  # None if it was forgotten meanwhile
                await unsent.put(number)

    def leaves_nothing(self) -> bool:
        held = (self.known._sessions, self.known._waiters, +self.known._arriving)
        kept = (self.queue.pending_messages_per_session, self.queue.pending_event_ids_session)
        return not any((*held, *kept))


async def settled() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(100):
        await asyncio.sleep(0)


def told(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in another thread: that of the tests may already have an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, story()).result()


def test_nothing_is_made_before_there_is_a_reader_nor_for_another_session() -> None:
    async def story() -> None:
        one = Story()
        await settled()
        with one.known.reading("b"):
            await settled()
            assert one.source.made == 0
        with one.known.reading("a"):
            await settled()
            assert one.source.made > 0
        await one.task

    told(story)


def test_an_endpoint_waits_for_a_slow_reader() -> None:
    async def story() -> None:
        one = Story()
        with one.known.reading("a"):
            await settled()
            assert len(one.found) == MAX_UNREAD
            one.queue.pending_messages_per_session["a"].get_nowait()
            one.known._wake("a")
            await settled()
            assert len(one.found) == MAX_UNREAD + 1
        await one.task

    told(story)


def test_it_ends_at_once_when_its_reader_leaves_also_while_it_makes_a_value() -> None:
    async def story() -> None:
        one = Story()
        ended: list[bool] = []

        async def never() -> AsyncGenerator[int, None]:
            try:
                await asyncio.sleep(60)
                yield 1
            finally:
                ended.append(True)

        async def read() -> None:
            async for _ in one.known.stream_results("b", never()):
                pass

        stuck = asyncio.create_task(read())
        with one.known.reading("a") as session, one.known.reading("b") as other:
            await settled()
            session.has_left = other.has_left = True
        await settled()
        assert one.source.closed and ended == [True]
        await asyncio.wait_for(asyncio.gather(one.task, stuck), 5)
        assert sorted(one.queue.ended) == ["a", "b"] and one.leaves_nothing()
        assert not one.known.was_read_whole("a")

    told(story)


def test_a_session_that_was_read_to_its_end_is_forgotten_and_said_to_be_read() -> None:
    async def story() -> None:
        one = Story()
        with one.known.reading("a"):
            await settled()
            one.queue.end("a")
        assert one.queue.ended == [] and one.known.was_read_whole("a")
        assert one.queue.pending_messages_per_session.keys() == {"b"}
        assert one.known.session_of("event of a") is None
        assert one.known.session_of("event of b") == "b"
        await one.task

    told(story)


def test_a_second_stream_of_the_session_keeps_it() -> None:
    async def story() -> None:
        one = Story()
        with one.known.reading("a"):
            with one.known.reading("a"):
                pass
            assert one.known.is_read("a")
        assert not one.known.is_read("a")

    told(story)


def test_without_a_reader_it_is_given_up_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "READER_PATIENCE", 0.02)

    async def story() -> None:
        one = Story()
        await asyncio.wait_for(one.task, 5)
        assert (one.source.made, one.found) == (0, [])
        deadline = asyncio.get_running_loop().time() + 5
        while not one.leaves_nothing():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        assert sorted(one.queue.ended) == ["a", "b"]

    told(story)


def test_an_event_of_a_forgotten_session_ends_at_once_and_a_new_one_does_not() -> None:
    async def story() -> None:
        one = Story()
        waiting = asyncio.create_task(one.known.wait_for_reader("b"))
        await settled()
        one.known.forget("b")
        assert not await asyncio.wait_for(waiting, 5)
        again = asyncio.create_task(one.known.wait_for_reader("b"))
        await settled()
        one.begin("another event", "b")
        with one.known.reading("b"):
            assert await asyncio.wait_for(again, 5)
        one.task.cancel()

    told(story)


def test_where_there_are_too_many_the_one_goes_that_nobody_has_read_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_EVENTS", 2)

    async def story() -> None:
        one = Story()
        with one.known.reading("a"):
            with one.known.arriving("another"):
                await settled()
                assert one.queue.ended == ["b"]
            one.begin("third", "third", "another")
            third = one.known.reading("third")
            with third, pytest.raises(Refused) as refused, one.known.arriving("one more"):
                pass
            assert refused.value.status == 503 and refused.value.retry
        one.task.cancel()

    told(story)


def test_a_client_has_a_share_of_the_events() -> None:
    async def story() -> None:
        one = Story()
        for number in range(one.known._max_of_client - 2):
            with one.known.arriving("client"):
                pass
            one.begin(f"event {number}", f"session {number}")
        with pytest.raises(Refused) as refused, one.known.arriving("client"):
            pass
        assert refused.value.status == 429
        with one.known.arriving("another"):
            pass
        one.task.cancel()

    told(story)

"""Strangers against the running page: their requests cost other visitors nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from page_server import Answer as Got
from page_server import Site, served
from waiting import until

from specviz import race
from specviz.base.variables import MAX_PER_CLIENT
from specviz.page.security import answers, sessions
from specviz.page.security.answers import LOST, Answer
from specviz.page.security.requests import with_id
from specviz.runs.recording import MAX_UNPACKED

BOMB = gzip.compress(b"[" + b"[]," * 5_500_000 + b"[]]")
# As many values as a recording may have.
HEAVY = gzip.compress(b"[" + b"[]," * 1_000_000 + b"[]]")


class Paced:
    """A race that counts its runs and pauses after every event of long ones. whole: the number of
    runs that nobody ended early."""

    def __init__(self) -> None:
        self.begun = 0
        self.whole = 0
        self.over = 0
        self.pause: Callable[[], object] = lambda: time.sleep(0.01)

    def __call__(self, pair: Any, prompt: Any, settings: Any) -> Iterator[Any]:
        self.begun += 1
        try:
            for event in race(pair, prompt, settings):
                if settings.max_new_tokens > 100:
                    self.pause()
                yield event
            self.whole += 1
        finally:
            self.over += 1


PACED = Paced()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(race=PACED) as site:
        yield site


@pytest.fixture(autouse=True)
def fresh(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the strangers of a test before the next one."""
    yield
    known = site.page.sessions
    loop = site.page.get_blocks().server.servers[0].get_loop()
    for name in list(known._sessions):
        loop.call_soon_threadsafe(known.forget, name)
    assert until(lambda: not known.unfinished and nothing_is_kept(site))


def nothing_is_kept(site: Site) -> bool:
    """Check that neither the page nor Gradio still holds an event or its results."""
    queue = site.page.get_blocks()._queue
    known = site.page.sessions
    kept = (queue.event_ids_to_events, queue.pending_messages_per_session)
    return not any((*kept, queue.pending_event_ids_session, known._sessions))


def at_once(actions: list[Callable[[], Any]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    return threads


MAX_TURN = 0.15  # processor seconds; visitors are promised an answer within 0.5


def visit_until_over(site: Site, threads: list[threading.Thread]) -> None:
    """Check that another visitor is answered meanwhile, because nothing blocks the server's loop
    for long."""
    with site.turns() as turns:
        while any(thread.is_alive() for thread in threads):
            assert site.get("/gradio_api/app_id").status == 200
            time.sleep(0.01)
    assert max(turns) < MAX_TURN


def test_files_that_cost_a_parser_dear_freeze_nobody(site: Site) -> None:
    assert len(BOMB) < 50_000
    site.file("trace", b"{}")  # the process that reads files is running
    errors: list[str] = []

    def open_file(packed: bytes) -> None:
        errors.append(site.file("trace", packed).json["error"])

    threads = at_once([lambda one=one: open_file(one) for one in (BOMB, HEAVY, BOMB, BOMB)])
    visit_until_over(site, threads)
    assert len(errors) == 4 and all(error.endswith(".") for error in errors)


LARGEST = b'{"a":"' + b'\\"' * (23 * 2**19) + b'"}'  # as text inside JSON


@pytest.mark.parametrize("path", ["/ask/missed", "/files/html"])
def test_large_bodies_of_four_addresses_freeze_nobody(site: Site, path: str) -> None:
    kind = "application/json" if "ask" in path else "application/octet-stream"
    body = LARGEST[: MAX_UNPACKED if kind != "application/json" else None]
    site.file("html", b"{}")  # the process that reads files is running

    def send(number: int) -> None:
        headers = {"Content-Type": kind, "X-Forwarded-For": f"10.4.{number}.1"}
        with contextlib.suppress(OSError):  # it is refused before it is sent completely
            site.post(path, body, headers)

    threads = at_once([lambda one=one: send(one) for one in range(4)])
    visit_until_over(site, threads)


def from_address(address: str) -> dict[str, str]:
    """The headers of a proxy on this machine for a visitor with this address."""
    return {"Content-Type": "application/json", "X-Forwarded-For": address}


def begin(site: Site, address: str, tokens: int = 4) -> Got:
    asked = {"prompt": "the cat", "max_new_tokens": tokens}
    return site.post("/gradio_api/call/v2/generate", asked, from_address(address))


def read(site: Site, begun: Got) -> str:
    """The last event of a run."""
    said = site.get(f"/gradio_api/call/generate/{begun.json['event_id']}").body.decode()
    return said.strip().split("\n\n")[-1]


def test_a_run_begins_when_somebody_reads_it_and_is_forgotten_otherwise(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = PACED.begun
    known = site.page.sessions
    begun = [begin(site, f"10.0.{number}.1") for number in range(25)]
    assert read(site, begun[-1]).startswith("event: complete")
    # The server forgets a stream just after its last event.
    assert until(lambda: known.unfinished == 24)
    assert PACED.begun == before + 1
    monkeypatch.setattr(sessions, "READER_PATIENCE", 0.1)
    late = begin(site, "10.0.0.2").json["event_id"]
    assert until(lambda: known.session_of(late) is None)
    assert LOST in site.get(f"/gradio_api/call/generate/{late}").body.decode()
    assert all(read(site, one).startswith("event: complete") for one in begun[:-1])
    assert until(lambda: nothing_is_kept(site))
    assert PACED.begun == before + 25


def test_one_client_has_a_share_of_the_events(site: Site) -> None:
    begun = [begin(site, "10.1.0.1") for _ in range(40)]
    refused = [one for one in begun if one.status != 200]
    assert len(refused) == 40 - 4 * MAX_PER_CLIENT.default
    for answer in refused:
        assert answer.status == 429 and "your network" in answer.json["detail"]
        assert int(answer.headers["retry-after"]) > 0
    assert read(site, begin(site, "10.1.0.2")).startswith("event: complete")


def test_new_names_cost_no_visitor_a_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_EVENTS", 10)
    thirty_came = threading.Event()
    monkeypatch.setattr(PACED, "pause", lambda: thirty_came.wait(60))
    last: list[str] = []
    runs = [begin(site, f"10.2.0.{number}", tokens=120) for number in range(2)]
    visitors = at_once([lambda one=one: last.append(read(site, one)) for one in runs])
    number = 0
    while not thirty_came.is_set() or any(visitor.is_alive() for visitor in visitors):
        number += 1
        if number == 30:
            thirty_came.set()
        asked = {"data": ["no pair"], "fn_index": 2, "session_hash": f"new{number}"}
        site.post("/gradio_api/queue/join", asked, from_address(f"10.3.{number % 250}.1"))
        assert site.page.sessions.unfinished <= 10
    assert [one.split("\n")[0] for one in last] == ["event: complete"] * 2


def test_what_nobody_reads_is_forgotten_also_if_nobody_comes_any_more(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an idle page would keep the events of the last crowd."""
    monkeypatch.setattr(sessions, "READER_PATIENCE", 0.1)
    for number in range(5):
        begin(site, f"10.6.{number}.1")
    assert until(lambda: nothing_is_kept(site))


def test_whoever_leaves_amid_a_run_ends_it_and_leaves_nothing(site: Site) -> None:
    runs_before = PACED.begun
    whole_before = PACED.whole
    begun = begin(site, "10.7.0.1", tokens=400)
    with socket.create_connection((site.host, site.port)) as plug:
        path = f"/gradio_api/call/generate/{begun.json['event_id']}"
        plug.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while b"event: generating" not in plug.recv(65536):
            pass
        # The first event may come before the run begins, and then there would be no run to end.
        assert until(lambda: PACED.begun == runs_before + 1)
    assert until(lambda: PACED.over == PACED.begun)
    assert PACED.whole == whole_before
    assert until(lambda: nothing_is_kept(site))


def test_many_events_at_once_hold_no_thread_and_keep_nobody_out(site: Site) -> None:
    """An event without a reader takes a slot in Gradio, and there are enough slots."""
    silent = [begin(site, f"10.8.{number}.1") for number in range(100)]
    assert {one.status for one in silent} == {200}
    began = time.monotonic()
    assert read(site, begin(site, "10.9.0.1")).startswith("event: complete")
    assert time.monotonic() - began < sessions.READER_PATIENCE / 2


def test_a_client_that_takes_nothing_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "STALLED", 0.05)

    async def never(_: Any = None) -> Any:
        await asyncio.sleep(60)

    async def stream() -> Any:
        answer = Answer(with_id({"type": "http", "scheme": "http", "headers": []}), never, {})
        answer._started = True
        await answer.send({"type": "http.response.body", "body": b"x", "more_body": True})
        return await answer.watched(never)()

    # In another thread: that of the tests may already have an event loop.
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(asyncio.run, stream()).result()
    assert ended["type"] == "http.disconnect"

"""The page's own run over HTTP: one request, answered by the stream of its deltas."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gradio.context import LocalContext
from page_server import Site, served
from waiting import until

from specviz import race
from specviz.page.live import RunStream


class Counted:
    """A race that counts the runs inside it, and pauses after each event of a long run."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __call__(self, pair: Any, prompt: str, settings: Any) -> Iterator[Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for event in race(pair, prompt, settings):
                yield event
                time.sleep(0.01 if settings.max_new_tokens > 100 else 0.0)
        finally:
            self.now -= 1


COUNTED = Counted()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(race=COUNTED) as site:
        yield site


def wish_of(site: Site, session: str = "a tab", tokens: int = 8) -> dict[str, Any]:
    defaults = {**site.offer()["defaults"], "max_new_tokens": tokens}
    return {**defaults, "session": session, "prompt": "the cat"}


def deltas_of(site: Site, wish: dict[str, Any]) -> list[dict[str, Any]]:
    answer = site.post("/run", wish)
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.body.decode().removesuffix("\n\n").split("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_the_answer_is_the_whole_run_without_a_gap(site: Site) -> None:
    deltas = deltas_of(site, wish_of(site))
    assert [delta["seq"] for delta in deltas] == [0, *(delta["next"] for delta in deltas[:-1])]
    assert deltas[-1]["over"] and deltas[0]["status"]
    (end,) = [delta["end"] for delta in deltas if "end" in delta]
    assert set(end["reasons"].values()) == {"length"}
    missed = site.question("missed", {"run": deltas[0]["run"], "seq": 1}).json
    assert missed[0]["rounds"] == [one for delta in deltas for one in delta.get("rounds", [])]


def test_what_the_page_does_not_take_is_one_delta_with_its_sentence(site: Site) -> None:
    (refused,) = deltas_of(site, {**wish_of(site), "pair": "nobody/nothing"})
    assert refused["over"] and "not offered here" in refused["error"]


def test_it_waits_in_the_same_queue_as_the_runs_of_programs(site: Site) -> None:
    COUNTED.most = 0
    program = threading.Thread(
        target=site.events,
        args=("v2/generate", {"prompt": "the cat", "max_new_tokens": 120}),
    )
    program.start()
    assert until(lambda: COUNTED.now == 1)
    deltas = deltas_of(site, wish_of(site))
    program.join()
    assert any("ahead of yours" in delta.get("status", "") for delta in deltas)
    assert deltas[-1]["over"] and COUNTED.most == 1


def test_a_run_is_done_in_the_name_of_its_request(site: Site) -> None:
    """The package `spaces` finds out from the request whose ZeroGPU time a run takes."""
    token = {"X-IP-Token": "whose.run.is", "Content-Type": "application/json"}
    site.post("/run", wish_of(site), token)
    *_, job = site.page.run_queue.jobs()
    request = job.visitor.context[LocalContext.request]
    assert request is not None and request.headers["x-ip-token"] == "whose.run.is"


def test_a_visitor_who_leaves_ends_the_run(site: Site) -> None:
    body = json.dumps(wish_of(site, tokens=500)).encode()
    head = (
        "POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((site.host, site.port)) as plug:
        plug.sendall(head.encode() + body)
        while b'"rounds"' not in plug.recv(65536):
            pass
        assert COUNTED.now == 1
    assert until(lambda: COUNTED.now == 0)
    assert until(lambda: all(job.over for job in site.page.run_queue.jobs()))


@pytest.mark.parametrize("ending", ["stop", "a second run"])
def test_a_stop_and_a_second_run_of_a_tab_end_the_first(site: Site, ending: str) -> None:
    deltas: list[dict[str, Any]] = []
    long = wish_of(site, "a tab", tokens=500)
    first = threading.Thread(target=lambda: deltas.extend(deltas_of(site, long)))
    first.start()
    assert until(lambda: COUNTED.now == 1)
    if ending == "stop":
        site.question("stop", {"session": "a tab"})
    else:
        deltas_of(site, wish_of(site, "a tab"))
    first.join(30)
    assert deltas[-1]["over"] and deltas[-1]["next"] < 500


def test_a_stream_is_closed_also_where_its_reader_takes_nothing() -> None:
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x"
        finally:
            closed.append(True)

    async def stalled(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def left() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def stream() -> bool:
        generator = endless()
        await RunStream(generator)({"type": "http"}, left, stalled)
        return closed == [True]

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, stream()).result()

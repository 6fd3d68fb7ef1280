"""Addresses share the doctor: a client with many requests waits only for its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from page_server import Site, served
from waiting import until

from specviz.base.errors import SpecvizError
from specviz.page import doctor
from specviz.page.fair_turns import FairTurns

TURN: dict[str, Any] = {
    "limit": 9,
    "limit_of_client": 5,
    "crowded": "Too many.",
    "share_used": "Too many of yours.",
}


class Waiting:
    """Requests in threads, each of which holds its turn until it is released."""

    def __init__(self) -> None:
        self.turns = FairTurns()
        self.order: list[str] = []
        self.refused: list[str] = []
        self._go = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def request(self, client: str) -> None:
        """Begin a request, and return once it waits or was refused."""
        before = self._known()
        thread = threading.Thread(target=self._wait, args=(client,))
        self._threads.append(thread)
        thread.start()
        assert until(lambda: self._known() > before)

    def let_all_go(self) -> None:
        for _ in self._threads:
            self._go.release()
        for thread in self._threads:
            thread.join()

    def _known(self) -> int:
        return self.turns._unfinished.total() + len(self.refused)

    def _wait(self, client: str) -> None:
        try:
            with self.turns.turn(client, **TURN):
                self.order.append(client)
                self._go.acquire()
        except SpecvizError as error:
            self.refused.append(str(error))


def test_addresses_come_by_turns_and_each_has_a_share():
    waiting = Waiting()
    for _ in range(6):
        waiting.request("crowd")
    assert waiting.refused == ["Too many of yours."]
    for client in ("a", "b", "a", ""):
        waiting.request(client)
    assert waiting.refused == ["Too many of yours."], "nine are as many as there may be"
    waiting.request("c")
    assert waiting.refused[1:] == ["Too many."]
    waiting.let_all_go()
    assert waiting.order == ["crowd", "a", "crowd", "b", "", "a", "crowd", "crowd", "crowd"]
    assert not waiting.turns._waiting and not waiting.turns._unfinished, "nothing is remembered"


def test_a_turn_that_fails_is_over():
    turns = FairTurns()
    for _ in range(2):
        with pytest.raises(ValueError, match="oh"), turns.turn("a", **TURN):
            raise ValueError("oh")


class Doctor:
    """A worker whose examinations last until they are released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.examined = 0

    def run(self, task: Any, stop: Any = None) -> Iterator[Any]:
        self.examined += 1
        assert self.go.wait(30)
        time.sleep(0.01)
        yield {"verdict": "good", "summary": "", "findings": [], "drafters": []}

    def close(self) -> None:
        pass


@pytest.fixture
def examined() -> Iterator[tuple[Site, Doctor]]:
    worker = Doctor()
    with served(doctor=worker) as site:
        yield site, worker
        worker.go.set()


def asked(site: Site, address: str) -> str:
    """Ask the doctor as the page does, and return its verdict or error."""
    headers = {"Content-Type": "application/json", "X-Forwarded-For": address}
    naming = {"pair": "builtin", "target": "", "draft": "", "weights": "usual"}
    answer = site.post("/ask/examine", naming, headers).json
    return str(answer.get("error", answer.get("verdict")))


def called(site: Site, address: str) -> str:
    """Ask the doctor as a program does, and return "good" or the answer."""
    headers = {"Content-Type": "application/json", "X-Forwarded-For": address}
    begun = site.post("/gradio_api/call/v2/doctor", {}, headers)
    if begun.status != 200:
        return str(begun.json["detail"])
    said = site.get(f"/gradio_api/call/doctor/{begun.json['event_id']}").body.decode()
    return "good" if '"good"' in said else said


@pytest.mark.parametrize("ask", [asked, called])
def test_forty_requests_of_one_address_keep_nobody_from_the_doctor(
    ask: Any, examined: tuple[Site, Doctor], caplog: pytest.LogCaptureFixture
) -> None:
    site, worker = examined
    caplog.set_level("INFO")
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(site, "10.1.0.1"))) for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    assert until(lambda: len(answers) == 40 - doctor.MAX_OF_CLIENT)
    assert all("your network" in answer for answer in answers)
    stranger: list[str] = []
    other = threading.Thread(target=lambda: stranger.extend([ask(site, "10.2.0.1"), "done"]))
    other.start()
    turns = site.page.examiner.turns
    assert until(lambda: turns._unfinished["10.2.0.1"] == 1)
    begun = site.post("/gradio_api/call/v2/generate", {"prompt": "the cat", "max_new_tokens": 2})
    run = site.get(f"/gradio_api/call/generate/{begun.json['event_id']}").body.decode()
    assert "event: complete" in run, "a run waits for no examination"
    worker.go.set()
    other.join(30)
    assert stranger == ["good", "done"] and worker.examined <= 3
    for thread in threads:
        thread.join(30)
    assert answers.count("good") == doctor.MAX_OF_CLIENT
    assert any("refused" in record.getMessage() for record in caplog.records)

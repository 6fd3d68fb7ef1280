"""No visitor can make the page contact an address, through any entrance."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import Site, served
from sentences import Sentences

from specviz.base.errors import PairError
from specviz.core.race import race
from specviz.page.choices import OTHER, asked_pair, chosen_pair
from specviz.worker.loading import load_named
from specviz.worker.local import LocalWorker
from specviz.worker.tasks import ExamineTask, LoadTask

KEY = "the-operators-key"


class Listener:
    """A server on loopback that counts connections and closes them at once."""

    def __init__(self) -> None:
        self.visits: list[bytes] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                visitor, _ = self._door.accept()
            except OSError:
                return
            with visitor:
                visitor.settimeout(1)
                try:
                    self.visits.append(visitor.recv(4096))
                except OSError:
                    self.visits.append(b"")

    def close(self) -> None:
        self._door.close()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("SPECVIZ_ANY_MODEL", "1")
    monkeypatch.setenv("SPECVIZ_REMOTE_KEY", KEY)
    listener = Listener()
    yield listener
    listener.close()
    assert listener.visits == []


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A page that loads any named pair, as the real one does."""
    with served(load=load_named, doctor=LocalWorker(load_named, race)) as site:
        yield site


def spellings(port: int, draft: Path) -> list[str]:
    """Names of a target with an address, each in a form that another parser accepts."""
    at = f"http://127.0.0.1:{port}/v1#m"
    return [
        f"{at}+{draft}",
        f" {at}+{draft}@bfloat16",
        f"{draft}+{at}+{draft}",
        f"{at} | {at}",
        at,
        f"x+{at}",
        f"{at.upper()}+{draft}",
        f"served+{at}",
        f"builtin+{at}",
        f"file://127.0.0.1:{port}/x+{draft}",
        f"\\\\127.0.0.1@{port}\\x+none",
        f"127.0.0.1:{port}/v1+none",
    ]


def test_a_program_cannot_name_an_address(site: Site, listener: Listener, tmp_path: Path) -> None:
    for name in spellings(listener.port, tmp_path):
        for endpoint, values in {
            "generate": {"prompt": "x", "pair": name},
            "race": {"prompt": "x", "pair": name},
            "doctor": {"pair": name},
            "sweep": {"pair": name},
        }.items():
            kind, said = site.events(f"v2/{endpoint}", values)[-1]
            assert kind == "error", (endpoint, name)
            assert said["error"].rstrip().endswith(".") and KEY not in said["error"]


def test_open_and_closed_ports_look_the_same(
    site: Site, listener: Listener, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    said = [
        site.events("doctor", {"data": [f"http://127.0.0.1:{port}/v1#m+{tmp_path}"]})[-1][1][
            "error"
        ]
        for port in (listener.port, closed)
    ]
    assert said[0].replace(str(listener.port), "?") == said[1].replace(str(closed), "?")


def test_the_page_cannot_name_an_address_either(
    site: Site, listener: Listener, tmp_path: Path
) -> None:
    """The views "Choose" and "Other pair" send names that a visitor typed or a link contains."""
    for name in spellings(listener.port, tmp_path):
        for naming in (
            {"pair": name},
            {"pair": OTHER, "target": name, "draft": str(tmp_path)},
            {"pair": OTHER, "target": str(tmp_path), "draft": name},
        ):
            asked = {"naming": naming, "drafters": ["none"], "gammas": [1], "policies": ["fixed"]}
            asked |= {"temperatures": [0], "length": 4, "seconds": 1}
            assert site.question("begin_sweep", asked).json["error"].endswith(".")
            with pytest.raises(PairError):
                chosen_pair(
                    *(naming.get(one) for one in ("pair", "target", "draft")), page_pair="x"
                )


def test_what_a_browser_tells_about_a_run_names_no_pair(
    site: Site, listener: Listener, tmp_path: Path
) -> None:
    name = spellings(listener.port, tmp_path)[0]
    told = {"header": {"target": name}, "lane": name}
    for function, asked in {
        "begin_sampling": {"prompt": "x", "settings": {}, "draws": 1, "pair": name, "run": name},
        "begin_difference": {"trace": told, "pair": name, "run": name},
    }.items():
        answer = site.question(function, asked).json
        if "id" in answer:  # the answer is about the page's own pair
            assert site.page.run_queue.job(answer["id"]).task.pair == "builtin"
            site.question("end_job", {"id": answer["id"]})
    opened = json.dumps({"header": {"target": name, "draft": name, "pair": name}}).encode()
    for form in ("trace", "html"):
        assert site.file(form, opened).json["error"].endswith(".")


def test_the_models_process_takes_no_address_from_a_task(
    listener: Listener, tmp_path: Path, sentences: Sentences
) -> None:
    """The models' process refuses an address even if the page let it through."""
    worker: Any = LocalWorker(load_named, race)
    for name in spellings(listener.port, tmp_path)[:5]:
        for task in (LoadTask(name), ExamineTask(name)):
            with sentences.raises(PairError):
                list(worker.run(task))


def test_models_of_the_hub_and_folders_may_be_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "a+b"
    folder.mkdir()
    monkeypatch.chdir(folder)  # no relative name below exists in this folder
    monkeypatch.setenv("SPECVIZ_ANY_MODEL", "1")
    for name in ("a/b+c/d", f"{folder}+c/d", f"{folder}+{folder}", "a/b+none", "gpt2+mtp"):
        assert asked_pair(name, page_pair="builtin") == name
        assert asked_pair(f"{name}@4bit", page_pair="builtin") == f"{name}@4bit"
    assert asked_pair(" builtin@8bit ", page_pair="builtin") == "builtin@8bit"
    for name in (
        "a/b",
        "+",
        "a/b+",
        "+c/d",
        "a/b+ ",
        "a b+c",
        "/nowhere/x+c/d",
        "a/b/c+d",
        "../x+y",
    ):
        with pytest.raises(PairError):
            asked_pair(name, page_pair="builtin")

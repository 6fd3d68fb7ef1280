"""The page's sentences while its pair loads, and the display names of pairs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gguf_writer import write_pair
from page_server import toy_pair
from sentences import Sentences

from specviz import Settings, race
from specviz.base.errors import PairError, SpecvizError
from specviz.core.header import model_name
from specviz.files.gguf.header import read_gguf
from specviz.files.progress import Progress
from specviz.page import loads
from specviz.page.choices import pair_choices, pair_models
from specviz.page.delivery import drain
from specviz.page.jobs import Run
from specviz.page.names import shown_pair
from specviz.page.queue import Limits, RunQueue
from specviz.pairs.load import load_pair
from specviz.worker.local import LocalWorker

OWN = "owner/Large-1.5B+owner/Small-0.5B"
PATIENCE = 60  # seconds


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that remembers how long loads took."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The GGUF files of a target and a draft."""
    return write_pair(tmp_path_factory.mktemp("files"))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Gate:
    """A load that reports its progress and continues when the gate is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def load(self, name: str, watcher: Any) -> Any:
        watcher(Progress("reading Large-1.5B (1.1 GB)", 0.4))
        assert self.open.wait(PATIENCE)
        return toy_pair()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def test_a_pair_of_files_is_called_by_its_models_everywhere(files: tuple[Path, Path]) -> None:
    target, draft = (read_gguf(path).name for path in files)
    own = f"{files[0]}+{files[1]}"
    assert pair_choices(own, None)[0] == (f"{target} + {draft}", own)
    shown = shown_pair(own)
    assert (shown.target, shown.draft) == (target, draft)
    assert shown.bytes == sum(path.stat().st_size for path in files)
    assert pair_models(own)[own] == {"target": (target, None), "draft": (draft, None)}
    loaded = load_pair(own)
    assert loaded.draft is not None
    assert [model_name(one) for one in (loaded.target, loaded.draft)] == [target, draft]


def test_what_is_told_of_a_load_is_how_far_it_is_and_not_what_it_is_called() -> None:
    load = loads.LoadProgress("qwen2.5-coder-1.5b")
    load.status = "Reading what qwen2.5-coder-1.5b needs."
    assert load.sentence.endswith(" so far.")
    load.status = "Checking qwen2.5-coder-1.5b-instruct-q4_k_m.gguf: 40%."
    assert load.sentence.endswith(f" so far. {load.status}")


def test_folders_and_models_of_the_hub_are_called_without_their_places(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    assert shown_pair(f"{folder}+owner/Small").title == "My-Model + Small"
    assert shown_pair("owner/Large+none").title == "Large, no draft model"
    assert shown_pair("builtin").title == "Built-in pair"
    assert shown_pair("smollm2-1.7b-135m").draft == "SmolLM2-135M-Instruct"


def test_a_load_says_what_how_much_and_how_far(
    gate: Gate, files: tuple[Path, Path], sentences: Sentences
) -> None:
    own = f"{files[0]}+{files[1]}"
    queue = RunQueue(LocalWorker(gate.load, race))
    queue.start(own)
    load = queue.page_load
    assert load is not None
    until(lambda: "40%" in load.status)
    said = load.state()["said"]
    target = read_gguf(files[0]).name
    assert f" {target} " in said and said.endswith("(1.1 GB): 40%.")
    sentences(said, measured=True)
    assert str(files[0].parent) not in said
    gate.open.set()
    until(lambda: load.over)
    assert load.state() == {"over": True, "error": None, "title": shown_pair(own).title, "said": ""}


def test_a_run_that_is_asked_for_meanwhile_starts_when_it_is_ready(
    gate: Gate, sentences: Sentences
) -> None:
    queue = RunQueue(LocalWorker(gate.load, race))
    queue.start(OWN)
    run = Run("visitor", OWN, "the cat", Settings(max_new_tokens=4))
    until(lambda: queue.page_load is not None and "40%" in queue.page_load.status)
    queue.submit(run)
    assert not run.racing
    sentences(queue.status_of(run), measured=True)
    gate.open.set()
    until(lambda: run.over)
    assert run.ending.error is None and run.racing


def test_a_load_takes_no_place_of_a_visitor(gate: Gate) -> None:
    queue = RunQueue(LocalWorker(gate.load, race), Limits(waiting=1))
    queue.start(OWN)
    first, second = (Run(name, OWN, "the cat", Settings(max_new_tokens=4)) for name in "ab")
    queue.open_with(OWN)
    queue.submit(first)
    with pytest.raises(SpecvizError, match="1 runs are waiting already"):
        queue.submit(second)
    gate.open.set()
    until(lambda: first.over)
    assert first.ending.error is None


def test_a_page_that_ends_does_not_wait_for_a_load(gate: Gate) -> None:
    queue = RunQueue(LocalWorker(gate.load, race))
    queue.start(OWN)
    until(lambda: queue.page_load is not None and "40%" in queue.page_load.status)
    began = time.monotonic()
    drain(queue, 10.0)
    assert time.monotonic() - began < 5.0


def test_the_next_start_says_how_long_it_takes(
    gate: Gate, cache: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    now = 100.0
    monkeypatch.setattr(loads, "time", SimpleNamespace(monotonic=lambda: now))
    load = loads.LoadProgress(OWN)
    sentences(load.sentence)
    now += 30
    load.succeed()
    load = loads.LoadProgress(OWN)
    now += 4
    sentences(load.sentence)
    now += 40  # longer than expected
    sentences(load.sentence)
    (cache / "loads.json").write_text("[1, {")
    assert loads.LoadProgress(OWN).sentence.endswith("0 s so far."), "a damaged file is none"


def test_a_pair_that_cannot_be_loaded_says_so_at_once(caplog: pytest.LogCaptureFixture) -> None:
    def load(name: str, watcher: Any) -> Any:
        raise PairError("no such model.")

    queue = RunQueue(LocalWorker(load, race))
    queue.start(OWN)
    until(lambda: queue.page_load is not None and queue.page_load.over)
    assert queue.page_load is not None
    assert queue.page_load.state()["error"] == "no such model."
    assert "could not be loaded ahead of a run: no such model." in caplog.text

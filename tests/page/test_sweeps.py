"""Sweeps on the page: they run in pieces, keep their findings, and stay within limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sentences import Sentences
from streams import deltas
from toy_models import mini, pair_of
from waiting import until

from specviz import Settings, race
from specviz.base.errors import SpecvizError
from specviz.measure.sweep.types import (
    Configuration,
    Plan,
    Predicted,
    Row,
    SweepEvent,
    SweepProgress,
    SweepRequest,
    SweepResult,
)
from specviz.page import jobs
from specviz.page.delivery import deliver, drain
from specviz.page.files import FileReader
from specviz.page.jobs import Run
from specviz.page.queue import Limits, RunQueue
from specviz.page.security.requests import QUESTION
from specviz.page.sweeps import (
    RESTARTED,
    Bounds,
    SweepJob,
    asked_request,
    choose_config,
    sweep_of,
)
from specviz.pairs.prompts import PromptOfKind
from specviz.worker.local import LocalWorker

LONG = 300  # pieces
WISH: dict[str, Any] = {
    "drafters": ["ngram"],
    "gammas": [1, 2],
    "policies": ["fixed"],
    "temperatures": [0],
    "length": 16,
    "seconds": 5,
}


PIECE = 0.03  # seconds
FOUND = Predicted(2.0, 0.5, (0.5,), 0.5, 3.0, True, 1.5)


class ScriptedSweep:
    """A sweep without models: a row for each gamma, and a piece for each row, which only waits."""

    def __init__(self, request: SweepRequest) -> None:
        self.request = request
        rows = (Configuration("ngram", gamma, "fixed", 0.0) for gamma in request.gammas)
        self.rows = [Row(one) for one in rows]
        self.is_planned = False
        self.done = 0

    @property
    def is_done(self) -> bool:
        return self.done == len(self.rows)

    def advance(self, pair: Any, stop: Callable[[], bool]) -> Iterator[SweepEvent]:
        if not self.is_planned:
            self.is_planned = True
            yield Plan(tuple(self.rows), {"prose": 1}, len(self.rows), 1.0)
            return
        time.sleep(PIECE)
        if stop():
            return
        row = replace(self.rows[self.done], status="predicted", predicted=FOUND)
        self.rows[self.done] = row
        self.done += 1
        yield SweepProgress(self.done, len(self.rows), 1.0, "measuring")

    def result(self) -> SweepResult:
        return SweepResult(
            request=self.request,
            rows=tuple(self.rows),
            recommendations=(),
            machine=None,
            stopped=not self.is_done,
            spent=self.done * PIECE,
            link="",
        )


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> RunQueue:
    monkeypatch.setattr("specviz.measure.sweep.sweep.Sweep", ScriptedSweep)
    pair = pair_of(mini(5, spread=2.0), mini(5, seed=1, spread=2.0))
    found = RunQueue(LocalWorker(lambda *_: pair, race), Limits())
    found.start()
    return found


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    found = FileReader()
    yield found
    found.close()


def begun(queue: RunQueue, pieces: int = 16, name: str = "s") -> SweepJob:
    """Start a sweep with `pieces` pieces, each a turn in the queue, and wait until some are
    done."""
    request = SweepRequest((PromptOfKind("prose", "w1 w2"),), gammas=tuple(range(1, pieces + 1)))
    job = SweepJob(name, "tiny", request)
    job.task = replace(job.task, seconds=0.0)  # type: ignore[type-var]
    queue.submit(job)
    assert until(lambda: deliver(queue, job)["next"] and job.progress and job.progress.done > 1)
    return job


def test_a_run_takes_its_turn_between_the_pieces_of_a_sweep(queue: RunQueue) -> None:
    job = begun(queue, 40)
    told = list(deltas(queue, Run("other", "tiny", "w1 w2", Settings(max_new_tokens=4))))
    assert '"end"' in "".join(told)
    assert not job.over and job.progress is not None and job.progress.done < 40
    assert until(lambda: deliver(queue, job)["over"])
    state = deliver(queue, job)
    assert state["error"] is None and not state["stopped"]
    assert [row["status"] for row in state["rows"]] == ["predicted"] * 40


def test_only_what_is_new_is_told(queue: RunQueue) -> None:
    job = begun(queue)
    first = deliver(queue, job)
    assert len(first["rows"]) == 16 and first["kinds"] == {"prose": 1}
    later = deliver(queue, job, first["next"])
    assert len(later.get("rows", [])) < 4 and "kinds" not in later
    queue.cancel(job)


def test_a_stopped_sweep_keeps_what_it_found(queue: RunQueue) -> None:
    job = begun(queue, LONG)
    queue.cancel(job)
    assert until(lambda: deliver(queue, job)["over"])
    state = deliver(queue, job)
    found = [row for row in state["whole"]["rows"] if row["status"] == "predicted"]
    assert 2 <= len(found) < LONG and state["stopped"] and not state["error"]
    assert len(state["csv"].splitlines()) == LONG + 1
    assert set(state["figures"]) == {"light", "dark"}


def test_a_closed_tab_ends_a_sweep_and_a_hidden_one_does_not(
    queue: RunQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "VISITOR_PATIENCE", 0.2)
    hidden = begun(queue, LONG, "one")
    deliver(queue, hidden, hidden=True)
    closed = begun(queue, LONG, "two")
    assert until(lambda: closed.over)
    assert not hidden.over
    queue.cancel(hidden)


def test_a_server_that_ends_lets_a_sweep_keep_what_it_found(queue: RunQueue) -> None:
    job = begun(queue, LONG)
    drain(queue, 5.0)
    assert job.over and job.ending.remark == RESTARTED and job.result is not None
    with pytest.raises(SpecvizError, match="restarted"):
        queue.submit(sweep_of("tiny", job.result.request))


def test_there_are_only_so_many_sweeps_at_a_time(queue: RunQueue, sentences: Sentences) -> None:
    jobs = [begun(queue, LONG, str(i)) for i in range(SweepJob.max_unfinished)]
    request = SweepRequest((PromptOfKind("prose", "w1"),))
    with sentences.raises(SpecvizError):
        queue.submit(sweep_of("tiny", request))
    queue.cancel(jobs[0])
    assert until(lambda: jobs[0].over)
    jobs.append(sweep_of("tiny", request))
    queue.submit(jobs[-1])
    for job in jobs:
        queue.cancel(job)


@pytest.mark.parametrize(
    "change",
    [
        {"gammas": list(range(1, 17)), "temperatures": [0, 0.1, 0.2, 0.3]},
        {"seconds": 121},
        {"seconds": float("nan")},
        {"length": 100_000},
    ],
    ids=str,
)
def test_a_space_bounds_a_sweep(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setenv("SPACE_ID", "somebody/specviz")
    assert len(asked_request({**WISH, "kinds": []}).prompts) <= Bounds.here().prompts
    with sentences.raises(SpecvizError):
        asked_request({**WISH, **change})


def test_a_sweep_takes_the_prompts_that_suit_its_pair() -> None:
    coder = "/files/a-coder-instruct.gguf+none"
    wish = {name: value for name, value in WISH.items() if name != "prompts"}
    kinds = {one.kind for one in asked_request({**wish, "kinds": ["tests"]}, coder).prompts}
    assert kinds == {"tests"}
    # Kinds of another pair's prompts do not apply to this pair.
    kinds = {one.kind for one in asked_request({**wish, "kinds": ["prose"]}, coder).prompts}
    assert "functions" in kinds and "prose" not in kinds
    config = choose_config("builtin", ["builtin", coder]) or {}
    assert list(config["kindsOf"]) == [coder] and "functions" in config["kindsOf"][coder]


def prompts_of(reader: FileReader, raw: bytes, form: str = "prompts") -> dict[str, Any]:
    """The page's answer to a file of prompts."""
    found: dict[str, Any] = json.loads(reader.answer(form, raw))
    return found


def test_a_table_of_prompts_is_read_by_its_header_or_refused(
    reader: FileReader, sentences: Sentences
) -> None:
    found = prompts_of(reader, b"prompt,category\nWhy?,chat\n", "prompts-csv")
    assert found["prompts"] == [["chat", "Why?"]] and found["kinds"] == {"chat": 1}
    refused = prompts_of(reader, b"id,words\n1,Why?\n", "prompts-csv")
    sentences(refused["error"])


def test_own_prompts_are_read_elsewhere_and_every_kind_is_among_them(reader: FileReader) -> None:
    lines = [f'{{"prompt": "text {i}", "category": "{"ab"[i > 140]}"}}' for i in range(150)]
    found = prompts_of(reader, "\n".join(lines).encode())
    assert len(found["prompts"]) == 100 and found["left_out"] == 50
    assert found["kinds"] == {"a": 91, "b": 9}
    request = asked_request({**WISH, "prompts": found["prompts"]})
    assert [[one.kind, one.text] for one in request.prompts] == found["prompts"]


def test_own_prompts_are_as_many_as_may_be_sent(reader: FileReader) -> None:
    found = prompts_of(reader, "\n".join([f"{i} " + "ä" * 7000 for i in range(99)]).encode())
    assert len(found["prompts"]) + found["left_out"] == 99 and found["left_out"] > 50
    assert len(json.dumps(found["prompts"], ensure_ascii=False).encode()) < QUESTION


BAD_FILES = {
    "nothing": b"",
    "no text": b"\x00\x01\x02" * 50,
    "4 MB and a byte": b"x" * 4_000_001,
    "a million characters": b"x" * 1_000_000,
    "9000 characters": b"x" * 9_000,
}


@pytest.mark.parametrize("raw", BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_of_prompts_get_a_sentence(
    raw: bytes, reader: FileReader, sentences: Sentences
) -> None:
    sentences(prompts_of(reader, raw)["error"])


def test_the_operator_can_switch_sweeps_off(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = choose_config()
    assert offered is not None and offered["usual"]["seconds"] in offered["seconds"]
    monkeypatch.setenv("SPECVIZ_SWEEP_SECONDS", "3")
    offered = choose_config()
    assert offered is not None and offered["seconds"] == [3] == [offered["usual"]["seconds"]]
    monkeypatch.setenv("SPECVIZ_SWEEP", "0")
    assert choose_config() is None
    with pytest.raises(SpecvizError, match="switched off"):
        sweep_of("tiny", SweepRequest((PromptOfKind("prose", "w1"),)))

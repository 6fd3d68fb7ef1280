"""The models' process: it gives the same runs, stops when told, and is replaced when lost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from faulty_tasks import Odd, results
from forked_process import run_forked
from places import HELPERS, ROOT
from waiting import until

from specviz import Settings, SpecvizError, Trace, load_pair, race
from specviz.base.environment import ASSETS
from specviz.files.progress import Progress
from specviz.worker.client import ProcessWorker, results_of
from specviz.worker.failures import BROKEN, FAILED, LOST
from specviz.worker.loading import Models, Status, load_named
from specviz.worker.local import LocalWorker
from specviz.worker.tasks import Compared, RaceTask, SampleTask, Stop

needs_pair = pytest.mark.skipif(
    not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"
)


def all_results(worker: Any, task: Any) -> list[Any]:
    return list(results_of(worker, task))


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


@needs_pair
def test_a_run_there_is_the_run_here(worker: ProcessWorker) -> None:
    settings = Settings(temperature=0.7, max_new_tokens=20, seed=4)
    events = all_results(worker, RaceTask("builtin", "Once", settings))
    there = Trace.from_events([event for event in events if not isinstance(event, str)])
    here = Trace.from_events(race(load_pair(), "Once", settings))
    assert Status.LOADING in events
    assert [t.id for r in there.rounds for t in r.emitted if r.lane == "speculative"] == [
        t.id for r in here.rounds for t in r.emitted if r.lane == "speculative"
    ]
    assert there.end == here.end


@needs_pair
def test_an_experiment_there_is_compared_there(worker: ProcessWorker) -> None:
    task = SampleTask("builtin", "Once upon", Settings(temperature=1.0), 4, length=2, reach=8)
    last = all_results(worker, task)[-1]
    assert isinstance(last, Compared)
    assert sum(cell.speculative for cell in last.comparison.cells) == 4


def test_what_is_not_wanted_any_more_ends_soon(worker: ProcessWorker) -> None:
    items: list[Any] = []
    stop = Stop()
    for item in worker.run(Odd("count_for_ever"), stop):
        items += [] if item is None else [item]
        if len(items) == 5:
            stop.set()
    assert items == [0, 1, 2, 3, 4]
    assert results(worker, "chatter") == ["heard"]


def test_prints_do_not_end_up_among_the_results(worker: ProcessWorker) -> None:
    assert results(worker, "chatter") == ["heard"]


def test_a_failure_is_a_sentence_and_the_process_lives_on(worker: ProcessWorker) -> None:
    (process,) = results(worker, "tell_process")
    with pytest.raises(SpecvizError) as failure:
        results(worker, "fail")
    assert str(failure.value) == FAILED
    with pytest.raises(SpecvizError, match=r"\.$"):
        all_results(worker, RaceTask("nowhere/at-all+nothing", "Once", Settings()))
    assert results(worker, "tell_process") == [process]


@pytest.mark.parametrize(("what", "sentence"), [("die", LOST), ("break_the_device", BROKEN)])
def test_a_lost_process_is_replaced(worker: ProcessWorker, what: str, sentence: str) -> None:
    (process,) = results(worker, "tell_process")
    with pytest.raises(SpecvizError) as loss:
        results(worker, what)
    assert str(loss.value) == sentence
    assert results(worker, "tell_process") != [process]
    assert not alive(process)


def test_a_reader_that_fails_leaves_nothing_for_the_next(worker: ProcessWorker) -> None:
    with pytest.raises(KeyError):
        for item in worker.run(Odd("count_for_ever")):
            raise KeyError(item)
    assert results(worker, "chatter") == ["heard"]


def test_a_run_that_nobody_reads_on_leaves_nothing_for_the_next(worker: ProcessWorker) -> None:
    """This holds even if its generator is kept and read later."""
    held = worker.run(Odd("count_for_ever"))
    assert next(item for item in held if item is not None) == 0
    (process,) = results(worker, "tell_process")
    with pytest.raises(SpecvizError):
        list(held)
    assert results(worker, "tell_process") == [process]


def test_the_caller_hears_something_while_no_result_comes(worker: ProcessWorker) -> None:
    run = worker.run(Odd("hang"))
    assert [next(run) for _ in range(6)].count(None) >= 5
    assert worker._process is not None and worker._process.is_alive()
    run.close()
    assert not worker._process.is_alive()  # nobody waits for the hanging task
    assert results(worker, "chatter") == ["heard"]


def test_the_process_ends_with_the_page() -> None:
    script = (
        "from faulty_tasks import results\n"
        "from specviz.worker.client import ProcessWorker\n"
        "print(*results(ProcessWorker(), 'tell_process'), flush=True)\n"
        "import os; os._exit(0)"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HELPERS)])}
    printed = run_forked([sys.executable, "-c", script], env=os.environ | path)
    process = int(printed.stdout)
    assert until(lambda: not alive(process))


def test_one_pair_is_in_memory_at_a_time() -> None:
    held: set[str] = set()

    class Loaded:
        def __init__(self, name: str, watcher: Any) -> None:
            assert not held, "the old pair must be gone before the new one comes"
            self.name = name
            held.add(name)
            watcher(Progress(f"loading {name}", 0.5))

        def __del__(self) -> None:
            held.discard(self.name)

    models = Models(Loaded, race)
    said: list[Any] = []

    def named(name: str) -> Iterator[None]:
        pair = yield from models.pair(name)
        assert pair.name == name

    for name in ("one", "one", "two"):
        said += named(name)
    assert said == [Status.LOADING, "Loading one: 50%.", Status.LOADING, "Loading two: 50%."]


def test_a_load_that_is_abandoned_ends_before_the_next_begins() -> None:
    now = [0]

    def load(name: str, watcher: Any) -> str:
        now[0] += 1
        assert now == [1]
        watcher(Progress("loading"))
        time.sleep(1.0)
        now[0] -= 1
        return name

    models = Models(load, race)
    abandoned = models.pair("one")
    assert [next(abandoned), next(abandoned)] == [Status.LOADING, "Loading."]
    abandoned.close()
    assert [*models.pair("two")] == [Status.LOADING, "Loading."]


def test_a_local_worker_has_the_same_sentences() -> None:
    worker = LocalWorker(load_named, race)
    assert results(worker, "chatter") == ["heard"]
    with pytest.raises(SpecvizError) as failure:
        results(worker, "fail")
    assert str(failure.value) == FAILED


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="this system has no such priorities")
def test_a_process_may_step_back_for_others() -> None:
    """The doctor's process does: a race measured at the same time keeps its cores."""
    worker = ProcessWorker(nice=1)
    worker.start()
    try:
        assert worker._process is not None
        process = worker._process._popen.pid
        assert os.getpriority(os.PRIO_PROCESS, process) == min(19, os.nice(0) + 1)
    finally:
        worker.close()

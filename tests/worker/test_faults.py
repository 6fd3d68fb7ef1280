"""Each fault leaves the page usable and loses no finished round."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_tasks import HANGS, FaultyRace, Odd, results
from sentences import Sentences
from streams import deltas
from toy_models import mini, pair_of
from waiting import until

from specviz import Settings, SpecvizError, Trace, race
from specviz.base.environment import has_numba
from specviz.base.errors import ModelError, TraceError
from specviz.core.events import End, Event, Round
from specviz.core.loop import LaneRun
from specviz.page.jobs import VISITOR_PATIENCE, Run
from specviz.page.queue import Limits, RunQueue
from specviz.worker.client import ProcessWorker
from specviz.worker.failures import BROKEN, FAILED, NO_MEMORY, SILENT, is_fatal, sentence_of
from specviz.worker.loading import Models, Status, load_named
from specviz.worker.local import LocalWorker
from specviz.worker.tasks import RaceTask, Stop

LONG = Settings(gamma=3, temperature=1.0, max_new_tokens=200, seed=3)
QUICK = Limits(stop_seconds=0.5)


def queue_over(worker: Any, limits: Limits = QUICK) -> RunQueue:
    queue = RunQueue(worker, limits)
    queue.start()
    return queue


def local_queue(racing: Any = race, limits: Limits = QUICK) -> RunQueue:
    target = mini(5, spread=2.0)
    pair = pair_of(target, mini(5, seed=1, spread=2.0))
    return queue_over(LocalWorker(lambda *_: pair, racing), limits)


def run_of(session: str = "one", settings: Settings = LONG, task: Any = None) -> Run:
    run = Run(session, "tiny", "w1 w2", settings)
    run.task = task or run.task
    return run


def told(queue: RunQueue, run: Run) -> list[dict[str, Any]]:
    return [json.loads(text) for text in deltas(queue, run)]


def reasons_in(heard: list[dict[str, Any]]) -> set[str]:
    """The reasons why the lanes ended, from the last delta that has them."""
    ends = [delta["end"] for delta in heard if "end" in delta]
    return set(ends[-1]["reasons"].values()) if ends else set()


def rounds_in(heard: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for delta in heard for one in delta.get("rounds", [])]


def pulled(queue: RunQueue, run: Run, until: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Read a run's deltas up to the first for which `until` is true, and return the stream."""
    stream = deltas(queue, run)
    next(text for text in stream if until(json.loads(text)))
    return stream


def slow_race(*arguments: Any) -> Iterator[Event]:
    for event in race(*arguments):
        yield event
        time.sleep(0.01)


@pytest.mark.parametrize(
    "fault",
    ["memory of the device", "memory of the machine", "allocator", "nan", "device", "killed"],
)
def test_a_fault_in_a_pass_is_a_sentence_and_what_was_there_stays(
    worker: ProcessWorker, fault: str, sentences: Sentences
) -> None:
    (process,) = results(worker, "tell_process")
    queue = queue_over(worker)
    heard = told(queue, run_of(task=FaultyRace(fault, 12, LONG)))
    sentences(heard[-1]["error"], measured=True)  # the faster lane's round failed
    assert "Traceback" not in json.dumps(heard)
    assert len(rounds_in(heard)) >= 12
    again = told(queue, run_of(task=FaultyRace("none", 0, replace(LONG, max_new_tokens=12))))
    assert reasons_in(again) == {"length"}
    (after,) = results(worker, "tell_process")
    assert (after == process) == (fault not in ("device", "killed"))


def test_no_round_that_was_computed_is_lost_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane's round is held back until the other lane's clock passes it, and the other lane may
    fail."""
    whole = LaneRun.round
    computed = []

    def counted(run: LaneRun) -> Round:
        if len(computed) == 40:
            raise MemoryError
        computed.append((run.lane, run.index))
        return whole(run)

    monkeypatch.setattr(LaneRun, "round", counted)
    monkeypatch.setattr(sys.modules["specviz.core.turns"], "WARM_ROUNDS", 0)
    heard = told(local_queue(), run_of())
    assert heard[-1]["error"] == NO_MEMORY
    shown = [(one["lane"], one["index"]) for one in rounds_in(heard)]
    assert len(computed) == 40
    assert sorted(shown) == sorted(computed)


@pytest.mark.parametrize(
    ("error", "sentence", "fatal"),
    [
        (MemoryError(), NO_MEMORY, False),
        (RuntimeError("CUDA out of memory. Tried to allocate"), NO_MEMORY, False),
        (RuntimeError("CUDA error: out of memory"), NO_MEMORY, False),
        (RuntimeError("CUDA error: device-side assert triggered"), BROKEN, True),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling"), BROKEN, True),
        (RuntimeError("shapes do not fit"), FAILED, False),
        (OSError("CUDA error, says a file"), FAILED, False),
    ],
)
def test_errors_are_told_by_their_words(error: Exception, sentence: str, fatal: bool) -> None:
    wrapped = SpecvizError("a sentence")
    wrapped.__cause__ = error
    assert sentence_of(error) == sentence
    assert is_fatal(error) == is_fatal(wrapped) == fatal


def test_what_cannot_travel_breaks_nothing(worker: ProcessWorker, sentences: Sentences) -> None:
    (process,) = results(worker, "tell_process")
    with sentences.raises(SpecvizError):
        results(worker, "hand_out_what_cannot_travel")
    assert results(worker, "tell_process") == [process]


def test_a_pass_that_never_ends_does_not_outlast_a_stop(worker: ProcessWorker) -> None:
    (process,) = results(worker, "tell_process")
    queue = queue_over(worker)
    run = run_of(task=FaultyRace("hang", 8, LONG))
    stream = pulled(queue, run, lambda delta: delta.get("status") == HANGS)
    queue.stop("one")
    queue.stop("one")  # pressed twice
    began = time.monotonic()
    rest = [json.loads(text) for text in stream]
    assert time.monotonic() - began < 60  # without the stop, it would end after 300 s of silence
    assert reasons_in(rest) == {"stopped"}
    assert "error" not in rest[-1]
    assert until(lambda: run.over)
    assert results(worker, "tell_process") != [process]


def test_an_early_stop_keeps_the_process_and_its_pair(worker: ProcessWorker) -> None:
    """Lanes warm up in eight passes of 0.3 s, without any event meanwhile."""
    (process,) = results(worker, "tell_process")
    queue = queue_over(worker, Limits(stop_seconds=1.2))
    run = run_of(task=FaultyRace("very slow", 0, LONG))
    stream = pulled(queue, run, lambda delta: delta.get("status") == Status.STARTUP)
    queue.stop("one")
    assert json.loads(list(stream)[-1])["over"]
    assert until(lambda: run.over)
    assert results(worker, "tell_process") == [process]


def test_a_process_is_not_replaced_sooner_than_a_new_one_would_have_its_pair(
    worker: ProcessWorker,
) -> None:
    (process,) = results(worker, "tell_process")
    queue = queue_over(worker, Limits(stop_seconds=0.01))
    run = run_of(task=FaultyRace("very slow", 2, LONG))
    stream = pulled(queue, run, lambda delta: delta.get("rounds"))
    run.load_seconds = queue._estimates.load_seconds = 60.0
    queue.stop("one")
    assert reasons_in([json.loads(text) for text in stream]) == {"stopped"}
    assert until(lambda: run.over)
    assert results(worker, "tell_process") == [process]


def test_a_stop_is_heard_between_the_passes_of_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop()
    rounds = []
    whole = LaneRun.round

    def stopped(run: LaneRun) -> Round:
        rounds.append(run.lane)
        stop.set()
        return whole(run)

    monkeypatch.setattr(LaneRun, "round", stopped)
    pair = pair_of(mini(5), mini(5, seed=1))
    worker = LocalWorker(lambda *_: pair, race)
    statuses = list(worker.run(RaceTask("tiny", "w1 w2", LONG), stop))
    assert statuses == [Status.LOADING, Status.STARTUP]
    assert len(rounds) == 1
    # The next task is not stopped.
    events = list(worker.run(RaceTask("tiny", "w1 w2", replace(LONG, max_new_tokens=4))))
    assert isinstance(events[-1], End)


@pytest.mark.skipif(not has_numba(), reason="no numba here")
def test_a_stop_is_heard_between_the_blocks_of_a_long_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from specviz.sides.fast_cpu.engine import PREFILL_CHUNK, Passes

    stop = Stop()
    long_passes = []
    whole = Passes.run

    def stopped(passes: Passes, plan: Any) -> None:
        if plan.tokens == PREFILL_CHUNK:
            long_passes.append(plan.start)
            stop.set()
        whole(passes, plan)

    monkeypatch.setattr(Passes, "run", stopped)
    worker = LocalWorker(load_named, race)
    events = list(worker.run(RaceTask("builtin", "Once upon a time. " * 100, LONG), stop))
    assert all(isinstance(event, str) for event in events)
    assert long_passes == [0]


def test_nobody_waits_for_the_load_of_a_visitor_who_left(worker: ProcessWorker) -> None:
    results(worker, "tell_process")
    queue = queue_over(worker)
    stream = pulled(
        queue, run_of("one", task=Odd("load_for_ever", "slow")), lambda d: Status.LOADING in str(d)
    )
    stream.close()  # type: ignore[attr-defined]
    assert queue.current is not None  # closing did not wait for the end of the load
    other = told(queue, run_of("two", task=FaultyRace("none", 0, Settings(max_new_tokens=4))))
    assert reasons_in(other) == {"length"}


def test_a_load_goes_on_for_the_next_who_wants_the_pair(
    worker: ProcessWorker, tmp_path: Path
) -> None:
    (process,) = results(worker, "tell_process")
    queue = queue_over(worker)
    here = tmp_path / "the pair"
    first = run_of("one", task=Odd("load_until_told", str(here)))
    stream = pulled(queue, first, lambda delta: Status.LOADING in str(delta))
    queue.stop("one")
    assert json.loads(list(stream)[-1])["over"]  # Stop does not wait for the load
    assert not first.over
    next_one = run_of("two", task=Odd("chatter", str(here)))
    stream = pulled(queue, next_one, lambda delta: "ahead" in str(delta))
    here.touch()
    assert "error" not in json.loads(list(stream)[-1])
    assert first.over
    assert results(worker, "tell_process") == [process]


def test_a_silent_process_is_replaced(worker: ProcessWorker) -> None:
    (process,) = results(worker, "tell_process")
    silent_seconds = worker._silent_seconds
    worker._silent_seconds = 0.5
    try:
        with pytest.raises(SpecvizError) as silence:
            results(worker, "hang")
    finally:
        worker._silent_seconds = silent_seconds
    assert str(silence.value) == SILENT
    assert results(worker, "tell_process") != [process]


def test_a_stop_that_comes_before_its_task_begins_is_heard(worker: ProcessWorker) -> None:
    worker.close()
    worker.start()
    assert worker._process is not None
    process = worker._process._popen.pid
    os.kill(process, signal.SIGSTOP)  # it cannot begin before it is told to stop
    stop = Stop()
    stop.set()
    run = worker.run(Odd("count_for_ever"), stop)
    assert next(run) is None  # by now the stop was sent
    os.kill(process, signal.SIGCONT)
    assert set(run) <= {None}
    assert worker._process._popen.pid == process


class Deadly:
    """A worker whose first task ends its thread with SystemExit."""

    def __init__(self) -> None:
        self.tasks = 0

    def run(self, task: Any, stop: Any) -> Iterator[Any]:
        self.tasks += 1
        if self.tasks == 1:
            raise SystemExit
        yield from ()

    def close(self) -> None:
        pass


def test_a_task_that_ends_its_thread_ends_no_more_than_itself() -> None:
    queue = queue_over(Deadly())
    assert told(queue, run_of())[-1]["error"] == FAILED
    assert "error" not in told(queue, run_of())[-1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_queue_thread_is_replaced() -> None:
    queue = local_queue(slow_race)
    run = run_of()
    stream = pulled(queue, run, lambda delta: delta.get("rounds"))
    waiting = threading.Thread(target=lambda: told(queue, run_of("two")))
    waiting.start()
    assert queue._thread is not None
    victim = queue._thread

    def died(job: Any) -> None:
        raise SystemExit

    queue._run_job = died  # type: ignore[method-assign]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(victim.ident or 0), ctypes.py_object(SystemExit)
    )
    rest = [json.loads(text) for text in stream]
    assert rest[-1]["error"] == FAILED  # its thread ended, after its rounds arrived
    del queue._run_job
    waiting.join(60)
    assert not waiting.is_alive()
    assert not victim.is_alive()
    after = told(queue, run_of(settings=replace(LONG, max_new_tokens=4)))
    assert reasons_in(after) == {"length"}


@pytest.mark.parametrize("deltas_heard", [0, 1, 2, 3])
def test_a_visitor_may_leave_at_any_moment(deltas_heard: int) -> None:
    queue = local_queue(slow_race)
    run = run_of()
    stream = deltas(queue, run)
    for _ in range(deltas_heard):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert until(lambda: not queue.current and not queue._waiting)
    assert run.over or deltas_heard < 2
    assert reasons_in(told(queue, run_of(settings=Settings(max_new_tokens=4)))) == {"length"}


def test_a_handler_that_is_never_closed_frees_the_machine() -> None:
    queue = local_queue(slow_race)
    run = run_of()
    held = pulled(queue, run, lambda delta: delta.get("rounds"))
    run.visitor._polled_at -= 2 * VISITOR_PATIENCE  # seconds; nobody has asked since
    assert reasons_in(told(queue, run_of("two", Settings(max_new_tokens=4)))) == {"length"}
    assert run.stopping.is_set()
    del held


def test_a_lane_that_had_finished_keeps_its_reason() -> None:
    pair = pair_of(mini(5, spread=2.0), mini(5, spread=2.0))  # the draft is always right
    events = race(pair, "w1 w2", Settings(gamma=8, max_new_tokens=30), mode="sequential")
    seen: list[Any] = []
    for event in events:
        seen.append(event)
        if isinstance(event, Round) and event.lane == "baseline":
            break
    end = events.send(True)  # type: ignore[attr-defined]
    assert isinstance(end, End)
    assert end.reasons == {"speculative": "length", "baseline": "stopped"}
    assert (end.identical, end.compared) == (True, 1)
    assert list(events) == []


def test_a_lane_that_is_stopped_after_its_last_round_has_finished() -> None:
    events = race(pair_of(mini(5), mini(5, seed=1)), "w1 w2", Settings(max_new_tokens=1))
    next(event for event in events if isinstance(event, Round))
    end = events.send(True)  # type: ignore[attr-defined]
    assert sorted(end.reasons.values()) == ["length", "stopped"]


def test_a_race_that_is_told_to_stop_still_hands_out_its_end() -> None:
    pair = pair_of(mini(5), mini(5, seed=1))
    items = []
    stop = Stop()
    for item in RaceTask("tiny", "w1 w2", LONG).run(Models(lambda *_: pair, race), stop):
        items.append(item)
        if sum(isinstance(one, Round) for one in items) == 5:
            stop.set()
    assert [type(one) for one in items[-2:]] == [Round, End]
    assert set(items[-1].reasons.values()) == {"stopped"}


def test_the_end_of_a_stopped_race_comes_out_of_the_process(worker: ProcessWorker) -> None:
    items: list[Any] = []
    stop = Stop()
    for item in worker.run(FaultyRace("slow", 0, LONG), stop):
        items += [] if item is None else [item]
        if isinstance(item, Round):
            stop.set()
    assert [type(one) for one in items[-2:]] == [Round, End]
    assert set(items[-1].reasons.values()) == {"stopped"}


def test_the_page_keeps_the_reason_of_a_finished_lane() -> None:
    target = mini(5, spread=2.0)
    pair = pair_of(target, mini(5, spread=2.0))
    queue = queue_over(LocalWorker(lambda *_: pair, _sequential))
    run = run_of(settings=replace(LONG, gamma=8, max_new_tokens=100))
    ends = []
    for delta in map(json.loads, deltas(queue, run)):
        if any(one["lane"] == "baseline" for one in delta.get("rounds", [])):
            queue.stop("one")
        ends += [delta["end"]] if "end" in delta else []
    assert ends[0]["reasons"] == {"speculative": "length", "baseline": "stopped"}


def _sequential(pair: Any, prompt: Any, settings: Settings) -> Any:
    events = race(pair, prompt, settings, mode="sequential")
    heard = None
    while True:
        try:
            event = events.send(heard)  # type: ignore[attr-defined]
        except StopIteration:
            return
        if isinstance(event, Round) and event.lane == "baseline":
            time.sleep(0.02)
        heard = yield event


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Make any file that grows beyond `size` bytes an error inside the block, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)


def test_a_full_disk_keeps_the_recording_that_was_there(
    tmp_path: Path, sentences: Sentences
) -> None:
    path = tmp_path / "run.json"
    old = tmp_path / "old.json"
    trace = Trace.from_events(
        race(pair_of(mini(5), mini(5, seed=1)), "w1 w2", Settings(max_new_tokens=20))
    )
    trace.save(path)
    trace.save(old)
    before = old.read_bytes()
    for out in (old, tmp_path / "new.json"):
        with files_of_at_most(1000), sentences.raises(TraceError):
            Trace.load(path).save(out)
    assert old.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old.json", "run.json"]


def test_a_link_to_a_recording_stays_a_link(tmp_path: Path) -> None:
    trace = Trace.from_events(
        race(pair_of(mini(5), mini(5, seed=1)), "w1 w2", Settings(max_new_tokens=2))
    )
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    trace.save(tmp_path / "link.json")
    trace.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert Trace.load(tmp_path / "real.json") == trace


def test_a_want_of_memory_is_told_with_numbers(sentences: Sentences) -> None:
    class Starved:
        pair = "builtin"

        def run(self, models: Any, stop: Any) -> Any:
            raise ModelError("out of memory: use less.") from MemoryError()

    with sentences.raises(SpecvizError):
        list(LocalWorker(load_named, race).run(Starved()))

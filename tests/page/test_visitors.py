"""Many visitors: one run at a time, in order, within limits, and each sees only their own run."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from filed import emitted
from sentences import Sentences
from streams import deltas
from toy_models import mini, pair_of
from waiting import until

from specviz import Settings, race
from specviz.base.errors import SettingsError
from specviz.base.variables import SILENT_SECONDS
from specviz.core.events import Event, Header
from specviz.page import delivery, estimates, jobs
from specviz.page import queue as runs
from specviz.page.delivery import delivery_questions
from specviz.page.durations import Durations, Kind
from specviz.page.estimates import kind_of
from specviz.page.jobs import FollowUp, Run
from specviz.page.queue import Limits, RunQueue
from specviz.page.security.requests import client_of
from specviz.worker.client import ProcessWorker
from specviz.worker.loading import Status
from specviz.worker.local import LocalWorker
from specviz.worker.tasks import SampleTask

LONG = Settings(gamma=3, temperature=1.0, max_new_tokens=400, seed=3)
SHORT = Settings(gamma=3, max_new_tokens=4)


def slow_race(*arguments: Any) -> Iterator[Event]:
    for event in race(*arguments):
        yield event
        time.sleep(0.01)


def stubborn(held: threading.Event) -> Any:
    """A race that goes on after a round only once `held` is set."""

    def racing(*arguments: Any) -> Iterator[Event]:
        for event in race(*arguments):
            yield event
            if not isinstance(event, Header):
                held.wait(60)

    return racing


def queue_of(racing: Any = slow_race, limits: Limits | None = None) -> RunQueue:
    pair = pair_of(mini(5, spread=2.0), mini(5, seed=1, spread=2.0))
    queue = RunQueue(LocalWorker(lambda *_: pair, racing), limits or Limits())
    queue.start()
    return queue


def told(queue: RunQueue, run: Run) -> list[dict[str, Any]]:
    return [json.loads(text) for text in deltas(queue, run)]


def run_of(session: str, settings: Settings = LONG) -> Run:
    return Run(session, "tiny", f"w1 w2 w{len(session)}", settings)


def missed(queue: RunQueue, run: str, seq: int) -> list[dict[str, Any]] | None:
    """The answer to a player that asks again for the events of a run."""
    deltas = delivery_questions(queue)[0]({"run": run, "seq": seq})
    return deltas and [json.loads(orjson.dumps(delta)) for delta in deltas]


def begun(queue: RunQueue, run: Run) -> Iterator[str]:
    """Read a run's deltas until it races, and return the stream."""
    stream = deltas(queue, run)
    next(text for text in stream if "rounds" in text)
    return stream


def in_queue(queue: RunQueue, run: Run) -> Iterator[str]:
    """Read a run's deltas until it waits in the queue, and return the stream."""
    stream = deltas(queue, run)
    next(text for text in stream if "ahead" in text)
    return stream


def test_the_queue_keeps_its_order_and_tells_places_and_times() -> None:
    queue = queue_of()
    told(queue, run_of("earlier", Settings(max_new_tokens=30)))  # so that a duration is known
    first = begun(queue, run_of("a"))
    waiting = [run_of(name) for name in ("b", "c", "d")]
    waiting_streams = [in_queue(queue, run) for run in waiting]
    said = [queue.status_of(run) for run in waiting]
    pattern = r"(\d) other .*, about (\d+) (s|min)\."
    places = [re.fullmatch(pattern, sentence) for sentence in said]
    assert [match and match[1] for match in places] == ["1", "2", "3"]
    seconds = [int(match[2]) * {"s": 1, "min": 60}[match[3]] for match in places if match]
    assert seconds == sorted(seconds)
    waiting_streams[1].close()  # type: ignore[attr-defined]
    assert queue.status_of(waiting[2]).startswith("2 other runs")
    first.close()  # type: ignore[attr-defined]
    assert until(lambda: queue.current is waiting[0])
    assert not waiting[2].racing
    waiting_streams[0].close()  # type: ignore[attr-defined]
    assert until(lambda: queue.current is waiting[2])
    assert not waiting[1].racing
    waiting_streams[2].close()  # type: ignore[attr-defined]


def test_told_waits_count_lengths() -> None:
    past = Durations()

    def run(tokens: int) -> tuple[Kind, int]:
        run = run_of("a", Settings(max_new_tokens=tokens))
        return kind_of(run), run.length

    assert past.expected(*run(8)) is None
    past.add(*run(50), 1.0)
    assert past.expected(*run(400)) == 8.0
    past.add(*run(100), 1.5)
    assert past.expected(*run(400)) == pytest.approx(6.0), "as the last one"


def test_told_waits_are_of_the_same_pair() -> None:
    past = Durations()
    past.add(kind_of(run_of("a", SHORT)), 4, 0.1)
    assert past.expected(kind_of(Run("b", "a larger pair", "w1", SHORT)), 4) is None


def test_a_wait_is_told_from_the_run_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    """Earlier runs do not count: they were stopped, or shorter, or of another pair."""
    queue = queue_of()
    stopped = run_of("before")
    stream = begun(queue, stopped)
    queue.stop("before")
    list(stream)
    assert until(lambda: queue.current is None)
    current = run_of("a")
    waiting = run_of("b")
    behind = run_of("c")
    first = begun(queue, current)
    streams = [in_queue(queue, waiting), in_queue(queue, behind)]
    durations = queue._estimates._durations
    assert durations.expected(kind_of(waiting), waiting.length) is None, "the run was stopped"
    assert until(lambda: (current.share or 0) > 0)
    monkeypatch.setattr(Run, "share", 0.5)
    current.ready_at = time.monotonic() - 10.0  # half of the run took 10 seconds
    sentences(queue.status_of(waiting))
    sentences(queue.status_of(behind))
    current.ready_at = time.monotonic() - 100.0  # the limit would end the run in 20 seconds
    sentences(queue.status_of(waiting))
    for one in (*streams, first):
        one.close()  # type: ignore[attr-defined]


def test_ones_own_stopped_run_is_no_other_run(sentences: Sentences) -> None:
    held = threading.Event()
    queue = queue_of(stubborn(held))
    first = begun(queue, run_of("a"))
    queue.stop("a")
    again = run_of("a")
    other = run_of("b")
    second = deltas(queue, again)
    assert until(lambda: "ending" in next(second))
    assert queue.status_of(again) == runs.OWN_ENDS
    third = in_queue(queue, other)
    # Two runs are ahead: the visitor's next one, and the one that is ending.
    sentences(queue.status_of(other))
    held.set()
    for stream in (second, third, first):
        stream.close()  # type: ignore[attr-defined]


def test_a_visitor_who_stops_a_run_does_not_wait_for_its_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "GRACE", 0.2)
    held = threading.Event()
    queue, run = queue_of(stubborn(held)), run_of("a")
    stream = begun(queue, run)
    queue.stop("a")
    rest = [json.loads(text) for text in islice(stream, 6)]  # one comes every half second
    assert rest[-1]["over"] and set(rest[-1]["end"]["reasons"].values()) == {"stopped"}
    assert not run.over
    held.set()


def test_the_models_are_said_to_warm_up_when_they_do() -> None:
    """The sentence does not appear while their process restarts, without any event."""
    held = threading.Event()

    class Restarting(LocalWorker):
        def run(self, task: Any, stop: Any = None) -> Any:
            while not held.wait(0.05):
                yield None
            yield from super().run(task, stop)

    warm = threading.Event()

    def race_when_warm(*arguments: Any) -> Iterator[Event]:
        warm.wait(60)
        yield from race(*arguments)

    pair = pair_of(mini(5), mini(5, seed=1))
    queue = RunQueue(Restarting(lambda *_: pair, race_when_warm), Limits())
    queue.start()
    run = run_of("a", SHORT)
    stream = deltas(queue, run)
    said = [json.loads(next(stream)).get("status") for _ in range(2)]
    assert said == ["Getting ready.", runs.STARTING]
    held.set()
    rest = []
    for text in stream:
        rest.append(json.loads(text).get("status"))
        if Status.STARTUP in rest:
            warm.set()
    assert Status.STARTUP in rest and runs.STARTING not in rest


def test_without_earlier_runs_no_time_is_made_up(sentences: Sentences) -> None:
    queue = queue_of()
    first = begun(queue, run_of("a"))
    second = run_of("b")
    waiting = in_queue(queue, second)
    sentences(queue.status_of(second))
    for stream in (waiting, first):
        stream.close()  # type: ignore[attr-defined]


def test_a_full_queue_says_so_and_places_come_free(sentences: Sentences) -> None:
    queue = queue_of(limits=Limits(waiting=2))
    first = begun(queue, run_of("a"))
    second = in_queue(queue, run_of("b"))
    third = in_queue(queue, run_of("c"))
    refused = told(queue, run_of("d"))[-1]
    assert refused["over"]
    sentences(refused["error"])
    second.close()  # type: ignore[attr-defined]
    fourth = in_queue(queue, run_of("d"))
    for stream in (third, fourth, first):
        stream.close()  # type: ignore[attr-defined]
    assert until(lambda: queue.current is None)
    assert "error" not in told(queue, run_of("e", SHORT))[-1]


def test_one_address_has_a_share_of_the_queue() -> None:
    queue = queue_of(limits=Limits(per_client=1))
    first = begun(queue, run_of("a"))
    others = [run_of("b"), run_of("c"), run_of("d")]
    for run, client in zip(others, ("10.0.0.1", "10.0.0.1", "10.0.0.2"), strict=True):
        run.visitor.client = client
    second = in_queue(queue, others[0])
    assert told(queue, others[1])[-1]["error"] == runs.SHARE_USED
    for stream in (in_queue(queue, others[2]), second, first):
        stream.close()  # type: ignore[attr-defined]


def test_a_queue_without_places_still_serves_one_at_a_time() -> None:
    queue = queue_of(limits=Limits(waiting=0))
    first = begun(queue, run_of("a"))
    assert "error" in told(queue, run_of("b"))[-1]
    first.close()  # type: ignore[attr-defined]
    assert until(lambda: queue.current is None)
    assert "error" not in told(queue, run_of("b", SHORT))[-1]


def test_a_run_that_takes_too_long_ends_with_what_it_has(sentences: Sentences) -> None:
    queue = queue_of()
    heard = []
    for text in deltas(queue, run_of("a")):
        heard.append(json.loads(text))
        if "rounds" in text:  # however long the first rounds took
            queue.limits = Limits(seconds=0.3)
    sentences(heard[-1]["remark"])
    assert "error" not in heard[-1]
    assert any("rounds" in delta for delta in heard)
    (end,) = [delta["end"] for delta in heard if "end" in delta]
    assert set(end["reasons"].values()) == {"stopped"}


def test_loading_is_not_counted_against_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(mini(5), mini(5, seed=1))
    late = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late[0], sleep=time.sleep)
    for module in (estimates, jobs, runs):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(jobs, "VISITOR_PATIENCE", float("inf"))  # its visitor keeps waiting

    def load(*_: Any) -> Any:
        late[0] = 3600.0  # seconds
        return pair

    queue = RunQueue(LocalWorker(load, race), Limits())
    queue.start()
    assert "remark" not in told(queue, run_of("a", SHORT))[-1]


def test_an_experiment_nobody_asks_after_gives_its_place_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = queue_of()
    first = begun(queue, run_of("a"))
    monkeypatch.setattr(jobs, "VISITOR_PATIENCE", 0.2)
    experiment = FollowUp("b", SampleTask("tiny", "w1", SHORT, 5, 2, 64), lambda found: {})
    monkeypatch.undo()
    queue.submit(experiment)
    third = run_of("c")
    line = in_queue(queue, third)

    def said() -> str:
        queue.clean_up()
        return queue.status_of(third)

    assert until(lambda: said().startswith("1 other"))
    assert experiment.over
    for stream in (line, first):
        stream.close()  # type: ignore[attr-defined]


def test_two_tabs_of_one_visitor_are_two_visitors() -> None:
    """Each tab has its own session; a second run in the same tab replaces the first."""
    queue = queue_of()
    tabs = [run_of("tab 1"), run_of("tab 2")]
    first = begun(queue, tabs[0])
    second = in_queue(queue, tabs[1])
    again = run_of("tab 2")
    third = in_queue(queue, again)
    assert json.loads(list(second)[-1])["over"]
    assert not tabs[0].stopping.is_set()
    for stream in (third, first):
        stream.close()  # type: ignore[attr-defined]


def test_what_one_visitor_made_is_for_that_visitor() -> None:
    queue = queue_of(race)
    one = run_of("one", SHORT)
    two = run_of("twoo", SHORT)
    texts = list(deltas(queue, one)), list(deltas(queue, two))
    assert len(one.id) == len(two.id) == 32
    for run, own in zip((one, two), texts, strict=True):
        assert {json.loads(text)["run"] for text in own} == {run.id}
        (again,) = missed(queue, run.id, 0)
        told = [delta for delta in map(json.loads, own) if delta["next"] > delta["seq"]]
        assert again["rounds"] == [one for delta in told for one in delta.get("rounds", ())]
    prompts = [
        json.loads(text)["header"]["prompt"] for own in texts for text in own if "header" in text
    ]
    assert prompts == ["w1 w2 w3", "w1 w2 w4"]
    for guess in ("", "0" * 32, one.id[:-1], one.id.upper() + "x"):
        assert not missed(queue, guess, 0)


def test_nobody_who_does_not_run_waits() -> None:
    """The player's requests are answered during a run."""
    queue = queue_of()
    run = run_of("a")
    first = begun(queue, run)
    assert missed(queue, "", 0) == []
    queue.stop("somebody else")
    queue.clean_up()
    assert not run.over
    first.close()  # type: ignore[attr-defined]


def test_the_memory_of_past_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_KEPT_TOKENS", 80)
    queue = queue_of(race)
    past = [run_of(f"{i}", Settings(max_new_tokens=8)) for i in range(2 * runs.MAX_KEPT_JOBS)]
    for run in past:
        told(queue, run)
    assert len(queue._jobs) <= runs.MAX_KEPT_JOBS + 1
    kept = sum(run.size for run in queue._jobs.values() if isinstance(run, Run))
    assert 0 < kept <= 80 + past[-1].size
    assert missed(queue, past[-1].id, 0) and missed(queue, past[-5].id, 0) == []
    assert queue.job(past[-3].id) is past[-3]  # its prompt is still kept


def test_a_slow_client_does_not_slow_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads no deltas holds the queue only until `PATIENCE` is over."""
    monkeypatch.setattr(jobs, "VISITOR_PATIENCE", 0.3)
    queue = queue_of()
    run = run_of("slow")
    slow = begun(queue, run)
    assert "error" not in told(queue, run_of("quick", SHORT))[-1]
    assert run.stopping.is_set()  # the run was ended early
    rest = [json.loads(text) for text in slow]
    assert rest[-1]["over"]


def test_many_at_once_all_get_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TICK", 0.01)
    queue = queue_of(race, Limits(waiting=30))
    heard: dict[int, list[dict[str, Any]]] = {}

    def visit(number: int) -> None:
        settings = Settings(gamma=3, temperature=1.0, max_new_tokens=5 + number)
        heard[number] = told(queue, run_of("x" * number, settings))

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number, own in heard.items():
        (header,) = [delta["header"] for delta in own if "header" in delta]
        assert header["lanes"]["speculative"]["max_new_tokens"] == 5 + number
        rounds = [one for delta in own for one in delta.get("rounds", [])]
        for lane in ("speculative", "baseline"):
            written = (len(emitted(one)) for one in rounds if one["lane"] == lane)
            assert sum(written) == 5 + number
    assert len(heard) == 20


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("seconds", "SPECVIZ_MOST_SECONDS"),
        ("waiting", "SPECVIZ_MOST_WAITING"),
        ("per_client", "SPECVIZ_MOST_PER_CLIENT"),
        ("stop_seconds", "SPECVIZ_STOP_SECONDS"),
    ],
)
def test_the_operator_sets_limits(name: str, variable: str) -> None:
    assert getattr(Limits.from_environment({variable: "7"}), name) == 7
    assert Limits.from_environment({variable: ""}) == Limits()
    for wrong in ("soon", "-1", "nan", "inf"):
        with pytest.raises(SettingsError, match=variable):
            Limits.from_environment({variable: wrong})


def test_the_operator_says_how_long_the_models_may_be_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ProcessWorker()._silent_seconds == SILENT_SECONDS.default
    monkeypatch.setenv("SPECVIZ_SILENT_SECONDS", "7")
    assert ProcessWorker()._silent_seconds == 7
    for wrong in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv("SPECVIZ_SILENT_SECONDS", wrong)
        with pytest.raises(SettingsError, match="SPECVIZ_SILENT_SECONDS"):
            ProcessWorker()


def test_a_network_of_ipv6_is_one_visitor() -> None:
    def client(host: str) -> str:
        return client_of({"client": (host, 1)})

    assert client("2001:db8::1") == client("2001:db8::ffff:2") != client("2001:db8:0:1::1")
    assert client("10.0.0.1") != client("10.0.0.2")
    assert client("a name") == "a name"

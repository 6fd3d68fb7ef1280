"""Runs on the page's server: one after the other, deltas without gaps, mistakes as sentences."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from filed import tokens
from page_server import NOWHERE
from streams import deltas
from toy_models import llama, pair_of, relative

from scripts.record_presets import PAIRS, recorded_of
from specviz import Pair, Settings, Trace, race
from specviz.base.errors import PairError, PromptError, SettingsError
from specviz.core.events import Event, Round, Token
from specviz.core.settings import CHOICES as ALL_CHOICES
from specviz.core.settings import RANGES
from specviz.page.choices import listed_drafters
from specviz.page.controls import (
    CHOICES,
    DEFAULTS,
    LIMITS,
    checked_settings,
    controls_of,
    defaults_of,
)
from specviz.page.delivery import delivery_questions, delta_of
from specviz.page.jobs import Run
from specviz.page.offer import offer_of, presets_of
from specviz.page.queue import RunQueue
from specviz.runs.trace import SCHEMA, event_dict
from specviz.worker.failures import FAILED
from specviz.worker.local import LocalWorker

SHORT = Settings(gamma=3, temperature=1.0, max_new_tokens=24, seed=1)


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(40)
    return pair_of(target, relative(target, noise=0.1))


def queue_of(pair: Any, race: Any = race) -> RunQueue:
    queue = RunQueue(LocalWorker(lambda *_: pair, race))
    queue.start("toy")
    return queue


def run_of(settings: Settings = SHORT, *, session: str = "one", prompt: str = "w1 w2") -> Run:
    return Run(session, "toy", prompt, settings)


def rebuilt(texts: list[str]) -> Trace:
    """The trace that a player would assemble from deltas."""
    data: dict[str, Any] = {"schema": SCHEMA, "rounds": [], "end": None}
    for delta in map(json.loads, texts):
        for name in ("header", "end"):
            data[name] = delta.get(name) or data.get(name)
        for wire in delta.get("rounds", []):
            for token in tokens(wire):
                for name in [name for name, value in token.items() if value in (None, [])]:
                    del token[name]
            data["rounds"].append(wire)
    return Trace.from_dict(data)


def test_the_deltas_hold_the_whole_race_and_count_without_a_gap(pair: Pair) -> None:
    seen: list[Event] = []

    def watched(*arguments: Any) -> Iterator[Event]:
        for event in race(*arguments):
            seen.append(event)
            yield event

    texts = list(deltas(queue_of(pair, watched), run_of()))
    numbers = [(delta["seq"], delta["next"]) for delta in map(json.loads, texts)]
    assert [seq for seq, _ in numbers] == [0, *(number for _, number in numbers[:-1])]
    assert numbers[-1][1] == len(seen)
    assert [json.loads(text)["over"] for text in texts][-2:] == [False, True]
    assert rebuilt(texts) == Trace.from_events(seen)


def test_the_first_delta_comes_before_anything_is_loaded() -> None:
    loading = threading.Event()
    queue = RunQueue(LocalWorker(lambda *_: loading.wait(60), lambda *_: iter(())))
    queue.start("toy")
    stream = deltas(queue, run_of())
    assert json.loads(next(stream))["status"]
    assert any("Loading" in json.loads(text).get("status", "") for text in stream)
    loading.set()
    assert json.loads(list(stream)[-1])["over"]


def test_runs_take_turns_and_the_waiting_are_told(pair: Pair) -> None:
    racing = [0]
    most = [0]

    def counted(*arguments: Any) -> Iterator[Event]:
        racing[0] += 1
        most[0] = max(most[0], racing[0])
        yield from race(*arguments)
        racing[0] -= 1

    queue = queue_of(pair, counted)
    settings = Settings(temperature=1.0, max_new_tokens=200)
    heard: dict[str, list[str]] = {}

    def visit(name: str) -> None:
        heard[name] = list(deltas(queue, run_of(settings, session=name, prompt=f"w{name} w2")))

    threads = [threading.Thread(target=visit, args=(str(i),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
    assert {rebuilt(texts).header.prompt for texts in heard.values()} == {"w0 w2", "w1 w2", "w2 w2"}
    assert any("ahead of yours" in text for texts in heard.values() for text in texts)


def test_stop_ends_within_a_round(pair: Pair) -> None:
    queue = queue_of(pair, slow_race)
    run = run_of(Settings(temperature=1.0, max_new_tokens=500))
    texts = []
    for text in deltas(queue, run):
        texts.append(text)
        if "rounds" in text and not run.stopping.is_set():
            queue.stop("somebody else")
            assert not run.stopping.is_set()
            queue.stop("one")
    trace = rebuilt(texts)
    assert trace.end is not None
    assert set(trace.end.reasons.values()) == {"stopped"}
    assert 0 < len(trace.rounds) < 500
    assert json.loads(list(deltas(queue, run_of()))[-1])["over"]


def test_a_handler_that_is_closed_stops_its_run(pair: Pair) -> None:
    closed = threading.Event()
    seen = []

    def watched(*arguments: Any) -> Iterator[Event]:
        try:
            for event in slow_race(*arguments):
                seen.append(event)
                yield event
        finally:
            closed.set()

    run = run_of(Settings(temperature=1.0, max_new_tokens=500))
    stream = deltas(queue_of(pair, watched), run)
    next(text for text in stream if "rounds" in text)
    stream.close()  # type: ignore[attr-defined]
    before = len(seen)
    assert closed.wait(60)
    assert len(seen) < before + 20


def test_a_run_stopped_while_it_waits_never_races(pair: Pair) -> None:
    queue = queue_of(pair, slow_race)
    first = deltas(queue, run_of(Settings(max_new_tokens=500)))
    next(text for text in first if "rounds" in text)
    waiting = run_of(session="two")
    second = deltas(queue, waiting)
    next(second)
    assert "ahead" in json.loads(next(second))["status"]
    queue.stop("two")
    assert json.loads(list(second)[-1])["over"]
    first.close()  # type: ignore[attr-defined]
    assert not waiting.racing


def slow_race(*arguments: Any) -> Iterator[Event]:
    """A race with a pause after each event, for tests that interrupt it."""
    for event in race(*arguments):
        yield event
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(PromptError("Write a prompt."), "Write a prompt."), (ZeroDivisionError(), FAILED)],
)
def test_a_failure_is_one_sentence_and_the_next_run_works(
    pair: Pair, error: Exception, sentence: str
) -> None:
    failures = [error]

    def flaky(*arguments: Any) -> Iterator[Event]:
        for place, event in enumerate(race(*arguments)):
            if failures and place == 3:
                raise failures.pop()
            yield event

    queue = queue_of(pair, flaky)
    texts = list(deltas(queue, run_of()))
    assert json.loads(texts[-1])["error"] == sentence
    assert "Traceback" not in "".join(texts)
    assert len(rebuilt(texts).rounds) == 2  # finished rounds stay
    assert rebuilt(list(deltas(queue, run_of()))).end is not None


def test_a_pair_that_cannot_be_loaded_is_tried_again(pair: Pair) -> None:
    answers: list[Any] = [PairError("It is not here."), PairError("It is not here."), pair]

    def load(name: str, watcher: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    queue = RunQueue(LocalWorker(load, race))
    queue.start("toy")
    assert json.loads(list(deltas(queue, run_of()))[-1])["error"] == "It is not here."
    assert "error" not in json.loads(list(deltas(queue, run_of()))[-1])


def missed(queue: RunQueue, run: str, seq: int) -> list[str] | None:
    deltas = delivery_questions(queue)[0]({"run": run, "seq": seq})
    return deltas and [orjson.dumps(delta).decode() for delta in deltas]


def test_what_was_missed_can_be_asked_for_by_run_only(pair: Pair) -> None:
    queue = queue_of(pair)
    run = run_of()
    texts = list(deltas(queue, run))
    whole = rebuilt(texts)
    assert rebuilt(missed(queue, run.id, 0) or []) == whole
    for seq in (1, 3, run.next_seq):
        (delta,) = map(json.loads, missed(queue, run.id, seq) or [])
        assert delta["over"] and (delta["seq"], delta["next"]) == (seq, run.next_seq)
        # The header comes before the rounds, the end after them.
        missing = len(whole.rounds) - (seq - 1)
        assert len(delta.get("rounds", [])) == max(0, missing)
    assert missed(queue, "another", 0) is None


def test_old_runs_are_forgotten(pair: Pair) -> None:
    queue = queue_of(pair, lambda *_: iter(()))
    runs = [run_of(session=str(i)) for i in range(20)]
    for run in runs:
        list(deltas(queue, run))
    remembered = [run for run in runs if missed(queue, run.id, 0)]
    assert runs[-1] in remembered
    assert runs[0] not in remembered


def test_accepted_tokens_travel_once() -> None:
    kept = Token(1, "<script>", "accepted", p=0.5, q=0.5, u=0.1, beta=0.9)
    own = Token(2, "b", "bonus", p=0.4)
    event = Round("speculative", 0, [kept], own, 0.1, 0.2, 0.0, 0.3)
    state = {"id": "run", "seq": 0, "next": 1, "over": False, "status": "", "error": None}
    text = orjson.dumps(delta_of({**state, "remark": None, "rounds": [event]})).decode()
    assert text.count("script>") == 1
    wire = json.loads(text)["rounds"][0]
    assert wire["last"]["id"] == 2
    shown = [{k: v for k, v in t.items() if v not in (None, [])} for t in wire["drafted"]]
    assert shown == event_dict(event)["drafted"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"seed": None}, "seed is None"),
        ({"gamma": 2.5}, "gamma is 2.5"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"max_new_tokens": 513}, "up to 512"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked_settings(values)


def test_the_page_offers_what_settings_allow() -> None:
    for name, (least, most) in LIMITS.items():
        assert RANGES[name][0] <= least <= DEFAULTS[name] <= most <= RANGES[name][1]
    assert {name: set(values) for name, values in CHOICES.items()} == {
        name: set(values()) for name, values in ALL_CHOICES.items()
    }
    assert DEFAULTS.keys() == LIMITS.keys() | CHOICES.keys()


def test_a_pair_has_presets_that_it_can_run() -> None:
    recorded: set[str] = set()
    for pair in PAIRS:
        presets = presets_of(pair)
        offered = listed_drafters(pair)
        assert len(presets) == 5 and offered is not None
        assert all(one.why and one.prompt.strip() for one in presets)
        for one in presets:
            settings = checked_settings(one.settings_on(pair))
            assert settings.drafter in offered
        names = {one.name for one in presets}
        assert not names & recorded, "a recording has one name"
        recorded |= names
    assert presets_of("../pair") == presets_of("builtin") == presets_of("TARGET+DRAFT")


def test_what_a_preset_shows_is_greedy_unless_it_teaches_sampling() -> None:
    """Then both lanes write the same text, and a draft changes only the time."""
    for pair in PAIRS:
        first, *others = presets_of(pair)
        assert first.settings_on(pair)["temperature"] == 0, "what a visit begins with"
        for one in (first, *others, *recorded_of(pair)):
            temperature = one.settings_on(pair)["temperature"]
            assert one.teaches in ("", "sampling")
            assert (temperature > 0) == (one.teaches == "sampling"), one.name
        assert any(one.teaches for one in others), "sampling is taught somewhere"


def test_a_page_of_a_chat_model_begins_with_settings_that_suit_it() -> None:
    own = defaults_of("smollm2-135m")
    assert (own["drafter"], own["gamma"]) == ("ngram-head", 5)
    assert own["max_new_tokens"] > DEFAULTS["max_new_tokens"]
    assert defaults_of("builtin") == DEFAULTS
    assert own.keys() == DEFAULTS.keys()


@pytest.mark.parametrize(
    ("on_gpu", "begins_with"), [(True, (2, "fixed")), (False, (5, "confidence"))]
)
def test_a_page_begins_with_what_suits_its_device(
    on_gpu: bool, begins_with: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.page.controls.may_have_gpu", lambda: on_gpu)
    own = defaults_of("qwen2.5-coder-1.5b")
    assert (own["gamma"], own["gamma_policy"]) == begins_with
    assert defaults_of("builtin") == DEFAULTS


def test_a_drafter_may_come_before_the_server_knows_the_pair() -> None:
    """A link names a pair and its drafter: a run right after opening it is not refused because of
    the drafters of the page's own pair."""
    offered = {control["name"]: control for control in controls_of("smollm2-135m", None)}
    assert "model" not in [value for _, value in offered["drafter"]["choices"]]
    assert checked_settings({**DEFAULTS, "drafter": "model"}).drafter == "model"
    with pytest.raises(SettingsError, match="drafter"):
        checked_settings({**DEFAULTS, "drafter": "modem"})


def test_every_setting_has_one_control_with_the_value_that_the_page_begins_with() -> None:
    offer = offer_of(
        "builtin", presets=presets_of("builtin"), recordings=NOWHERE, machine=None, is_loading=False
    )
    names = [control["name"] for control in offer["controls"]]
    assert sorted(names) == sorted(offer["defaults"])
    for control in offer["controls"]:
        usual = offer["defaults"][control["name"]]
        if "choices" in control:
            assert usual in [value for _, value in control["choices"]], control["name"]
        elif "limits" in control:
            assert control["limits"][0] <= usual <= control["limits"][1], control["name"]
    assert json.loads(json.dumps(offer)) is not None

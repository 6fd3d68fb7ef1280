"""Whole sweeps of small models whose pass times the tests choose."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from bare_rounds import bare_rounds
from sentences import Sentences
from toy_models import VirtualTime, llama, mini, pair_of, relative

from specviz import Pair, Settings
from specviz.base.environment import ASSETS
from specviz.base.errors import ModelError, PromptError, SettingsError
from specviz.core.messages import Message
from specviz.core.registry import swept_drafters
from specviz.measure.races import raced
from specviz.measure.sweep.deploy import recommendations
from specviz.measure.sweep.export import COLUMNS, sweep_csv, sweep_html, table_lines, write_sweep
from specviz.measure.sweep.figures import TITLES, figure_specs
from specviz.measure.sweep.sweep import Sweep, sweep
from specviz.measure.sweep.types import (
    Plan,
    PromptOfKind,
    Row,
    SweepEvent,
    SweepProgress,
    SweepRequest,
    SweepResult,
)
from specviz.runs.uncertainty import NEAR, Estimate

VOCAB = 12
PASS = 0.01  # seconds
PROMPTS = tuple(
    PromptOfKind(kind, " ".join(f"w{(7 * i * n + n) % VOCAB}" for i in range(8)))
    for n in (1, 2, 3)
    for kind in ("prose", "list")
)
BASE = Settings(max_new_tokens=24, ignore_eos=True)
REQUEST = SweepRequest(
    PROMPTS, drafters=("model", "ngram"), gammas=(1, 2, 4), seconds=600.0, base=BASE
)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualTime]:
    """A clock that only passes advance; the sweep ends as soon as everything is measured once.
    Rounds have only the counts and times that a sweep reads."""
    clock = VirtualTime()
    monkeypatch.setattr("specviz.core.clock.time", clock)
    monkeypatch.setattr("specviz.measure.sweep.agenda.MAX_REPEATS", 1)
    with bare_rounds():
        yield clock


def scripted_pair(clock: VirtualTime, *, cost: float, noise: float) -> Pair:
    """A target whose passes take 10 ms, and a draft. cost: of a draft pass, as a share of a target
    pass. noise: the more, the less often the draft is right."""
    target = mini(VOCAB, spread=6.0)
    draft = relative(target, noise=noise)
    return pair_of(clock.charge(target, PASS), clock.charge(draft, cost * PASS))


def without_waits(events: Sequence[SweepEvent]) -> list[SweepProgress]:
    """The progress events after pieces, without those of the preparation of drafters."""
    return [event for event in events if isinstance(event, SweepProgress) and event.done]


def result_of(events: Sequence[SweepEvent]) -> SweepResult:
    assert isinstance(events[-1], SweepResult)
    return events[-1]


def row(result: SweepResult, key: str) -> Row:
    return next(one for one in result.rows if one.configuration.key == key)


@pytest.fixture(scope="module")
def good() -> list[SweepEvent]:
    """The events of a sweep with a cheap draft that is nearly always right."""
    with pytest.MonkeyPatch.context() as patch:
        clock = VirtualTime()
        patch.setattr("specviz.core.clock.time", clock)
        patch.setattr("specviz.measure.sweep.agenda.MAX_REPEATS", 1)
        return list(sweep(scripted_pair(clock, cost=0.05, noise=0.02), REQUEST))


def test_a_cheap_and_good_draft_is_recommended_with_its_gamma(good: list[SweepEvent]):
    result = result_of(good)
    (advice,) = result.recommendations
    assert (advice.answer, advice.best) == (
        "speculate",
        row(result, "model g4 fixed t0").configuration,
    )
    assert [one.engine for one in advice.settings] == [
        "transformers",
        "vLLM",
        "SGLang",
        "llama.cpp",
    ]
    assert not result.stopped and "drafter=model&gamma=4" in result.link
    best = row(result, "model g4 fixed t0")
    assert best.mark == "best" and best.measured is not None and best.predicted is not None
    # Every pass takes its scripted time, so prediction and measurement are the same number.
    assert best.measured.tau == pytest.approx(best.predicted.tau)
    assert best.measured.speedup.value == pytest.approx(best.predicted.speedup, rel=0.02)
    assert best.measured.alpha_by_position == pytest.approx(best.predicted.alpha_by_position)
    assert best.measured.c == pytest.approx(0.05, rel=0.2)
    assert set(best.measured.by_kind) == {"prose", "list"}


@pytest.mark.parametrize(("cost", "noise"), [(1.3, 0.0), (0.3, 3.0)], ids=["dear", "wrong"])
def test_a_dear_or_a_wrong_draft_is_not_recommended(timed: VirtualTime, cost: float, noise: float):
    pair = scripted_pair(timed, cost=cost, noise=noise)
    request = replace(REQUEST, drafters=("model",), gammas=(1, 4), prompts=PROMPTS[:3])
    (advice,) = result_of(list(sweep(pair, request))).recommendations
    assert advice.answer == "do not speculate", advice
    assert advice.best is None and advice.settings == ()
    assert advice.headline.startswith("Do not speculate here")


@pytest.mark.parametrize("pieces", [4, 6, 8, 20])
def test_no_answer_contradicts_a_prediction_that_was_never_measured(
    timed: VirtualTime, monkeypatch: pytest.MonkeyPatch, pieces: int
):
    """However short the budget: each row predicted to beat the best measured row was measured on
    that row's prompts too, or the answer says that it was not."""
    monkeypatch.setattr("specviz.measure.sweep.sweep.time", timed)
    pair = scripted_pair(timed, cost=0.3, noise=0.35)  # the smallest gamma is the best one
    seconds = pieces * 24 * 2 * PASS
    request = replace(REQUEST, drafters=("model",), gammas=(1, 2, 3, 8), policies=("fixed",))
    result = result_of(list(sweep(pair, replace(request, seconds=seconds))))
    (advice,) = result.recommendations
    best = next(one for one in result.rows if one.mark == "best")
    assert best.measured.speedup is not None
    promising = [
        one
        for one in result.rows
        if one.configuration.drafter == best.configuration.drafter
        and one.predicted.speedup > best.measured.speedup.value
        and (one.measured is None or one.measured.prompts < min(3, best.measured.prompts))
    ]
    assert {one.mark for one in promising} <= {"open"}
    if promising and advice.answer == "speculate":
        first = max(promising, key=lambda one: one.predicted.speedup)
        assert f"{first.configuration.title} may be better" in advice.headline
    if pieces >= 6:
        assert not promising and best.configuration.gamma == 1 and best.measured.prompts >= 3
        assert advice.answer == "speculate", "the largest gamma, which is scouted, would lose"


def opened(events: list[SweepEvent]) -> SweepResult:
    """A sweep whose time ended before the row with the best prediction was measured."""
    result = result_of(events)
    promising = next(one for one in result.rows if one.configuration.key == "model g2 fixed t0")
    promising = replace(
        promising,
        status="predicted",
        mark="open",
        measured=None,
        predicted=replace(promising.predicted, speedup=9.5),
    )
    others = (replace(one, mark=None if one.mark == "open" else one.mark) for one in result.rows)
    key = promising.configuration.key
    rows = tuple(promising if one.configuration.key == key else one for one in others)
    return replace(result, rows=rows)


def test_a_prediction_stands_apart_with_its_reason(good: list[SweepEvent]):
    result = result_of(good)
    guess = replace(
        row(result, "model g2 fixed t0"),
        status="predicted",
        measured=None,
        note="it is <far> behind",
    )
    rows = tuple(guess if one.configuration == guess.configuration else one for one in result.rows)
    lines = list(table_lines(rows))
    assert "  predicted only, it is <far> behind: draft model, γ 2" in lines
    (line,) = (one for one in lines if one.startswith("  draft model, γ 2 "))
    assert f" ~{guess.predicted.speedup:.2f} " in line and f" ~{guess.predicted.alpha:.2f} " in line
    page = sweep_html(replace(result, rows=rows))
    assert f"<i>{guess.predicted.speedup:.2f}</i>" in page
    assert "predicted only, it is &lt;far&gt; behind: draft model, γ 2" in page


def test_a_row_that_may_be_better_is_named_in_the_answer(
    good: list[SweepEvent], sentences: Sentences
):
    result = opened(good)
    (advice,) = recommendations(result.rows, result.machine, result.request)
    sentences(advice.headline, measured=True)
    sentences(advice.doubt)
    assert any("may be better" in line for line in table_lines(result.rows))
    slow = tuple(
        replace(one, measured=replace(one.measured, speedup=Estimate(0.8, 0.75, 0.85)))
        if one.measured
        else one
        for one in result.rows
    )
    (advice,) = recommendations(slow, result.machine, result.request)
    assert advice.answer == "cannot tell", "what was not measured may still pay"


def test_few_prompts_decide_nothing(timed: VirtualTime):
    pair = scripted_pair(timed, cost=0.05, noise=0.0)
    request = replace(REQUEST, drafters=("model",), prompts=PROMPTS[:1])
    (advice,) = result_of(list(sweep(pair, request))).recommendations
    assert advice.answer == "cannot tell" and "three prompts" in advice.headline


def test_rows_run_by_turns_and_none_is_always_first(timed: VirtualTime):
    state = Sweep(replace(REQUEST, gammas=(2, 3, 4)))
    pair = scripted_pair(timed, cost=0.05, noise=0.5)
    while not state.is_done:
        for _ in state.advance(pair):
            pass
    by_prompt: dict[int, list[str]] = {}
    for run in state.runs:
        by_prompt.setdefault(run.prompt, []).append(run.key)
    prompts = [run.prompt for run in state.runs]
    assert len(prompts) > 12
    for keys in by_prompt.values():
        assert len(set(keys)) == len(keys), "no row twice before the others"
    confirmed = prompts[2 * len(PROMPTS) :]  # after each drafter at its largest gamma
    assert confirmed == sorted(confirmed), "a prompt is done with all rows before the next one"
    firsts = {keys[0] for keys in by_prompt.values()}
    assert len(firsts) > 1, "another row begins on another prompt"
    kinds = [state.prompts[prompt].kind for prompt in dict.fromkeys(prompts)]
    assert kinds[:4] == ["prose", "list", "prose", "list"]


def test_events_come_in_order(good: list[SweepEvent]):
    assert isinstance(good[0], Plan) and good[0].kinds == {"prose": 3, "list": 3}
    assert good[0].now == "preparing: Draft model"
    progress = without_waits(good)
    assert [one.done for one in progress] == list(range(1, len(progress) + 1))
    assert progress[-1].total == progress[-1].done and progress[-1].now == "done"
    assert isinstance(good[-1], SweepResult) and good[-1].rows != good[0].rows
    json.dumps([asdict(event) for event in good], allow_nan=False)


def test_predictions_come_first(timed: VirtualTime):
    state = Sweep(REQUEST)
    pair = scripted_pair(timed, cost=0.05, noise=0.02)
    told: list[set[str]] = []  # the rows with a prediction, after the plan and after each piece
    for _ in range(5):
        list(state.advance(pair))
        told.append({one.configuration.key for one in state.result().rows if one.predicted})
    assert told[0] == set() and told == sorted(told, key=len)
    first = next(keys for keys in told if keys)
    assert {key.split()[0] for key in first} == {"model"}
    assert {"model g1 fixed t0", "model g2 fixed t0", "ngram g1 fixed t0"} <= told[-1]


@pytest.mark.parametrize("by_key", [False, True], ids=["asked", "Ctrl-C"])
def test_stop_keeps_what_there_is(timed: VirtualTime, by_key: bool):
    pair = scripted_pair(timed, cost=0.05, noise=0.1)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        if by_key and len(asked) > 150:
            raise KeyboardInterrupt
        return len(asked) > 150

    events = list(sweep(pair, REQUEST, stop))
    result = result_of(events)
    measured = [one for one in result.rows if one.measured]
    assert result.stopped and 0 < len(measured) < len(result.rows)
    assert sum(one.measured.runs for one in measured) < 12


def test_a_sweep_can_rest(timed: VirtualTime):
    pair = scripted_pair(timed, cost=0.05, noise=0.1)
    state = Sweep(replace(REQUEST, gammas=(1, 4), prompts=PROMPTS[:4]))
    for _ in range(3):
        state = pickle.loads(pickle.dumps(state))
        list(state.advance(pair))
    before = len(state.runs)
    due = list(state.queue)
    assert list(state.advance(pair, lambda: True)) == [] and state.queue == due, "none is lost"
    state = pickle.loads(pickle.dumps(state))
    assert before == 2 and state.result().stopped
    while not state.is_done:
        list(state.advance(pair))
    assert not state.result().stopped and state.result().recommendations[0].answer == "speculate"


def test_the_budget_ends_a_sweep(timed: VirtualTime, monkeypatch: pytest.MonkeyPatch):
    seconds = iter(range(10_000))
    clock = type("Clock", (), {"perf_counter": staticmethod(lambda: next(seconds))})
    monkeypatch.setattr("specviz.measure.sweep.sweep.time", clock)
    state = Sweep(replace(REQUEST, seconds=5.0))
    pair = scripted_pair(timed, cost=0.05, noise=0.1)
    while not state.is_done:
        list(state.advance(pair))
    assert state.spent == 5.0 and len(state.runs) <= 5


def test_drafters_that_the_pair_lacks_are_left_out_with_the_reason(timed: VirtualTime):
    alone = pair_of(timed.charge(mini(VOCAB, spread=6.0), PASS))
    request = replace(REQUEST, drafters=("model", "ngram", "early-exit"))
    result = result_of(list(sweep(alone, request)))
    notes = {one.configuration.drafter: one.note for one in result.rows}
    assert "no draft model" in notes["model"] and "cannot be told apart" in notes["early-exit"]
    assert notes["ngram"] == ""
    none = result_of(list(sweep(alone, replace(REQUEST, drafters=("model",)))))
    assert none.recommendations[0].answer == "do not speculate"
    assert any("left out" in line for line in table_lines(none.rows))


def test_other_temperatures_and_policies_have_rows_of_their_own(timed: VirtualTime):
    request = replace(
        REQUEST,
        prompts=PROMPTS[:3],
        drafters=("model",),
        temperatures=(0.0, 1.0),
        policies=("fixed", "optimal"),
    )
    result = result_of(list(sweep(scripted_pair(timed, cost=0.05, noise=0.1), request)))
    keys = [one.configuration.key for one in result.rows]
    assert keys[3] == "model g4 optimal t0" and keys[-1] == "model g4 optimal t1" and len(keys) == 8
    assert [one.temperature for one in result.recommendations] == [0.0, 1.0]
    exact = {one.configuration.temperature: one.predicted.exact for one in result.rows}
    assert exact == {0.0: True, 1.0: False}
    assert {one.mark for one in result.rows if one.configuration.temperature == 1.0} >= {"best"}


def test_where_no_model_drafts_there_is_no_row_by_confidence():
    request = replace(REQUEST, policies=("fixed", "confidence"))
    assert [row.key for row in request.configurations()] == [
        "model g1 fixed t0",
        "model g2 fixed t0",
        "model g4 fixed t0",
        "model g4 confidence t0",
        "ngram g1 fixed t0",
        "ngram g2 fixed t0",
        "ngram g4 fixed t0",
    ]
    alone = replace(request, drafters=("ngram",), policies=("confidence",))
    assert [row.key for row in alone.configurations()] == ["ngram g4 optimal t0"]


def test_drafts_that_end_by_confidence_are_measured_and_never_predicted(timed: VirtualTime):
    policies = ("confidence", "fixed")
    request = replace(REQUEST, drafters=("model",), gammas=(1, 4), policies=policies)
    rows = result_of(list(sweep(scripted_pair(timed, cost=0.1, noise=0.05), request))).rows
    by_policy = {row.configuration.policy: row for row in rows}
    assert by_policy["confidence"].measured and not by_policy["confidence"].predicted
    assert all(row.predicted for row in rows if row.configuration.policy == "fixed")


def test_all_turns_of_a_conversation_are_swept(
    timed: VirtualTime, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    turns = (Message("system", "w1 w2 w3"), Message("user", "w4 w5"))
    pair = scripted_pair(timed, cost=0.1, noise=0.1)
    request = replace(REQUEST, drafters=("ngram",), prompts=(PromptOfKind("chat", "w4 w5", turns),))
    with sentences.raises(PromptError):
        list(sweep(pair, request))
    pair.tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}w7"
    read = set()

    def watching(pair: Pair, prompt: Any, *args: Any, **options: Any) -> Any:
        read.add(pair.tokenizer.decode(pair.encode(prompt)))
        return raced(pair, prompt, *args, **options)

    monkeypatch.setattr("specviz.measure.races.raced", watching)
    assert any(one.measured for one in result_of(list(sweep(pair, request))).rows)
    assert read == {"w1 w2 w3 w4 w5 w7"}


def test_prompts_that_do_not_fit_and_late_failures_lose_nothing(
    timed: VirtualTime, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    pair = scripted_pair(timed, cost=0.05, noise=0.1)
    long = PromptOfKind("prose", "w1 " * 600)
    with sentences.raises(PromptError):
        list(sweep(pair, replace(REQUEST, prompts=(long,))))

    real = raced
    calls = []

    def failing(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise ModelError("the device ran out of memory.")
        return real(*args, **options)

    monkeypatch.setattr("specviz.measure.races.raced", failing)
    result = result_of(list(sweep(pair, replace(REQUEST, prompts=(long, *PROMPTS)))))
    sentences("\n".join(result.notes))
    assert result.stopped and any(one.measured for one in result.rows)


def test_slow_models_get_shorter_texts(timed: VirtualTime, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("specviz.measure.sweep.sweep.PIECE_SECONDS", 24 * PASS)
    state = Sweep(replace(REQUEST, drafters=("model",)))
    pair = scripted_pair(timed, cost=0.05, noise=0.1)
    for _ in range(3):
        list(state.advance(pair))
    assert 16 <= state._length < 24 and len(state.runs) == 1
    assert sum(one[3] * n for one, n in state.runs[0].rounds.items()) == state._length


@pytest.mark.parametrize(
    "change",
    [
        {"prompts": ()},
        {"gammas": (0,)},
        {"gammas": ()},
        {"drafters": ("psychic",)},
        {"seconds": 0.0},
        {"temperatures": (-1.0,)},
    ],
    ids=repr,
)
def test_a_request_that_cannot_be_done_is_one_sentence(
    change: dict[str, Any], sentences: Sentences
):
    with sentences.raises(SettingsError):
        Sweep(replace(REQUEST, **change))


def test_csv_json_and_html_tell_the_same(good: list[SweepEvent], tmp_path):
    result = result_of(good)
    (written,) = write_sweep(result, tmp_path / "a.json")
    told = json.loads(written.read_text())
    assert told == json.loads(json.dumps(result.to_dict())) and told["schema"] == 1
    head, *lines = sweep_csv(result).splitlines()
    assert head == ",".join(COLUMNS) and len(lines) == len(result.rows)
    best = next(line for line in lines if ",best," in line).split(",")
    told = dict(zip(COLUMNS, best, strict=True))
    measured = row(result, "model g4 fixed t0").measured
    assert float(told["speedup"]) == measured.speedup.value and told["note"] == ""
    written = write_sweep(result, tmp_path / "all")
    assert [one.name for one in written] == ["sweep.csv", "sweep.json", "sweep.html"]
    page = sweep_html(replace(result, machine=replace(result.machine, target="<b>")))
    assert "&lt;b&gt; with" in page and "<b> with" not in page
    specs = figure_specs(result, "dark")
    assert list(specs) == list(TITLES)
    lines = {one["name"]: one for one in specs["speedup"]["data"]}
    assert lines["Draft model, predicted"]["x"] == [1, 2, 4]
    assert lines["Draft model, measured"]["y"][-1] == measured.speedup.value
    assert specs["speedup"]["layout"]["shapes"][0]["y0"] == 1, "the line of break-even"


def test_the_page_and_python_call_the_same_speedups_even():
    assert f"NEAR = {NEAR};" in (ASSETS / "page" / "words" / "verdict.js").read_text("utf-8")


def test_a_busy_machine_is_told(good: list[SweepEvent], sentences: Sentences):
    result = result_of(good)
    rows = tuple(
        replace(one, measured=replace(one.measured, doubts=one.measured.runs))
        if one.measured
        else one
        for one in result.rows
    )
    (advice,) = recommendations(rows, result.machine, result.request)
    assert advice.answer == "cannot tell" and advice.best is None and advice.settings == ()
    sentences(advice.headline, measured=True)
    half = tuple(
        replace(one, measured=replace(one.measured, doubts=one.measured.runs // 2))
        if one.measured
        else one
        for one in result.rows
    )
    (advice,) = recommendations(half, result.machine, result.request)
    assert advice.answer == "speculate" and "machine was busy in" in advice.doubt


def test_no_two_drafters_have_one_colour(good: list[SweepEvent]):
    result = result_of(good)
    rows = tuple(
        replace(one, configuration=replace(one.configuration, drafter=drafter))
        for drafter in swept_drafters()
        for one in result.rows[:2]
    )
    drawn = figure_specs(replace(result, rows=rows))["positions"]["data"]
    assert len({one["line"]["color"] for one in drawn}) == len(swept_drafters())


def test_early_exit_is_swept_and_spelled_for_transformers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("specviz.measure.sweep.agenda.MAX_REPEATS", 1)
    pair = pair_of(llama(VOCAB, num_hidden_layers=3))
    request = replace(REQUEST, drafters=("early-exit",), gammas=(1, 2), prompts=PROMPTS[:3])
    result = result_of(list(sweep(pair, request)))
    assert result.machine.exit_layers in (1, 2)
    fixed = [one for one in result.rows if one.configuration.policy == "fixed"]
    assert all(one.predicted is not None and one.predicted.exact for one in fixed)

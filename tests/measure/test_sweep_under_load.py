"""A sweep on a busy machine gives the same recommendation as on a quiet one, or says that it cannot
tell."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from bare_rounds import bare_rounds
from sentences import Sentences
from toy_models import Load, VirtualTime, mini, no_load, pair_of, relative

from specviz import Settings, Trace, race
from specviz.core.events import Event, Round, Token
from specviz.core.lanes import BASELINE, SPECULATIVE
from specviz.measure.races import RaceFigures, busy_runs, is_cut, race_figures, raced
from specviz.measure.sweep.predicted_rounds import MIN_TOKENS, known_text
from specviz.measure.sweep.sweep import sweep
from specviz.measure.sweep.types import Recommendation, SweepRequest, SweepResult
from specviz.pairs.prompts import PromptOfKind
from specviz.runs.uncertainty import undelayed_seconds

VOCAB = 12
PASS = 0.01  # seconds
PROMPTS = tuple(
    PromptOfKind("prose", " ".join(f"w{(7 * i * n + n) % VOCAB}" for i in range(8)))
    for n in range(1, 6)
)
BASE = Settings(max_new_tokens=24, ignore_eos=True)
REQUEST = SweepRequest(
    PROMPTS, drafters=("model", "ngram"), gammas=(1, 4), policies=("fixed",), base=BASE
)


@pytest.fixture(scope="module", autouse=True)
def bare() -> Iterator[None]:
    """A sweep reads only the counts and times of rounds."""
    with bare_rounds():
        yield


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SweepResult]:
    """A function that sweeps a pair with scripted pass times."""
    return sweeping(monkeypatch)


@pytest.fixture(scope="module")
def quiet() -> Recommendation:
    """The recommendation on a quiet machine."""
    with pytest.MonkeyPatch.context() as patch:
        (advice,) = sweeping(patch)(0.05, 0.02).recommendations
    assert advice.best is not None and advice.best.key == "model g4 fixed t0"
    return advice


def sweeping(patch: pytest.MonkeyPatch) -> Callable[..., SweepResult]:
    def swept_pair(
        cost: float,
        noise: float,
        request: SweepRequest = REQUEST,
        target_load: Load = no_load,
        draft_load: Load = no_load,
        repeats: int = 1,
    ) -> SweepResult:
        """cost: of a draft step, in target passes. noise: how often the draft is wrong, roughly."""
        patch.setattr("specviz.measure.sweep.agenda.MAX_REPEATS", repeats)
        clock = VirtualTime()
        patch.setattr("specviz.core.clock.time", clock)
        patch.setattr("specviz.measure.sweep.sweep.time", clock)
        target = mini(VOCAB, spread=6.0)
        draft = relative(target, noise=noise)
        pair = pair_of(
            clock.charge(target, PASS, load=target_load),
            clock.charge(draft, cost * PASS, load=draft_load),
        )
        *_, result = sweep(pair, request)
        assert isinstance(result, SweepResult)
        return result

    return swept_pair


def stall(passes: range, factor: float) -> Load:
    """Multiply the times of `passes` by `factor`."""
    return lambda number, _: factor if number in passes else 1.0


def of_the_target_alone(load: Load) -> Load:
    """Delay only passes over one token."""
    return lambda number, width: load(number, width) if width == 1 else 1.0


def of_the_other_lane(load: Load) -> Load:
    """Delay only passes over several tokens, which judge drafts."""
    return lambda number, width: load(number, width) if width > 1 else 1.0


def now_and_then(share: float, factor: float) -> Load:
    """Multiply the times of about `share` of the passes by `factor`."""
    generator = random.Random(1)
    return lambda *_: factor if generator.random() < share else 1.0


LOADS: dict[str, dict[str, Load]] = {
    "one pass of three seconds": {"target_load": stall(range(9, 10), 300.0)},
    "the first races of the target": {"target_load": stall(range(120), 20.0)},
    "the first race of the draft": {"draft_load": stall(range(60), 50.0)},
    "all of the first races": {
        "target_load": stall(range(120), 20.0),
        "draft_load": stall(range(60), 20.0),
    },
    "a pass in ten": {"target_load": now_and_then(0.1, 10.0)},
    "a pass in three": {
        "target_load": now_and_then(0.3, 8.0),
        "draft_load": now_and_then(0.3, 8.0),
    },
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_under_load_it_recommends_what_it_does_on_a_quiet_machine(
    swept: Callable[..., SweepResult], quiet: Recommendation, load: dict[str, Load]
):
    assert quiet.best is not None
    result = swept(0.05, 0.02, **load)
    (advice,) = result.recommendations
    assert advice.best == quiet.best or advice.answer == "cannot tell", advice
    rows = {row.configuration.key: row for row in result.rows}
    assert rows[quiet.best.key].measured is not None, "the pair begins with it"
    if advice.best is not None:
        assert rows[advice.best.key].measured.runs - rows[advice.best.key].measured.doubts >= 3
        assert advice.prompt in {prompt.text for prompt in PROMPTS}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_under_load_it_recommends_nothing_that_loses(
    swept: Callable[..., SweepResult], load: dict[str, Load]
):
    dear = replace(REQUEST, drafters=("model",))
    (advice,) = swept(1.3, 0.0, dear, **load).recommendations
    assert advice.answer in ("do not speculate", "cannot tell"), advice
    assert advice.best is None and advice.settings == ()


def test_a_baseline_that_was_slower_than_passes_over_drafts_gives_no_answer(
    swept: Callable[..., SweepResult],
):
    model = replace(REQUEST, drafters=("model",))
    always = of_the_target_alone(stall(range(1000), 2.0))
    (advice,) = swept(1.3, 0.0, model, target_load=always).recommendations
    assert advice.answer == "cannot tell", advice


def test_repeats_show_what_was_slow_when_each_prompt_ran_first(swept: Callable[..., SweepResult]):
    model = replace(REQUEST, drafters=("model",))
    slow = stall(range(150), 20.0)
    (dear,) = swept(1.3, 0.0, model, target_load=slow, repeats=2).recommendations
    assert dear.answer == "do not speculate", "both lanes' target passes were slow"
    slow = of_the_other_lane(stall(range(240), 20.0))
    (cheap,) = swept(0.05, 0.02, model, target_load=slow, repeats=2).recommendations
    assert cheap.answer == "speculate", "passes over drafts were slow"


@pytest.mark.parametrize("seconds", [1.0, 3.0, 8.0])
def test_a_stall_in_a_short_time_leads_to_no_answer_that_a_quiet_machine_would_not_give(
    swept: Callable[..., SweepResult], seconds: float
):
    short = replace(REQUEST, seconds=seconds)
    load = stall(range(60), 50.0)
    (advice,) = swept(0.05, 0.02, short, draft_load=load, target_load=load).recommendations
    assert advice.best is None or advice.best.key == "model g4 fixed t0", advice


def test_where_nothing_was_drafted_no_ratio_is_above_one():
    """The baseline happens to be slower, but not by enough to count as delayed."""
    pair = pair_of(mini(400, spread=6.0))
    settings = replace(BASE, drafter="ngram", gamma=4)
    events: list[Event] = []
    for event in race(pair, list(range(5, 13)), settings):
        if isinstance(event, Round):
            seconds = 0.012 if event.lane == BASELINE else 0.01
            event = replace(event, draft_seconds=0.0, verify_seconds=seconds, overhead_seconds=0.0)
        events.append(event)
    figures = race_figures("ngram g4 fixed t0", 0, Trace.from_events(events))
    assert figures.metrics.drafted == 0, "the test needs a text that repeats nothing"
    assert figures.rate / figures.alone_rate == pytest.approx(1.2)
    assert figures.speedup == 1.0


def test_nothing_is_predicted_from_a_text_that_was_cut_or_is_short():
    pair = pair_of(mini(VOCAB, spread=6.0), mini(VOCAB, seed=1, spread=6.0))
    for length in (MIN_TOKENS - 1, MIN_TOKENS):
        trace = raced(pair, "w1 w2 w3", replace(BASE, max_new_tokens=length))
        assert not is_cut(trace)
        assert (known_text(pair, trace) is None) == (length < MIN_TOKENS)
    running = race(pair, "w1 w2 w3", replace(BASE, max_new_tokens=8 * MIN_TOKENS))
    events: list[Event] = []
    written = 0
    while written < MIN_TOKENS:
        event = next(running)
        events.append(event)
        if isinstance(event, Round) and event.lane == SPECULATIVE:
            written += len(event.emitted)
    cut = Trace.from_events([*events, running.send(True)])
    assert is_cut(cut) and known_text(pair, cut) is None


def test_a_race_is_cut_only_where_its_first_passes_say_that_it_would_be_long(
    monkeypatch: pytest.MonkeyPatch,
):
    clock = VirtualTime()
    monkeypatch.setattr("specviz.core.clock.time", clock)
    one_stall = stall(range(9, 10), 1000.0)
    pair = pair_of(clock.charge(mini(VOCAB, spread=6.0), PASS, load=one_stall), None)
    settings = replace(BASE, drafter="ngram")
    for seconds, cut in ((10 * PASS, True), (100 * PASS, False)):
        trace = raced(pair, "w1 w2 w3", settings, max_seconds=seconds)
        assert is_cut(trace) == cut
    assert clock.seconds > 10.0, "or nothing was delayed"


@pytest.fixture(scope="module")
def figures_of() -> Callable[..., RaceFigures]:
    """A function that returns the figures of a race with these times, in seconds."""
    pair = pair_of(mini(VOCAB))
    trace = raced(pair, "w1 w2 w3", replace(BASE, drafter="ngram", max_new_tokens=4))

    def figures(
        key: str, prompt: int, passes: dict[int, float], step: float | None = None
    ) -> RaceFigures:
        known = race_figures(key, prompt, trace)
        return replace(known, passes=passes, step=step, doubted=False)

    return figures


def test_a_race_that_was_far_slower_than_the_quietest_one_was_delayed(
    figures_of: Callable[..., RaceFigures],
):
    runs = [figures_of("model g4", 0, {1: seconds}) for seconds in (1.0, 1.4, 1.6)]
    runs += [figures_of("model g4", 1, {1: seconds}) for seconds in (1.9, 2.1)]
    runs += [figures_of("model g2", 1, {1: 1.9}, step) for step in (0.1, 0.19, 0.21)]
    assert busy_runs(runs) == {2, 4, 7}
    assert busy_runs([replace(run, doubted=True) for run in runs[:2]]) == {0, 1}


def test_a_race_was_delayed_if_either_lane_was(figures_of: Callable[..., RaceFigures]):
    runs = [figures_of("model g4", 0, {1: 1.0, 5: wide}) for wide in (1.5, 2.2, 2.3)]
    runs += [figures_of("model g4", 1, {1: 1.0, 5: wide}) for wide in (2.9, 3.1)]
    assert busy_runs(runs) == {2, 4}
    alone = [figures_of("model g4", 0, {1: narrow, 5: 1.0}) for narrow in (1.4, 1.6)]
    assert busy_runs(alone) == {1}, "a pass over one token takes no longer than one over five"


def test_passes_are_compared_where_a_race_has_three_of_their_width():
    pair = pair_of(mini(VOCAB, spread=6.0), mini(VOCAB, spread=6.0))
    for tokens, widths in ((15, {1, 5}), (14, {1})):
        trace = raced(pair, "w1 w2 w3", replace(BASE, gamma=4, max_new_tokens=tokens))
        assert race_figures("model g4 fixed t0", 0, trace).passes.keys() == widths


def test_a_delayed_round_counts_as_usual():
    def round_of(drafted: int, seconds: float) -> Round:
        drafts = drafted * [Token(1, "a", "accepted")]
        return Round(SPECULATIVE, 0, drafts, Token(1, "a", "bonus"), 0.0, seconds, 0.0, 0.0)

    usual = [round_of(4, 1.0), round_of(4, 1.2), round_of(4, 1.0)]
    assert undelayed_seconds([*usual, round_of(4, 60.0)]) == pytest.approx(3.2 + 1.1)
    assert undelayed_seconds([*usual, round_of(2, 60.0)]) == pytest.approx(3.2 + 1.0), (
        "a narrower round costs no more"
    )
    assert undelayed_seconds([*usual, round_of(8, 3.0)]) == pytest.approx(3.2 + 3.0)


def test_texts_of_a_few_tokens_are_measured_without_predictions(
    swept: Callable[..., SweepResult],
):
    short = replace(REQUEST, base=replace(BASE, max_new_tokens=8))
    rows = swept(0.05, 0.02, short).rows
    assert all(row.predicted is None and row.measured is not None for row in rows)


def test_one_row_was_and_two_rows_were(swept: Callable[..., SweepResult], sentences: Sentences):
    def doubt_of(gammas: tuple[int, ...]) -> str:
        few = replace(REQUEST, drafters=("model",), gammas=gammas, seconds=1.0)
        few = replace(few, base=replace(BASE, max_new_tokens=8))
        slow: dict[str, Load] = {"target_load": lambda *_: 1.5, "draft_load": lambda *_: 1.5}
        advice: Recommendation = swept(0.05, 0.02, few, **slow).recommendations[0]
        return advice.doubt

    sentences(doubt_of((1, 4)).partition(". ")[0])
    sentences(doubt_of((1, 2, 3, 4)).partition(". ")[0])

"""Two lanes, two clocks, one device: the order of lanes, the counted time, and the end event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from sentences import Sentences
from toy_models import VirtualTime, emitted_ids, llama, mini, pair_of, relative, scripted

import specviz.core.loop
from specviz import End, Header, Pair, Round, Settings, Trace, baseline, race
from specviz.base.errors import SettingsError
from specviz.core import shared_prompt
from specviz.core.events import agreement_of
from specviz.core.lanes import LANES
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.core.tokens import Annotator
from specviz.core.types import Prefilled

# Seconds of virtual time for a pass.
TARGET = 8.0
DRAFT = 1.0
PROMPT = [3, 1, 4]
SAMPLED = Settings(gamma=3, temperature=1.0, max_new_tokens=40)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A pair whose passes take a known time, and the first pass of each model far more."""
    time = VirtualTime()
    monkeypatch.setattr("specviz.core.clock.time", time)
    target = mini(9, seed=1, spread=3.0)
    draft = relative(target, noise=0.5)
    return pair_of(time.charge(target, TARGET, first=1e6), time.charge(draft, DRAFT, first=1e6))


def raced(pair: Pair, settings: Settings, **options: Any) -> tuple[Header, list[Round], End]:
    header, *rounds, end = race(pair, PROMPT, settings, **options)
    assert isinstance(header, Header) and isinstance(end, End)
    assert all(isinstance(r, Round) for r in rounds)
    return header, rounds, end


def of(lane: str, rounds: list[Round]) -> list[Round]:
    return [r for r in rounds if r.lane == lane]


def test_rounds_come_in_the_order_of_their_clocks(pair: Pair):
    _, rounds, _ = raced(pair, SAMPLED)
    clocks = [r.clock for r in rounds]
    assert clocks == sorted(clocks)
    assert {r.lane for r in rounds[:3]} == set(LANES), "the lanes take turns"


def test_the_wall_clock_counts_prefill_and_texts_but_neither_the_other_lane_nor_the_caller(
    monkeypatch: pytest.MonkeyPatch,
):
    time = VirtualTime()
    monkeypatch.setattr("specviz.core.clock.time", time)
    target = mini(9, seed=1, spread=3.0)
    pair = pair_of(time.charge(target, TARGET), time.charge(relative(target, noise=0.5), DRAFT))
    texts = Annotator.tokens

    def slow(*given: Any) -> Any:
        time.seconds += 0.25
        return texts(*given)

    monkeypatch.setattr(Annotator, "tokens", slow)
    header, *events = race(pair, PROMPT, SAMPLED)
    assert isinstance(header, Header)
    for event in events:
        if isinstance(event, Round):
            before = sum(header.prefill_seconds[event.lane].values())
            assert event.wall == before + event.clock + 0.25 * (event.index + 1)

    again = race(pair, PROMPT, SAMPLED)
    slowly = []
    for event in again:
        time.seconds += 100.0  # time of the caller
        slowly.append(event)
    assert slowly[1:] == events


def test_one_lane_after_the_other_if_sequential(pair: Pair):
    header, rounds, _ = raced(pair, SAMPLED, mode="sequential")
    lanes = [r.lane for r in rounds]
    assert lanes == sorted(lanes, reverse=True) and set(lanes) == set(LANES)
    assert header.mode == "sequential"


def test_both_modes_emit_the_same_tokens(pair: Pair):
    runs = [raced(pair, SAMPLED, mode=mode)[1] for mode in ("interleaved", "sequential")]
    for lane in LANES:
        assert emitted_ids(of(lane, runs[0])) == emitted_ids(of(lane, runs[1]))


def test_a_clock_is_the_sum_of_its_lane_alone(pair: Pair):
    _, rounds, _ = raced(pair, SAMPLED)
    for lane in LANES:
        clock = 0.0
        for index, r in enumerate(of(lane, rounds)):
            assert r.index == index
            assert r.draft_seconds == DRAFT * len(r.drafted)
            assert r.verify_seconds == TARGET and r.overhead_seconds == 0.0
            clock += r.draft_seconds + r.verify_seconds + r.overhead_seconds
            assert r.clock == pytest.approx(clock)


def test_warm_up_counts_nowhere(pair: Pair):
    """The first pass of each model takes a million seconds."""
    header, rounds, _ = raced(pair, SAMPLED)
    assert max(r.clock for r in rounds) < 1e4
    assert max(s for times in header.prefill_seconds.values() for s in times.values()) < 1e4


def test_prefill_stands_in_the_header_by_lane_and_model(pair: Pair):
    header, _, _ = raced(pair, SAMPLED)
    assert header.prefill_seconds == {
        "speculative": {"target": TARGET, "draft": DRAFT},
        "baseline": {"target": TARGET},
    }
    single, *_ = race(pair, [3], SAMPLED)
    assert single.prefill_seconds["speculative"] == {"target": 0.0, "draft": 0.0}


def test_a_prompt_that_lanes_read_together_is_charged_to_each(monkeypatch: pytest.MonkeyPatch):
    reading = 1000.0  # seconds, far more than the engines take to start
    prefill = shared_prompt.prefill
    monkeypatch.setattr(shared_prompt, "prefill", lambda *read: reading + prefill(*read))
    sizes = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32, "initializer_range": 0.2}
    pair = pair_of(llama(60, **sizes), llama(60, seed=1, **sizes))
    prompt = [i % 59 for i in range(70)]
    settings = Settings(gamma=3, temperature=0.0, max_new_tokens=24)
    header, *events = race(pair, prompt, settings)
    assert isinstance(header, Header) and header.target["form"] == "compiled"
    seconds = header.prefill_seconds
    assert seconds["baseline"]["target"] == seconds["speculative"]["target"] > reading
    rounds = [event for event in events if isinstance(event, Round)]
    for lane in LANES:
        first = of(lane, rounds)[0]
        assert reading < first.wall < 2 * reading
    alone = emitted_ids(baseline(pair, prompt, settings))
    assert emitted_ids(of("baseline", rounds)) == emitted_ids(of("speculative", rounds)) == alone


def fake_round(lane: str, index: int, seconds: float) -> Round:
    return Round(lane, index, (), None, 0.0, seconds, 0.0, (index + 1) * seconds)  # type: ignore


def test_the_lane_that_is_behind_runs_next(monkeypatch: pytest.MonkeyPatch, pair: Pair):
    """The lane with the lower clock always runs next."""
    pace = {"speculative": 2.5, "baseline": 1.0}
    clocks: dict[str, float] = {}

    def fake(
        pair: Pair, ids: list[int], settings: Settings, lane: str, *_: Any, **__: Any
    ) -> Iterator[Any]:
        yield Prefilled({"target": 0.0}, {"target": "fake"}, 1)
        for index in range(10):
            other = next(name for name in LANES if name != lane)
            if other in clocks and lane in clocks:
                assert clocks[lane] <= clocks[other] or clocks[other] >= 10 * pace[other]
            clocks[lane] = (index + 1) * pace[lane]
            yield fake_round(lane, index, pace[lane])
        return "length"

    monkeypatch.setattr("specviz.core.race.decode", fake)
    monkeypatch.setattr("specviz.core.race.warm_up", lambda *_: None)
    _, rounds, end = raced(pair, SAMPLED)
    assert len(rounds) == 20 and end.reasons == dict.fromkeys(LANES, "length")
    assert [r.clock for r in rounds] == sorted(r.clock for r in rounds)


def texts_of_lanes(pair: Pair) -> list[list[int]]:
    _, rounds, _ = raced(pair, SAMPLED)
    return [emitted_ids(of(lane, rounds)) for lane in LANES]


@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_closing_a_race_stops_both_lanes(pair: Pair, monkeypatch: pytest.MonkeyPatch, taken: int):
    alive: list[str] = []
    kept: list[Any] = []  # references elsewhere must not replace the race's own closing
    real = specviz.core.loop.decode

    def watched(*arguments: Any, **named: Any) -> Iterator[Any]:
        alive.append(arguments[3])
        try:
            return (yield from real(*arguments, **named))
        finally:
            alive.remove(arguments[3])

    def held(*arguments: Any, **named: Any) -> Iterator[Any]:
        kept.append(watched(*arguments, **named))
        return kept[-1]

    monkeypatch.setattr("specviz.core.race.decode", held)
    before = texts_of_lanes(pair)
    events = race(pair, PROMPT, SAMPLED)
    for _ in range(taken):
        next(events)
    assert len(alive) == (2 if taken else 0)
    events.close()  # type: ignore[attr-defined]
    assert alive == []
    assert texts_of_lanes(pair) == before


def test_the_header_says_what_ran_where(pair: Pair):
    header, _, _ = raced(pair, SAMPLED)
    assert header.prompt == "w3 w1 w4" and header.prompt_ids == (3, 1, 4)
    assert header.settings == SAMPLED and header.mode == "interleaved"
    assert header.device == "CPU" and header.dtype == "float32"
    assert header.threads == torch.get_num_threads()
    assert header.versions["torch"] == torch.__version__
    assert datetime.fromisoformat(header.date).utcoffset() is not None
    count = sum(p.numel() for p in pair.target.parameters())
    for model in (header.target, header.draft):
        assert model is not None and model["parameters"] == count and model["form"]
        assert model["name"] == "MiniLM"


@pytest.mark.parametrize("settings", [Settings(gamma=0), Settings(drafter="none")])
def test_a_race_without_drafts_has_no_draft_in_its_header(pair: Pair, settings: Settings):
    header, *_, end = race(pair, PROMPT, settings)
    assert header.draft is None and end.identical


def test_a_model_from_a_folder_goes_by_the_name_of_the_folder(tmp_path: Path):
    llama(8).save_pretrained(tmp_path / "my-model")
    target = type(llama(8)).from_pretrained(tmp_path / "my-model")
    header = next(iter(race(pair_of(target, target), [1], Settings())))
    assert header.target["name"] == header.draft["name"] == "my-model"


def test_greedy_lanes_are_compared_token_by_token(pair: Pair):
    _, _, end = raced(pair, Settings(max_new_tokens=50))
    assert (end.identical, end.compared, end.divergence) == (True, 50, None)
    assert end.reasons == dict.fromkeys(LANES, "length")


@pytest.mark.parametrize("place", [0, 20, 49])
def test_the_first_other_token_is_found_wherever_it_is(pair: Pair, place: int):
    _, rounds, _ = raced(pair, Settings(max_new_tokens=50))
    alone = of("baseline", rounds)
    (token,) = alone[place].emitted
    other = replace(alone[place], last=replace(token, id=(token.id + 1) % 9))
    found = agreement_of(of("speculative", rounds), [*alone[:place], other, *alone[place + 1 :]])
    assert (found.identical, found.compared) == (False, 50)
    assert found.divergence is not None and found.divergence.index == place


def test_sampled_lanes_are_two_draws_and_not_compared(pair: Pair):
    _, _, end = raced(pair, SAMPLED)
    assert (end.identical, end.compared, end.divergence) == (None, 0, None)


def test_a_race_over_nothing_has_a_header_and_an_end(pair: Pair):
    _, rounds, end = raced(pair, Settings(max_new_tokens=0))
    assert rounds == [] and (end.identical, end.compared) == (True, 0)
    assert end.reasons == dict.fromkeys(LANES, "length")


def test_each_lane_says_why_it_ended():
    target = scripted([1, 2, 3, 4, 5], 8)
    target.generation_config.eos_token_id = 4
    *_, end = race(pair_of(target, mini(8)), [1], Settings())
    assert end.reasons == dict.fromkeys(LANES, "eos") and end.compared == 3


@pytest.mark.parametrize("scripted", [False, True])
def test_the_rule_of_the_drafts_does_not_slow_the_target_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, scripted: bool
):
    """The token rule has the fastest form on each path, and without drafts all rules are alike."""
    drafted: list[int] = []

    def counted(*arguments: Any) -> torch.Tensor:
        drafted.append(len(arguments[2]))
        return decide_on_tensors(*arguments)

    _, rounds, _ = raced(pair, SAMPLED)
    if not scripted:
        monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: counted)
    _, judged_rounds, _ = raced(pair, SAMPLED, decide=counted if scripted else None)
    wanted = [len(r.drafted) for r in of("speculative", judged_rounds)]
    assert drafted[-len(wanted) :] == wanted  # warm-ups come before
    for lane in LANES:
        assert emitted_ids(of(lane, judged_rounds)) == emitted_ids(of(lane, rounds))


def accept_all(*arguments: Any) -> torch.Tensor:
    accepted, next_id = decide_on_tensors(*arguments)
    return torch.stack([torch.full_like(accepted, len(arguments[2])), next_id])


@pytest.mark.parametrize("sharpness", [1.0, 200.0])
def test_a_divergence_is_reported_with_the_margin_of_the_target(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, sharpness: float
):
    """The divergence comes from a verifier that accepts everything, and must not be hidden."""
    with torch.no_grad():
        pair.target.head.weight *= sharpness
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: accept_all)
    _, rounds, end = raced(pair, Settings(max_new_tokens=30))
    assert end.identical is False and end.divergence is not None
    ours, theirs = (emitted_ids(of(lane, rounds)) for lane in LANES)
    index = end.divergence.index
    assert ours[:index] == theirs[:index] and ours[index] != theirs[index]
    logits = pair.target(input_ids=torch.tensor([[*PROMPT, *theirs[:index]]])).logits[0, -1]
    first, second = logits.topk(2).values.tolist()
    if first - second < 15:
        assert end.divergence.margin == pytest.approx(first - second, abs=1e-3)
    else:  # the second choice's probability underflows in fp32
        assert end.divergence.margin is not None and end.divergence.margin > 15


def test_an_unknown_mode_is_refused_at_once(pair: Pair, sentences: Sentences):
    with sentences.raises(SettingsError):
        race(pair, PROMPT, mode="both")  # type: ignore[arg-type]


def test_a_race_makes_a_trace(pair: Pair):
    trace = Trace.from_events(race(pair, PROMPT, SAMPLED))
    _, rounds, _ = raced(pair, SAMPLED)
    assert [emitted_ids(trace.lane(lane)) for lane in LANES] == [
        emitted_ids(of(lane, rounds)) for lane in LANES
    ]
    for lane in LANES:
        ids = [*PROMPT, *emitted_ids(trace.lane(lane))]
        assert "w3 w1 w4" + trace.text(lane) == pair.tokenizer.decode(ids)

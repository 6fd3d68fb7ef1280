"""Races of more than two lanes: their names, their tokens, their comparison and their recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from sentences import Sentences
from toy_models import emitted_ids, llama, pair_of, relative

from specviz import Pair, Settings, Trace, compute_metrics, race
from specviz.base.errors import ModelError, SettingsError, TraceError
from specviz.core.events import Header, Round
from specviz.core.lanes import BASELINE, LANES
from specviz.core.several import MAX_LANES, beside, parsed_lane
from specviz.runs.charts import LANE_LINES, figures
from specviz.runs.recording import read_recording
from specviz.runs.series import series
from specviz.runs.tables import tokens_csv
from specviz.runs.terminal import metric_lines
from specviz.runs.trace import digest_of
from specviz.runs.uncertainty import uncertainty

PROMPT = [3, 1, 4, 3, 1]
GREEDY = Settings(gamma=4, max_new_tokens=24)
SAMPLED = replace(GREEDY, temperature=1.0, seed=5)
NAMES = ("draft model", "n-gram", "early exit")


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(9, seed=1, hidden_size=16, head_dim=8, num_hidden_layers=3)
    return pair_of(target, relative(target, noise=0.3))


def three(settings: Settings) -> list[Settings]:
    return [replace(settings, drafter=one) for one in ("model", "ngram", "early-exit")]


@pytest.fixture(scope="module", params=[GREEDY, SAMPLED], ids=["greedy", "sampled"])
def trace(pair: Pair, request: pytest.FixtureRequest) -> Trace:
    return Trace.from_events(race(pair, PROMPT, three(request.param)))


def test_lanes_are_named_by_what_differs(trace: Trace):
    assert trace.lanes == (*NAMES, BASELINE)
    assert {r.lane for r in trace.rounds} == set(trace.lanes)
    assert trace.header.settings == trace.header.settings_of("draft model")
    assert trace.header.drafts is not None and trace.header.drafts["n-gram"] is None
    gammas = beside(GREEDY, [{"gamma": 2}, {"gamma": 2, "drafter": "ngram"}, {}])
    assert list(gammas) == [
        "draft model, gamma 4",
        "draft model, gamma 2",
        "n-gram, gamma 2",
        "draft model, gamma 4 again",
    ]
    assert list(beside(GREEDY, [])) == ["speculative"]
    assert parsed_lane("drafter=ngram, gamma=3") == {"drafter": "ngram", "gamma": 3}


def test_each_lane_writes_the_tokens_that_it_writes_in_a_race_of_two(pair: Pair, trace: Trace):
    """No cache, drafter or stream of random numbers is shared between lanes."""
    written = {lane: emitted_ids(trace.lane(lane)) for lane in trace.lanes}
    for lane, own in trace.header.lanes.items():
        two = Trace.from_events(race(pair, PROMPT, {lane: own}))
        assert two.lanes == (lane, BASELINE)
        for one in two.lanes:
            assert emitted_ids(two.lane(one)) == written[one]
            rounds = zip(two.lane(one), trace.lane(one), strict=True)
            assert all(a.drafted == b.drafted for a, b in rounds)
    usual = Trace.from_events(race(pair, PROMPT, trace.header.settings))
    assert usual.lanes == LANES
    assert emitted_ids(usual.lane(BASELINE)) == written[BASELINE]
    if not trace.header.settings.greedy:
        assert len({tuple(ids) for ids in written.values()}) == 4, "the streams are independent"


def test_the_lane_that_is_behind_steps_next_and_the_file_opens_again(trace: Trace):
    clocks = [r.clock for r in trace.rounds]
    assert clocks == sorted(clocks)
    data = {**trace.to_dict(), "digest": digest_of(trace.to_dict())}
    assert read_recording(orjson.dumps(data)) == trace


def test_greedy_lanes_are_each_compared_with_the_baseline(trace: Trace):
    assert trace.end is not None and set(trace.end.reasons) == set(trace.lanes)
    if trace.header.settings.greedy:
        assert trace.end.lanes is not None and tuple(trace.end.lanes) == NAMES
        assert all(one.identical and one.compared == 24 for one in trace.end.lanes.values())
    else:
        assert trace.end.lanes is None and trace.end.identical is None


def test_every_report_speaks_of_the_lanes_by_name(trace: Trace, sentences: Sentences):
    for lane in NAMES:
        m = compute_metrics(trace, lane)
        rounds = trace.lane(lane)
        assert m.rounds == len(rounds) and set(m.tokens) == {lane, BASELINE}
        assert m.speedup == pytest.approx(
            (m.seconds[BASELINE] / m.tokens[BASELINE]) / (m.seconds[lane] / m.tokens[lane])
        )
        assert uncertainty(trace, lane) is not None
        assert f"{lane}," in tokens_csv(trace)
    assert compute_metrics(trace) == compute_metrics(trace, NAMES[0])
    with sentences.raises(TraceError):
        compute_metrics(trace, "fast")
    printed = "\n".join(metric_lines(trace))
    best = max(NAMES, key=lambda lane: compute_metrics(trace, lane).speedup or 0.0)
    assert f"best: {best}, {compute_metrics(trace, best).speedup:.2f} times" in printed
    drawn = series(trace.rounds, trace.lanes)
    assert [len(drawn[name]) for name in ("rates", "tau", "positions")] == [3, 3, 3]


def test_no_two_lanes_look_alike(trace: Trace):
    assert len(set(LANE_LINES)) == len(LANE_LINES) == MAX_LANES
    drawn = figures(trace)["tokens"].data
    assert [line.name for line in drawn] == [*NAMES, "target alone"]
    assert len({(line.line.color, line.line.dash) for line in drawn}) == len(drawn)
    alone = figures(trace, lane=NAMES[1])
    assert [line.name for line in alone["tokens"].data] == [NAMES[1], "target alone"]
    assert [line.name for line in alone["rates"].data] == ["α", "efficiency"]


@pytest.mark.parametrize(
    "lanes",
    [
        {"a": GREEDY, "b": SAMPLED},
        {"a": GREEDY, BASELINE: GREEDY},
        {"<b>": GREEDY},
        [],
        [GREEDY] * (MAX_LANES + 1),
        {"a": None},
    ],
)
def test_lanes_that_cannot_race_get_a_sentence(pair: Pair, lanes: Any, sentences: Sentences):
    with sentences.raises(SettingsError):
        race(pair, PROMPT, lanes)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 1.0}, {"name": "draft model"}, {"name": "x" * 41}, {"gamma": 99}],
    ids=repr,
)
def test_a_change_that_cannot_be_gets_a_sentence(change: dict[str, Any], sentences: Sentences):
    with sentences.raises(SettingsError):
        beside(GREEDY, [change])


def test_a_lane_without_a_setting_gets_a_sentence(sentences: Sentences):
    with sentences.raises(SettingsError):
        parsed_lane("ngram")


def test_a_lane_that_fails_keeps_the_rounds_of_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    import specviz.core.race as module

    real = module.decode

    def failing(*arguments: Any, **options: Any) -> Iterator[Any]:
        events = real(*arguments, **options)
        if arguments[3] != "n-gram":
            return (yield from events)
        for number, event in enumerate(events):
            if number == 3:
                raise ModelError("it broke.")
            yield event
        return "length"

    monkeypatch.setattr(module, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(module, "decode", failing)
    seen: list[Any] = []
    with pytest.raises(ModelError, match="it broke"):
        for event in race(pair, PROMPT, three(GREEDY)):
            seen.append(event)
    assert isinstance(seen[0], Header)
    by_lane = {lane: [r for r in seen if isinstance(r, Round) and r.lane == lane] for lane in NAMES}
    assert len(by_lane["n-gram"]) == 2 and by_lane["draft model"] and by_lane["early exit"]


def with_other(header: str, value: Any) -> Any:
    return lambda data: data["header"].update({header: value})


FORGED = {
    "a lane of rounds that is not there": lambda d: d["rounds"][4].update(lane="fourth"),
    "another temperature": lambda d: d["header"]["lanes"]["n-gram"].update(temperature=0.5),
    "markup as a name": lambda d: d["header"]["lanes"].update(
        {"<b>": d["header"]["lanes"]["n-gram"]}
    ),
    "too many": lambda d: d["header"].update(
        lanes={f"lane {i}": d["header"]["lanes"]["n-gram"] for i in range(10)}
    ),
    "a baseline with drafts": lambda d: d["header"]["lanes"].update(
        baseline=d["header"]["lanes"]["n-gram"]
    ),
    "no prefill of a lane": lambda d: d["header"]["prefill_seconds"].pop("n-gram"),
    "no lanes": with_other("lanes", {}),
    "a gamma that a lane exceeds": lambda d: d["header"]["lanes"]["early exit"].update(gamma=1),
    "no reason": lambda d: d["end"]["reasons"].pop("early exit"),
    "a comparison that is wrong": lambda d: d["end"]["lanes"]["n-gram"].update(compared=3),
}


@pytest.fixture(scope="module")
def values(pair: Pair) -> bytes:
    return orjson.dumps(Trace.from_events(race(pair, PROMPT, three(GREEDY))).to_dict())


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_recording_of_several_lanes_is_refused(
    values: bytes, name: str, sentences: Sentences
):
    data = orjson.loads(values)
    FORGED[name](data)
    with sentences.raises(TraceError):
        read_recording(orjson.dumps(data))

"""A watched server that speculates by itself: its rounds as far as it reports them, and nothing
invented.

The servers replay recorded streams of vLLM 0.32.0 and of llama.cpp's server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from filed import tokens
from replaying_server import Replay, replay_of, replaying
from sentences import Sentences

from specviz import Settings, SpecvizError, Trace, compute_metrics, load_pair, race, speculate
from specviz.base.errors import PairError, PromptError, ServerError, SettingsError, TraceError
from specviz.base.variables import REMOTE
from specviz.core.events import Event, Round
from specviz.core.lanes import BASELINE, SPECULATIVE
from specviz.page.choices import pair_choices
from specviz.pairs.doctor import examine_pair
from specviz.pairs.spec import Address, ServedSpec, WatchedSpec, parse_pair
from specviz.runs.recording import read_recording
from specviz.runs.series import series
from specviz.runs.tables import tokens_csv
from specviz.runs.terminal import event_line, metric_lines
from specviz.sides.watched.engines import spread
from specviz.sides.watched.steps import Counts, Step, StreamedToken, reconciled

TWELVE = Settings(max_new_tokens=12)
TEXT = ", he was a man of a man who had been in"
VLLM_COUNTS = (3, 15, 8)  # steps, drafted, accepted of the recorded stream


@pytest.fixture
def vllm() -> Iterator[Replay]:
    with replaying(replay_of("vllm", counted=VLLM_COUNTS)) as running:
        yield running


@pytest.fixture
def alone() -> Iterator[Replay]:
    with replaying(replay_of("vllm", "streamed")) as running:
        yield running


def watched(*servers: Replay, settings: Settings = TWELVE) -> list[Event]:
    name = " | ".join(f"{one.url}#target" for one in servers)
    return [*race(load_pair(name), "Once upon a time", settings)]


TURNS = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Once upon"},
]


def test_a_server_puts_turns_into_its_own_template(vllm: Replay, sentences: Sentences) -> None:
    """vLLM returns the ids of the turns, which it then continues; llama.cpp returns their text."""
    pair = load_pair(f"{vllm.url}#target")
    header = checked([*race(pair, TURNS, TWELVE)]).header
    assert vllm.asked[-1]["prompt"] == [47, 1398, 628] == list(header.prompt_ids)
    assert header.prompt == "Once upon a time" and header.question == "Once upon"
    assert [message.content for message in header.messages or ()] == ["Be kind.", "Once upon"]
    with replaying(replay_of("llama.cpp")) as llama:
        llama.answers["/apply-template"] = {"prompt": "<|user|>Once upon"}
        header = checked([*race(load_pair(f"{llama.url}#target"), TURNS, TWELVE)]).header
        assert llama.asked[-1]["prompt"] == header.prompt == "<|user|>Once upon"
        del llama.answers["/apply-template"]
        with sentences.raises(ServerError):
            list(race(load_pair(f"{llama.url}#target"), TURNS, TWELVE))
    with sentences.raises(PromptError):
        list(race(pair, TURNS[:1], TWELVE))


def outcomes(r: Round) -> str:
    own = [t.outcome for t in r.emitted if t.outcome != "accepted"]
    return " ".join([*(t.outcome for t in r.drafted), "|", *own])


def checked(events: list[Event]) -> Trace:
    """Make the trace and check that it is equal when it is read back from a file."""
    trace = Trace.from_events(events)
    again = read_recording(json.dumps(trace.to_dict()).encode())
    assert again == trace
    return trace


def test_what_vllm_told_at_its_end_takes_the_place_of_its_chunks(
    vllm: Replay, alone: Replay, sentences: Sentences
) -> None:
    events = watched(vllm, alone)
    live = [e for e in events if isinstance(e, Round) and e.lane == SPECULATIVE]
    trace = checked(events)
    first = live[: len(live) // 2]
    told = live[len(live) // 2 :]
    assert [outcomes(r) for r in first] == [
        "| bonus",
        "| untold",
        "accepted accepted accepted accepted accepted | untold",
        "accepted accepted accepted | untold",
    ]
    assert [outcomes(r) for r in told] == [
        "| bonus",
        "rejected ignored ignored ignored ignored | corrected",
        "accepted accepted accepted accepted accepted | bonus",
        "accepted accepted accepted rejected ignored | corrected",
    ]
    assert trace.lane(SPECULATIVE) == told and [r.clock for r in told] == [r.clock for r in first]
    assert trace.text(SPECULATIVE) == trace.text(BASELINE) == TEXT
    assert trace.header.source == "vLLM 0.32.0" and trace.header.prompt_ids == (47, 1398, 628)
    unseen = [t for r in told for t in r.drafted if t.outcome in ("rejected", "ignored")]
    assert all(
        "id" not in d for d in json.loads(json.dumps(trace.to_dict()))["rounds"][1]["drafted"]
    )
    assert len(unseen) == 7 and {(t.text, t.p, t.q, t.u) for t in unseen} == {
        ("", None, None, None)
    }
    m = compute_metrics(trace)
    assert (m.alpha, m.tau, m.c, m.beta) == (
        pytest.approx(8 / 10),
        pytest.approx(11 / 3),
        None,
        None,
    )
    seconds = {lane: trace.lane(lane)[-1].clock for lane in trace.lanes}
    # The first token came from the prefill, so the time is that of 11 tokens.
    assert m.tokens_per_second[BASELINE] == pytest.approx(11 / seconds[BASELINE])
    assert m.speedup == pytest.approx(seconds[BASELINE] / seconds[SPECULATIVE])
    assert trace.end is not None and trace.end.identical and trace.end.compared == 12
    assert trace.end.counted == {"steps": 3, "drafted": 15, "accepted": 8}
    for line in metric_lines(trace):
        sentences(line, measured="counters" not in line)
    assert (event_line(told[1], color=False) or "").endswith("✗[-?-](?)(?)(?)(?)↳ he")
    assert len(series(trace.rounds)["parts"]) == 1 and ",rejected,,,," in tokens_csv(trace)


def test_without_details_a_chunk_is_a_step_and_alpha_is_unknown(
    vllm: Replay, sentences: Sentences
) -> None:
    vllm.chunks = [c for c in vllm.chunks if isinstance(c, str) or c["choices"]]
    vllm.counted = (4, 20, 9)  # somebody else used the server too
    trace = checked(watched(vllm))
    assert trace.lanes == (SPECULATIVE,) and trace.text(SPECULATIVE) == TEXT
    m = compute_metrics(trace)
    assert m.alpha is m.efficiency is m.speedup is m.tau_predicted is None
    assert m.counts["untold"] == 3 and m.tau == pytest.approx(11 / 3)
    assert series(trace.rounds)["rates"][0]["y"] == [None, None, None]
    for line in metric_lines(trace):
        sentences(line, measured="counters" not in line)


def test_llama_cpps_steps_are_told_as_they_come() -> None:
    with replaying(replay_of("llama.cpp")) as server:
        events = watched(server)
        trace = checked(events)
        assert len([e for e in events if isinstance(e, Round)]) == len(trace.rounds) == 4
        assert [len(r.emitted) for r in trace.rounds] == [1, 1, 6, 4]
        assert (
            outcomes(trace.rounds[1]).startswith("rejected ignored")
            and trace.text(SPECULATIVE) == TEXT
        )
        drafted = sum(len(r.drafted) for r in trace.rounds)
        last = [c for c in server.chunks if isinstance(c, dict) and "draft_n" in c["timings"]][-1]
        assert drafted == last["timings"]["draft_n"]
        assert trace.header.source is not None and trace.header.source.startswith("llama.cpp")
        assert server.asked[-1]["samplers"] == ["temperature", "top_k", "top_p"]
        with pytest.raises(SettingsError, match="smaller seed"):
            watched(server, settings=Settings(max_new_tokens=12, seed=2**32))


def chunks_of(*lengths: int) -> list[Step]:
    return [Step([StreamedToken(1, "x", float(i))] * length) for i, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "drafted", "accepted", "expected"),
    [
        ((1, 4, 1), (5, 5), (3, 0), [1, 4, 1]),
        ((1, 5), (5, 5), (3, 0), [1, 4, 1]),  # two steps in one chunk
        ((1, 4, 2), (5, 5), (3, 4), [1, 4, 2]),  # cut by the end
        ((1, 1, 3, 1), (2,), (2,), [1, 1, 3, 1]),  # n-grams matched once
        ((1, 1, 1, 3), (2, 2), (0, 2), None),  # rejected drafts of either step
        ((1, 4, 1), (5, 5), (2, 0), None),  # the sum does not match the text
        ((1, 4, 1), (2, 5), (3, 0), None),  # more accepted than drafted
        ((1, 4), (5, 5), (3,), None),
        ((1,), (5,), (3,), None),
    ],
)
def test_counts_are_held_to_the_text(
    lengths: tuple[int, ...], drafted: Any, accepted: Any, expected: list[int] | None
) -> None:
    steps = reconciled(chunks_of(*lengths), Counts(drafted, accepted))
    assert (steps and [len(step.tokens) for step in steps]) == expected
    if steps:
        assert sum(step.drafted or 0 for step in steps) == sum(drafted)


def test_texts_of_tokens_make_up_the_servers_text() -> None:
    known = {1: " a", 2: "b", 3: " st", 4: "op"}
    assert spread([1, 2], " ab", "", known) == ([" a", "b"], "")
    assert spread([9, 9], "é", "", known) == (["", "é"], "")  # two halves of a character
    texts, lag = spread([3, 4], "", "", known)  # held back: it may become a stop string
    assert (texts, lag) == ([" st", "op"], " stop")
    assert spread([1], " stop a", lag, known) == ([" a"], "")


def broken(chunk: Any) -> dict[str, Any]:
    return {"chunks": [*replay_of("vllm").chunks[:2], chunk]}


FAULTS: dict[str, dict[str, Any]] = {
    "an error": broken({"error": {"message": "it broke"}}),
    "an early end": {"chunks": replay_of("vllm").chunks[:2]},
    "no JSON": broken("{not json"),
    "no token ids": broken({"choices": [{"text": "x", "finish_reason": None}]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_sentence_and_keeps_the_rounds(
    vllm: Replay, fault: str, sentences: Sentences
) -> None:
    pair = load_pair(f"{vllm.url}#target")
    kept = []
    whole = vllm.chunks
    with sentences.raises(ServerError):
        for event in race(pair, "Once upon a time", TWELVE):
            kept.append(event)  # the header comes after the warm-up
            vllm.chunks = FAULTS[fault]["chunks"]
    assert len(checked(kept).rounds) == 2
    vllm.chunks = whole
    events = race(pair, "Once upon a time", TWELVE)
    next(events), next(events)
    end = events.send(True)  # type: ignore[attr-defined]
    assert end.reasons == {SPECULATIVE: "stopped"}


def test_what_a_watched_server_cannot_do(vllm: Replay, alone: Replay, sentences: Sentences) -> None:
    with sentences.raises(PairError):
        load_pair(f"{alone.url}#target | {vllm.url}#target")
    pair = load_pair(f"{vllm.url}#target")
    with sentences.raises(SpecvizError):
        [*speculate(pair, "Once", TWELVE)]
    with sentences.raises(SettingsError):
        [*race(pair, "Once", Settings(chat="on"))]
    with sentences.raises(SettingsError):
        race(pair, "Once", {"a": TWELVE, "b": TWELVE})
    [*race(pair, [47, 1398], Settings(max_new_tokens=12, temperature=0.5, top_k=3, stop=("x",)))]
    assert vllm.asked[-1]["prompt"] == [47, 1398] and vllm.asked[-1]["top_k"] == 3
    assert vllm.asked[-1]["stop"] == ["x"] and vllm.asked[-1]["temperature"] == 0.5
    said = {one.topic: one for one in examine_pair(parse_pair(f"{vllm.url}#target")).findings}
    assert said["steps"].level == "good" and said["baseline"].level == "warning"


def test_names_of_watched_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    one = "http://10.0.0.1:8000/v1#m"
    other = "http://10.0.0.2/v1#n"
    assert parse_pair(f"{one} | {other}") == WatchedSpec(
        Address("http://10.0.0.1:8000/v1", "m"), Address("http://10.0.0.2/v1", "n")
    )
    assert parse_pair(f"{one}+draft") == ServedSpec(
        Address("http://10.0.0.1:8000/v1", "m"), "draft"
    )
    with pytest.raises(PairError, match="http://OTHER"):
        parse_pair(f"{one} | http://10.0.0.2/v1")
    for name in (one, f"{one} | {other}", f"{one}+draft"):
        monkeypatch.setenv("SPECVIZ_REMOTE", name)
        assert REMOTE.read() == name
        assert "10.0.0" not in str(pair_choices("builtin", None))


def forged(trace: Trace, change: Any) -> bytes:
    data = deepcopy(trace.to_dict())
    change(data)
    return json.dumps(data).encode()


def first(data: Any, outcome: str) -> Any:
    shown = (t for r in data["rounds"] for t in tokens(r))
    return next(t for t in shown if t["outcome"] == outcome)


FORGERIES: dict[str, Any] = {
    "numbers": lambda d: first(d, "corrected").update(p=0.5),
    "more accepted than drafted": lambda d: d["end"]["counted"].update(accepted=99),
    "another last token": lambda d: first(d, "corrected").update(outcome="bonus"),
    "parts that do not add up": lambda d: d["rounds"][1].update(draft_seconds=0.001),
    "another clock": lambda d: d["rounds"][0].update(clock=0.5),
    "drafts of a lane without any": lambda d: [d["header"].pop("source"), d["header"].update(
        threads=1, prefill_seconds={lane: {"target": 1.0} for lane in d["end"]["reasons"]},
        versions={**d["header"]["versions"], "torch": "2", "transformers": "5"})],
}  # fmt: skip


def test_what_no_server_tells_is_refused(vllm: Replay, alone: Replay, sentences: Sentences) -> None:
    trace = checked(watched(vllm, alone))
    for name, change in FORGERIES.items():
        with sentences.raises(TraceError, measured=name == "parts that do not add up"):
            read_recording(forged(trace, change))

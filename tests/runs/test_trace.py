"""Traces: the events of a race, saved and read again without loss."""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filed import tokens
from hypothesis import given
from hypothesis import strategies as st
from sentences import Sentences
from toy_models import examples, llama, metaspace, mini, pair_of, relative, scripted, words

from specviz import End, Pair, Round, Settings, SpecvizError, Token, Trace, compute_metrics, race
from specviz.base.errors import TraceError
from specviz.core.events import OUTCOMES, Agreement, Choice, Divergence, Header
from specviz.runs.recording import read_recording
from specviz.runs.schema import (
    AgreementJson,
    ChoiceJson,
    DivergenceJson,
    EndJson,
    HeaderJson,
    RoundJson,
    TokenJson,
)
from specviz.runs.trace import SCHEMA, event_dict


def random_pair(vocab: int = 9, **fields: Any) -> Pair:
    target = mini(vocab, seed=1, spread=3.0)
    return pair_of(target, relative(target, noise=0.5), **fields)


def ended_pair() -> Pair:
    target = scripted([1, 2, 3, 4, 5], 9)
    target.generation_config.eos_token_id = 4
    return pair_of(target, scripted([1, 2, 3, 4, 5], 9))


def short_pair() -> Pair:
    return pair_of(*(llama(9, seed=seed, max_position_embeddings=12) for seed in (0, 1)))


def bytes_pair() -> Pair:
    return random_pair(len(metaspace()), tokenizer=metaspace())


# Races that cover every reason to end.
RACES: dict[str, tuple[Any, Settings]] = {
    "greedy": (random_pair, Settings(max_new_tokens=20)),
    "sampled": (random_pair, Settings(gamma=3, temperature=1.0, max_new_tokens=20)),
    "truncated": (random_pair, Settings(temperature=0.8, top_k=4, top_p=0.9, max_new_tokens=20)),
    "stopped": (random_pair, Settings(temperature=1.0, stop=("w7", "4 w"), max_new_tokens=90)),
    "end of text": (ended_pair, Settings()),
    "end of the context": (short_pair, Settings(temperature=1.5)),
    "no drafts": (random_pair, Settings(gamma=0, max_new_tokens=4)),
    "nothing": (random_pair, Settings(max_new_tokens=0)),
    "stray bytes": (bytes_pair, Settings(temperature=1.0, max_new_tokens=20)),
}


@cache
def traced(kind: str, mode: Any = "interleaved") -> Trace:
    make, settings = RACES[kind]
    return Trace.from_events(race(make(), [1, 3], settings, mode=mode))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return traced("sampled")


@pytest.mark.parametrize("mode", ["interleaved", "sequential"])
@pytest.mark.parametrize("kind", RACES)
def test_a_trace_survives_json(kind: str, mode: str):
    made = traced(kind, mode)
    read = Trace.from_dict(json.loads(json.dumps(made.to_dict())))
    assert read == made and read.to_dict() == made.to_dict()
    assert compute_metrics(read) == compute_metrics(made)


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
@pytest.mark.parametrize("kind", RACES)
def test_a_trace_survives_a_file(kind: str, name: str, tmp_path: Path):
    made = traced(kind)
    made.save(tmp_path / name)
    made.save(str(tmp_path / "again.json.gz"))
    assert Trace.load(tmp_path / name) == made == Trace.load(str(tmp_path / "again.json.gz"))
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


@pytest.mark.parametrize("mode", ["interleaved", "sequential"])
@pytest.mark.parametrize("kind", RACES)
def test_every_real_race_passes_the_checks_of_recordings(kind: str, mode: str, tmp_path: Path):
    made = traced(kind, mode)
    made.save(tmp_path / "run.json.gz")
    assert read_recording((tmp_path / "run.json.gz").read_bytes()) == made


def test_equal_traces_make_equal_files(trace: Trace, tmp_path: Path):
    """A recording then changes in version control only if its run did."""
    for name in ("one.json.gz", "two.json.gz"):
        trace.save(tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.json.gz", "two.json.gz"))
    assert one == two


def test_the_json_has_the_documented_form(trace: Trace):
    data = trace.to_dict()
    assert list(data) == ["schema", "header", "rounds", "end"] and data["schema"] == SCHEMA == 2
    assert data["header"]["lanes"]["speculative"]["gamma"] == 3
    first = next(r for r in data["rounds"] if r["lane"] == "speculative")
    assert {"lane", "index", "drafted", "last", "draft_seconds", "verify_seconds"} <= set(first)
    assert {"overhead_seconds", "clock"} <= set(first)
    assert {"id", "text", "outcome", "p", "q", "u", "beta", "top_p", "top_q"} <= set(
        first["drafted"][0]
    )
    assert data["end"]["reasons"] == {"speculative": "length", "baseline": "length"}


def test_events_leave_out_what_is_empty(trace: Trace):
    for r in trace.rounds:
        for token in tokens(event_dict(r)):
            assert None not in token.values() and () not in token.values()
            assert [] not in token.values()


def test_a_trace_without_its_end_is_a_run_that_was_cut_short(trace: Trace):
    events = [trace.header, *trace.rounds[:4]]
    cut = Trace.from_events(events)
    assert cut.end is None and Trace.from_dict(cut.to_dict()) == cut


@pytest.mark.parametrize("skipped", [1, 2])
def test_events_without_a_header_are_rejected(trace: Trace, skipped: int, sentences: Sentences):
    events = [trace.header, *trace.rounds, trace.end]
    for headless in (events[skipped:], []):
        with sentences.raises(TraceError):
            Trace.from_events(headless)


def test_a_lane_has_its_own_rounds_and_text(trace: Trace):
    for lane in ("speculative", "baseline"):
        assert all(r.lane == lane for r in trace.lane(lane))
        words_of = trace.text(lane).split()
        assert len(words_of) == sum(len(r.emitted) for r in trace.lane(lane)) == 20


def is_one_sentence(error: SpecvizError) -> bool:
    text = str(error)
    return "\n" not in text and text.endswith(".") and len(text) < 400


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"5",
        b'"text"',
        b"{}",
        b'{"schema": 99}',
        b'{"schema": "1"}',
        b'{"schema": 1}',
        b'{"schema": 1, "header": 5, "rounds": [], "end": null}',
        b'{"schema": 1, "header": {}, "rounds": 7, "end": null}',
        b'{"schema": 2}',
        b'{"schema": 2, "header": 5, "rounds": [], "end": null}',
        b'{"schema": 2, "header": {}, "rounds": 7, "end": null}',
        b"\x1f\x8b",
        b"\x1f\x8b\x08\x00broken",
        gzip.compress(b"not json", mtime=0),
        gzip.compress(b"{}", mtime=0)[:-3],
        gzip.compress(b"{}" * 400, mtime=0)[:12] + b"\xff" * 30,
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:24]),
)
def test_a_file_that_is_not_a_trace_is_rejected_with_a_sentence(content: bytes, tmp_path: Path):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(TraceError) as caught:
        Trace.load(tmp_path / "run.json")
    assert is_one_sentence(caught.value)


def test_a_file_that_is_missing_or_cannot_be_written_is_named(trace: Trace, tmp_path: Path):
    with pytest.raises(TraceError, match=r"nowhere\.json cannot be read") as caught:
        Trace.load(tmp_path / "nowhere.json")
    assert is_one_sentence(caught.value)
    with pytest.raises(TraceError, match=r"run\.json cannot be written") as caught:
        trace.save(tmp_path / "nowhere" / "run.json")
    assert is_one_sentence(caught.value)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(p for key, item in inner for p in places(item, (*path, key)))]


@cache
def short_run() -> Trace:
    """A short run: with fewer values, a larger share of them is damaged."""
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=6, seed=6)
    return Trace.from_events(race(random_pair(), [1, 3], settings))


DAMAGED = json.loads(json.dumps(short_run().to_dict()))
PLACES = [path for path in places(DAMAGED) if path]
JUNK = st.sampled_from(
    [None, True, -1, 7, 10**30, 0.5, float("nan"), float("inf"), "", "junk", [], [1], {}, {"a": 1}]
)


@examples(300)
@given(st.sampled_from(PLACES), JUNK | st.just("lost"))
def test_one_damaged_value_is_rejected_with_a_sentence_or_harmless(
    path: tuple[Any, ...], junk: Any
):
    data = copy.deepcopy(DAMAGED)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    if junk == "lost":
        del holder[path[-1]]
    else:
        holder[path[-1]] = junk
    try:
        read = Trace.from_dict(data)
    except SpecvizError as error:
        assert isinstance(error, TraceError) and is_one_sentence(error)
    else:
        compute_metrics(read)
        assert read.end is None or isinstance(read.end, End)


def test_the_run_to_damage_has_tokens_of_every_outcome():
    outcomes = {t.outcome for r in short_run().rounds for t in (*r.drafted, *r.emitted)}
    assert outcomes == set(OUTCOMES)


@pytest.mark.parametrize(
    ("event", "in_a_file"),
    [
        (Choice, ChoiceJson),
        (Token, TokenJson),
        (Round, RoundJson),
        (Header, HeaderJson),
        (Divergence, DivergenceJson),
        (Agreement, AgreementJson),
        (End, EndJson),
    ],
)
def test_a_recording_may_have_every_field_of_an_event(event: Any, in_a_file: Any):
    assert [field.name for field in fields(event)] == list(in_a_file.__annotations__)


def test_words_are_kept_as_they_are(tmp_path: Path):
    """Prompt and text contain quotes, tags, line ends and other alphabets."""
    pair = random_pair(5, tokenizer=words(5))
    strange = '<img src=x> "&" \u2028 日本 🙂 \\ {{7*7}}'
    header, *rest = race(pair, [1], Settings(max_new_tokens=2))
    made = Trace.from_events([replace(header, prompt=strange), *rest])
    made.save(tmp_path / "run.json.gz")
    assert Trace.load(tmp_path / "run.json.gz").header.prompt == strange

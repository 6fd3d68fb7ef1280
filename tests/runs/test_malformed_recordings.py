"""An invalid recording is rejected with exactly one sentence."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from malformed_recordings import DAMAGED_FILES, INVALID, INVALID_GREEDY
from sentences import Sentences
from toy_recordings import GREEDY, SAMPLED, recorded, saved, sentence, values

from specviz import Trace, compute_metrics
from specviz.base.errors import TraceError
from specviz.runs.recording import MAX_PACKED, MAX_VALUES, read_recording
from specviz.runs.tables import rounds_csv, tokens_csv

MEASURED = {
    "clock goes back",
    "clock off",
    "a part too long",
    "rejected against the draw",
    "accepted against the draw",
}
BY_TURNS = {"rounds swapped", "unknown lane", "past the length"}
"""The position of the fault depends on which lane was faster."""


def test_there_are_more_than_eighty_invalid_files():
    assert len(INVALID) + len(INVALID_GREEDY) + len(DAMAGED_FILES) > 80


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_recording_gets_its_sentence(name: str, sentences: Sentences):
    data = values(SAMPLED)
    INVALID[name](data)
    said = sentence(orjson.dumps(data))
    if name in BY_TURNS:
        said = re.sub(r"(round|entry) \d+ of the (\w+ lane|rounds)", "a round", said)
    sentences(said, measured=name in MEASURED)


@pytest.mark.parametrize("name", INVALID_GREEDY)
def test_an_invalid_greedy_recording_gets_its_sentence(name: str, sentences: Sentences):
    data = values(GREEDY)
    INVALID_GREEDY[name](data)
    sentences(sentence(orjson.dumps(data)))


@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_a_damaged_file_gets_its_sentence(name: str, tmp_path: Path, sentences: Sentences):
    damaged = DAMAGED_FILES[name](saved(recorded(SAMPLED), tmp_path))
    sentences(sentence(damaged))


def test_names_that_cannot_be_printed_make_no_long_sentence(sentences: Sentences):
    odd = "\x1f<\U00016af6" * 13
    data = values(SAMPLED)
    data["header"]["lanes"][odd] = {}
    sentences(sentence(orjson.dumps(data)))
    data = values(SAMPLED)
    data["header"]["versions"][odd] = odd * 100
    sentences(sentence(orjson.dumps(data)))


def test_a_sentence_says_where(sentences: Sentences):
    data = values(SAMPLED)
    r = next(r for r in data["rounds"] if r["index"] == 3 and len(r["drafted"]) > 1)
    r["drafted"][1]["q"] = "much"
    sentences(sentence(orjson.dumps(data)))


def test_a_file_may_be_no_larger_than_the_limit(sentences: Sentences):
    sentences(sentence(bytes(MAX_PACKED + 1)))


def test_a_zip_bomb_is_never_unpacked(sentences: Sentences):
    bomb = gzip.compress(bytes(64 * 2**20), 1)
    tracemalloc.start()
    try:
        sentences(sentence(bomb, max_unpacked=2**20))
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


# Random files


def tiny() -> bytes:
    """The JSON of a short run."""
    return orjson.dumps(recorded(replace(SAMPLED, max_new_tokens=4, gamma=2)).to_dict())


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, -1, 0.5, "", "accepted", "baseline", "__class__", "<b>\u202e\x00"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def holders(value: Any) -> list[Any]:
    """All non-empty lists and objects inside a JSON value."""
    if not isinstance(value, (dict, list)) or not value:
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(found for item in inner for found in holders(item))]


def mutate(data: st.DataObject, tree: Any) -> None:
    holder = data.draw(st.sampled_from(holders(tree)))
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    key = data.draw(st.sampled_from(keys))
    match data.draw(st.sampled_from(["replace", "delete", "copy", "add"])):
        case "replace":
            holder[key] = data.draw(JSON)
        case "delete":
            del holder[key]
        case "copy":
            holder[key] = holder[data.draw(st.sampled_from(keys))]
        case "add" if isinstance(holder, list):
            holder.append(data.draw(JSON))
        case "add":
            holder[data.draw(st.text(max_size=50))] = data.draw(JSON)


def is_accepted_or_rejected_with_a_sentence(raw: bytes) -> None:
    try:
        trace = read_recording(raw)
    except TraceError:
        sentence(raw)
    else:
        assert Trace.from_dict(trace.to_dict()) == trace
        # The functions that read an accepted trace must not fail.
        compute_metrics(trace), tokens_csv(trace), rounds_csv(trace)


@given(st.data())
@budget(max_examples=150, deadline=None, derandomize=True)
def test_any_changed_values_give_a_trace_or_a_sentence(data: st.DataObject):
    tree = orjson.loads(tiny())
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(data, tree)
    is_accepted_or_rejected_with_a_sentence(orjson.dumps(tree))


@given(JSON)
@budget(max_examples=50, deadline=None, derandomize=True)
def test_any_json_gives_a_trace_or_a_sentence(value: Any):
    is_accepted_or_rejected_with_a_sentence(orjson.dumps(value))


@given(st.binary(max_size=200), st.booleans(), st.data())
@budget(max_examples=60, deadline=None, derandomize=True)
def test_any_bytes_give_a_trace_or_a_sentence(noise: bytes, packed: bool, data: st.DataObject):
    whole = tiny()
    at = data.draw(st.integers(0, len(whole)))
    raw = whole[:at] + noise + whole[at + len(noise) :]
    is_accepted_or_rejected_with_a_sentence(gzip.compress(raw, 1) if packed else raw)
    is_accepted_or_rejected_with_a_sentence(b"\x1f\x8b\x08" + noise)


def test_values_are_counted_before_they_are_read(sentences: Sentences):
    """Two bytes of a file become a value of a hundred bytes in memory."""
    sentences(sentence(gzip.compress(b"[" + b"1," * MAX_VALUES + b"1,1]")))


def test_a_great_many_faults_are_one_sentence(sentences: Sentences) -> None:
    """pydantic would report each fault, and a file has room for millions."""
    data = values(SAMPLED)
    data["header"] |= {f"field {number}": number for number in range(5000)}
    sentences(sentence(orjson.dumps(data)))
    data = values(SAMPLED)
    data["header"]["versions"] |= {f"package {number}": "1" for number in range(50)}
    sentences(sentence(orjson.dumps(data)))

"""Reruns of recordings: an honest recording is recognised as the same run, an edited one is not."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from filed import tokens
from forged_recordings import EDITED, edited, path_of
from sentences import Sentences
from toy_models import llama, pair_of, relative
from toy_recordings import (
    GREEDY,
    SAMPLED,
    beginning,
    recorded,
    rerun_beginning,
    saved,
    toy_pair,
)

from specviz import Pair, Trace, load_pair
from specviz.__main__ import main
from specviz.base.environment import ASSETS
from specviz.base.errors import TraceError
from specviz.core.events import Header
from specviz.core.lanes import SPECULATIVE
from specviz.runs.cli import pair_named
from specviz.runs.recording import read_recording
from specviz.runs.rerun import Rerun, compared, rerun, rerun_events
from specviz.runs.trace import SCHEMA, digest_of


def is_builtin(path: Path) -> bool:
    """Check whether a recording is of the built-in pair; tests/pairs/test_gguf.py reruns one of
    another pair."""
    target = orjson.loads(gzip.decompress(path.read_bytes()))["header"]["target"]
    return bool(target["name"] == "target")


FIRST = 5  # rounds of each lane: enough to expose most edits of settings
BEGINNING = 12  # rounds of each lane of the page's recordings; those of tests run in full

RECORDINGS = [
    path for path in sorted((ASSETS / "recordings").glob("*.json.gz")) if is_builtin(path)
]


@cache
def builtin() -> Pair:
    return load_pair("builtin")


@cache
def usual_header() -> dict[str, Any]:
    """The header of an unedited recording."""
    header: dict[str, Any] = read_recording(RECORDINGS[0].read_bytes()).to_dict()["header"]
    return header


@cache
def again(header: bytes, rounds: int | None = None) -> Trace:
    """Rerun the built-in pair, once for all edits that do not change the settings. rounds: the
    number of rounds of each lane, None for all."""
    given = {"schema": SCHEMA, "header": orjson.loads(header), "rounds": [], "end": None}
    asked = Trace.from_dict(given).header
    if rounds is None:
        return Trace.from_events(rerun_events(asked, builtin()))
    return rerun_beginning(asked, builtin(), rounds)


@cache
def read(name: str) -> Trace | None:
    """An edited recording, or None if it is refused."""
    try:
        return read_recording(edited(name))
    except TraceError:
        return None


@cache
def honest(path: Path) -> Rerun:
    """The rerun of an unedited recording."""
    return checked(read_recording(path.read_bytes()))


def header_for(trace: Trace) -> bytes:
    """The header of a rerun: the fields that the run depends on are the recording's."""
    asked = Trace(trace.header).to_dict()["header"]
    same = ("prompt_ids", "lanes", "mode")
    return orjson.dumps({**usual_header(), **{name: asked[name] for name in same}})


def checked(trace: Trace) -> Rerun:
    return compared(trace, again(header_for(trace)))


def is_told_early(trace: Trace, original: Rerun) -> bool:
    """Check whether the first rounds alone differ from those of a rerun, which can then stop.
    original: the rerun of the recording before its edit."""
    header = header_for(trace)
    if header == header_for(original.recorded):
        run = beginning(original.again, FIRST)
    else:
        run = again(header, FIRST)
    return not compared(beginning(trace, FIRST), run).same


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_a_recording_of_the_page_is_the_same_run_or_says_what_is_different_here(path: Path):
    trace = beginning(read_recording(path.read_bytes()), BEGINNING)
    found = compared(trace, again(header_for(trace), BEGINNING))
    assert found.same or found.elsewhere, found.summary


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_recording_is_refused_or_is_not_the_same_run(name: str):
    trace = read(name)
    if trace is None:
        return
    original = honest(path_of(EDITED[name][0]))
    if not original.same:
        pytest.skip("this machine rounds in another way")
    if is_told_early(trace, original):
        return
    found = checked(trace)
    assert not found.same and "in the recording" in found.summary


def test_there_are_more_than_forty_edits_that_only_a_second_run_finds():
    assert sum(read(name) is not None for name in EDITED) >= 40


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_stopped_run_is_compared_as_far_as_it_went(settings: Any, sentences: Sentences):
    whole = recorded(settings)
    found = rerun(Trace(whole.header, whole.rounds[:7]), toy_pair())
    assert found.same
    sentences(found.summary)


def test_other_weights_are_not_the_same_run(sentences: Sentences):
    target = llama(40, seed=7)
    other = pair_of(target, relative(target, noise=0.2))
    found = rerun(recorded(SAMPLED), other)
    assert not found.same and "the weights differ" in found.summary


def test_an_edit_in_the_middle_is_told_from_another_run(sentences: Sentences):
    data = recorded(SAMPLED).to_dict()
    early = next(r for r in data["rounds"] if r["lane"] == "baseline" and r["index"] == 2)
    early["last"]["text"] = " no"
    found = rerun(Trace.from_dict(data), toy_pair())
    sentences(str(found.changes[0]))
    sentences(found.cause)


def test_rounding_of_another_machine_is_no_edit_but_a_large_change_is():
    trace = recorded(SAMPLED)
    data = trace.to_dict()
    for place, r in enumerate(data["rounds"]):
        for token in tokens(r):
            for field in ("p", "q", "beta"):
                if field in token:
                    token[field] = min(1.0, token[field] * (1 + (-1) ** place * 1e-5))
    moved = Trace.from_dict(data)
    assert compared(moved, trace).same
    token = next(t for r in moved.rounds for t in r.drafted if t.outcome == "rejected")
    r = next(r for r in moved.rounds if token in r.drafted)
    r.drafted[r.drafted.index(token)] = replace(token, beta=(token.beta or 0.0) / 2 + 0.01)
    assert not compared(moved, trace).same


def test_runs_that_cannot_be_repeated_are_refused(sentences: Sentences):
    header = recorded(SAMPLED).header
    for changes in ({"memory": {"texts": 1, "tokens": 9}}, {"source": "vLLM 0.32.0"}):
        with sentences.raises(TraceError):
            rerun(Trace(replace(header, **changes)), toy_pair())


def test_a_header_names_its_pair(sentences: Sentences):
    header = recorded(SAMPLED).header

    def named(target: str, draft: str) -> Header:
        changes = {"target": {**header.target, "name": target}}
        return replace(
            header, **changes, drafts={SPECULATIVE: {**(header.draft or {}), "name": draft}}
        )

    assert pair_named(named("target", "draft")) == "builtin"
    assert pair_named(named("org/big", "org/small")) == "org/big+org/small"
    ours = "SmolLM2-135M-Instruct"
    assert pair_named(named(ours, "smollm2-135m")) == "smollm2-135m"
    head = ASSETS / "heads" / "smollm2-135m"
    assert (
        pair_named(named(f"HuggingFaceTB/{ours}", "smollm2-135m")) == f"HuggingFaceTB/{ours}+{head}"
    )
    with sentences.raises(TraceError):
        pair_named(named("my-folder", "draft"))


def test_a_header_tells_in_which_form_its_pair_had_the_target():
    header = recorded(SAMPLED).header
    stored = {**header.target, "name": "Qwen2.5-Coder-1.5B-Instruct", "weights": "Q4_K"}
    unpacked = {name: value for name, value in stored.items() if name != "weights"}
    assert pair_named(replace(header, target=stored)) == "qwen2.5-coder-1.5b"
    assert pair_named(replace(header, target=unpacked)) == "qwen2.5-coder-1.5b-bf16"


def test_check_runs_again_and_tells_by_its_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sentences: Sentences,
):
    monkeypatch.setattr("specviz.pairs.load.load_any", lambda name, **_: toy_pair())
    saved(recorded(SAMPLED), tmp_path, "run.json")
    command = ["check", str(tmp_path / "run.json"), "--rerun", "--pair", "builtin"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "recorded," in said
    sentences(said.splitlines()[1])
    data = orjson.loads((tmp_path / "run.json").read_bytes())
    data["header"]["lanes"]["speculative"]["seed"] += 1
    (tmp_path / "run.json").write_bytes(orjson.dumps({**data, "digest": digest_of(data)}))
    assert main(command) == 1
    sentences(capsys.readouterr().out.splitlines()[1], measured=True)

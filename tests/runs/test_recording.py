"""Saved recordings are read unchanged, and name their origin."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields, replace
from pathlib import Path

import orjson
import pytest
from filed import settings
from sentences import Sentences
from toy_models import byte_level, llama, mini, pair_of, relative
from toy_recordings import GREEDY, SAMPLED, recorded, saved, sentence, toy_pair, values

from specviz import End, Settings, Token, Trace, compute_metrics, race
from specviz.__main__ import main
from specviz.base.errors import TraceError
from specviz.core.events import OUTCOMES
from specviz.runs.recording import UNVERIFIED, read_recording
from specviz.runs.trace import digest_of

# Real runs


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
@pytest.mark.parametrize(
    "settings",
    [
        SAMPLED,
        GREEDY,
        replace(SAMPLED, top_k=5, top_p=0.8, gamma=9),
        replace(SAMPLED, temperature=1e-30),
        replace(GREEDY, gamma=0),
        replace(GREEDY, drafter="none"),
        replace(GREEDY, max_new_tokens=0),
        replace(SAMPLED, max_new_tokens=1),
    ],
    ids=str,
)
def test_a_saved_run_is_read_unchanged(settings: Settings, name: str, tmp_path: Path):
    trace = recorded(settings)
    assert read_recording(saved(trace, tmp_path, name)) == trace == Trace.load(tmp_path / name)


def test_the_runs_above_show_every_outcome():
    rounds = recorded(SAMPLED).rounds
    seen = {t.outcome for r in rounds for t in r.tokens}
    assert seen == set(OUTCOMES)


@pytest.mark.parametrize("seed", range(12))
def test_runs_that_end_inside_a_round_are_read_unchanged(seed: int, tmp_path: Path):
    target = mini(5, seed=seed, eos_token_id=3)
    pair = pair_of(target, relative(target, noise=0.2))
    settings = replace(SAMPLED, seed=seed, stop=("w1 w2",) if seed % 2 else ())
    trace = Trace.from_events(race(pair, [0, 1], settings))
    assert read_recording(saved(trace, tmp_path)) == trace


def test_a_sequential_run_is_read_unchanged(tmp_path: Path):
    trace = recorded(SAMPLED, "sequential")
    assert read_recording(saved(trace, tmp_path)) == trace


def test_a_stopped_run_is_read_unchanged(tmp_path: Path):
    whole = recorded(GREEDY)
    unfinished = Trace(whole.header, whole.rounds[:7])
    both = End({"speculative": "stopped", "baseline": "stopped"})
    stopped = Trace(whole.header, whole.rounds[:7], both)
    for trace in (unfinished, stopped):
        assert read_recording(saved(trace, tmp_path)) == trace


def test_texts_of_any_script_are_read_unchanged(tmp_path: Path):
    target = llama(300, seed=1)
    pair = pair_of(target, relative(target, noise=0.2), tokenizer=byte_level())
    trace = Trace.from_events(race(pair, "日本 🙂 <b>&", replace(SAMPLED, max_new_tokens=40)))
    assert read_recording(saved(trace, tmp_path)) == trace


def test_lanes_that_differ_are_read_unchanged(tmp_path: Path):
    """The target's first two choices tie and the lanes choose differently, as happens in half
    precision."""
    data = values(GREEDY)
    data["rounds"] = [r for r in data["rounds"] if r["lane"] == "speculative" or r["index"] < 5]
    last = [r for r in data["rounds"] if r["lane"] == "baseline"][-1]["last"]
    first, second, *_ = last["top_p"]
    first["probability"] = second["probability"]
    last |= {"id": second["id"], "soft_p": second["probability"]}
    data["end"] = {
        "reasons": {"speculative": "length", "baseline": "stopped"},
        "lanes": {
            "speculative": {
                "identical": False,
                "compared": 5,
                "divergence": {"index": 4, "margin": 0.0},
            }
        },
    }
    assert read_recording(orjson.dumps(data)).end == Trace.from_dict(data).end


def test_every_field_of_a_token_is_kept():
    choice = [{"id": 1, "text": "a", "probability": 0.5}]
    full = {"id": 1, "text": "a", "outcome": "accepted"}
    full |= {f.name: choice if f.name.startswith("top") else 0.5 for f in fields(Token)[3:]}
    full["seen"] = 2
    data = values(SAMPLED)
    data["rounds"][0]["last"] = full
    again = Trace.from_dict(data).to_dict()
    assert again["rounds"][0]["last"] == full


def test_the_header_says_where_a_run_comes_from():
    pair = pair_of(llama(40, seed=0), llama(40, seed=1))
    pair.target.config._commit_hash = "0123abc"
    header = next(iter(race(pair, [1], SAMPLED)))
    assert header.target["revision"] == "0123abc" and header.draft["revision"] is None
    assert {"specviz", "python", "torch", "transformers"} <= header.versions.keys()
    assert header.processor and header.device == "CPU" and header.dtype == "float32"


# The digest


def test_a_saved_run_has_a_digest_but_is_valid_without_one(tmp_path: Path):
    data = json.loads(saved(recorded(SAMPLED), tmp_path, "run.json"))
    assert data["digest"] == digest_of(recorded(SAMPLED).to_dict())
    for late in ("digest", "processor"):
        data.pop(late, None)
        data["header"].pop(late, None)
    assert read_recording(orjson.dumps(data)).rounds == recorded(SAMPLED).rounds


def test_a_recording_older_than_gamma_policies_and_chat_still_loads(tmp_path: Path):
    data = recorded(SAMPLED).to_dict()
    for late in ("gamma_policy", "chat"):
        del settings(data["header"])[late]
    old = {**data, "digest": digest_of(data)}
    assert read_recording(orjson.dumps(old)) == recorded(SAMPLED)


def test_the_digest_notices_a_change_that_breaks_no_rule(tmp_path: Path, sentences: Sentences):
    data = json.loads(saved(recorded(SAMPLED), tmp_path, "run.json"))
    data["header"]["device"] = "A faster one"
    sentences(sentence(orjson.dumps(data)))


def test_a_browser_may_write_whole_floats_as_integers(tmp_path: Path):
    data = json.loads(saved(recorded(GREEDY), tmp_path, "run.json"))
    as_javascript = json.loads(
        json.dumps(data), parse_float=lambda s: int(float(s)) if float(s).is_integer() else float(s)
    )
    assert read_recording(orjson.dumps(as_javascript)) == recorded(GREEDY)


# The command line


def test_record_writes_a_file_that_check_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("specviz.pairs.load.load_any", lambda name, **_: toy_pair())
    file = tmp_path / "run.json.gz"
    options = ["--max-new-tokens", "6", "--temperature", "1"]
    assert main(["record", "w1 w2", "--out", str(file), *options]) == 0
    line = capsys.readouterr().out
    size = len(file.read_bytes())
    assert line.startswith(f"run.json.gz: {size:,} bytes, ") and "12 tokens" in line
    assert json.loads(gzip.decompress(file.read_bytes()))["digest"] in line
    assert main(["check", str(file), str(file)]) == 0
    assert capsys.readouterr().out == 2 * line + f"{UNVERIFIED}\n"


def test_check_says_that_a_run_was_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    whole = recorded(SAMPLED)
    saved(Trace(whole.header, whole.rounds[:7]), tmp_path)
    assert main(["check", str(tmp_path / "run.json.gz")]) == 0
    assert "tokens (interrupted), CPU" in capsys.readouterr().out


@pytest.mark.parametrize("edit", ["a contradiction", "a changed device"])
def test_export_refuses_what_check_refuses(
    edit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = json.loads(saved(recorded(SAMPLED), tmp_path, "run.json"))
    if edit == "a contradiction":
        settings(data["header"])["gamma"] = 1
        data["digest"] = digest_of(data)
    else:
        data["header"]["device"] = "A faster one"
    (tmp_path / "run.json").write_text(json.dumps(data))
    assert main(["check", str(tmp_path / "run.json")]) == 2
    said = capsys.readouterr().err
    out = tmp_path / "run.html"
    assert main(["export", str(tmp_path / "run.json"), "--html", str(out)]) == 2
    assert capsys.readouterr().err == said and said and not out.exists()


def test_the_command_line_names_a_file_that_it_rejects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
):
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for arguments in (
        ["check", str(bad)],
        ["check", str(tmp_path / "none")],
        ["record", "a", "--out", str(tmp_path / "no" / "f")],
    ):
        assert main(arguments) == 2
        sentences(capsys.readouterr().err)


def test_a_file_that_cannot_be_replaced_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    """A disk that fills up while a file is written does not damage the old file."""
    path = tmp_path / "run.json"
    recorded(GREEDY).save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left")

    monkeypatch.setattr(Path, "replace", full)
    with sentences.raises(TraceError):
        recorded(SAMPLED).save(path)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_recording_of_a_strangers_kinds_is_read_without_their_package():
    data = values(SAMPLED)
    settings(data["header"]).update(drafter="last-token", verdict="their-own")
    trace = read_recording(orjson.dumps({**data, "digest": digest_of(data)}))
    assert trace.header.settings.drafter == "last-token"
    assert trace.header.settings.verdict == "their-own"
    assert orjson.loads(orjson.dumps(trace.to_dict()))["header"] == data["header"]
    assert compute_metrics(trace).tau is not None
    for wrong in ("Last Token", "<b>x</b>", "", "a" * 41, 5, None):
        settings(data["header"])["drafter"] = wrong
        assert "drafter" in sentence(orjson.dumps({**data, "digest": digest_of(data)}))

"""Closed models: errors about their names, and the verb `guess`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentences import Sentences
from toy_models import byte_level, llama

from specviz import load_pair
from specviz.__main__ import main
from specviz.base.errors import PairError
from specviz.pairs.closed import is_closed
from specviz.pairs.doctor import examine


def test_closed_models_are_known_by_name_and_open_ones_are_not():
    closed = ["gpt-4", "openai/gpt-4o-mini", "gpt-3.5-turbo", "o3-mini", "claude-3-opus"]
    for name in [*closed, "anthropic/claude-x", "gemini-1.5-pro", "google/gemini-2.0-flash"]:
        assert is_closed(name), name
    opened = [
        "gpt2",
        "openai/gpt-oss-20b",
        "EleutherAI/gpt-neo-125m",
        "gpt-j-6b",
        "google/gemma-2b",
    ]
    for name in [*opened, "someone/claude-distilled", "allenai/olmo-1b"]:
        assert not is_closed(name), name


def test_the_doctor_says_why_a_closed_model_cannot_race(tmp_path: Path, sentences: Sentences):
    report = examine("gpt-4+gpt-3.5-turbo")
    (finding,) = report.findings
    assert report.verdict == "stop" and finding.topic == "closed"
    assert report.suggested is None
    sentences(finding.sentence)
    sentences(examine("openai/gpt-4o").findings[0].sentence)
    with sentences.raises(PairError):
        load_pair("claude-3-opus+none")
    sentences(examine("gpt2", "gpt-3.5-turbo").findings[0].sentence)


def test_guess_prints_places_and_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
):
    folder = tmp_path / "draft"
    file = tmp_path / "text.txt"
    llama(300).save_pretrained(folder)
    byte_level(300).save_pretrained(folder)
    file.write_text("the cat sat\n", encoding="utf-8")
    command = ["guess", "--draft", str(folder), "--text", str(file)]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"] + "".join(one["text"] for one in found["places"]) == "the cat sat"
    assert found["would_be"]["5"]["judged"] >= found["would_be"]["5"]["right"]
    assert main([*command, "--color", "never", "--gamma", "2"]) == 0
    printed = capsys.readouterr().out
    sentences(printed.splitlines()[0])
    rounds = len(found["would_be"]["2"]["rounds"])
    assert sum(" │ " in line for line in printed.splitlines()) == rounds + 1
    assert f"guessed {sum(one['right'] for one in found['places'])} of" in printed
    assert main(["guess", "--text", str(tmp_path / "none.txt")]) == 2
    assert "cannot be read" in capsys.readouterr().err

"""Invalid arguments of the command line and of Python, each with one sentence."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from places import ROOT
from sentences import Sentences
from toy_models import llama, pair_of, relative

from specviz import (
    Pair,
    Settings,
    SpecvizError,
    baseline,
    compute_metrics,
    load_pair,
    race,
    speculate,
)
from specviz.__main__ import main
from specviz.base.errors import PairError, TraceError
from specviz.base.options import check_writable
from specviz.files.devices import checked_device

DIGITS = "9" * 5000


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a wrong command line; check its status 2 and return its one line."""
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("specviz: ") and lines[-1].endswith(".") and len(lines[-1]) < 400
    return lines[-1]


@pytest.mark.parametrize(
    "line",
    [
        "run x --device warp9",
        "run x --device mps",
        "doctor builtin --device warp9",
        "doctor builtin --free nan",
        "doctor builtin --free 1e400",
        "doctor builtin --free -1",
        "doctor builtin --context -5",
        "doctor builtin --context DIGITS",
        "run x --seed DIGITS",
        "run x --lane gamma=DIGITS",
        "run x --out /nowhere/x.json",
        "record x --out /nowhere/x.json",
        "record x --out .",
        "bench --out /nowhere/x.json",
        "bench --acceptance nan",
        "sweep --seconds inf",
        "sweep --out /nowhere/x.json",
        "train --head . --device warp9",
        "train --head . --draft-minutes nan",
        "train --head . --out README.md",
        "guess --text - --gamma 0",
        "page --port 70000",
        "page --port DIGITS",
        "page --colour red",
    ],
)
def test_a_wrong_command_line_is_a_sentence_before_any_work(
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sentences: Sentences,
) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("GRADIO_SERVER_PORT", "GRADIO_SERVER_NAME", "GRADIO_ANALYTICS_ENABLED"):
        monkeypatch.setenv(name, "")
    sentences(said(line.replace("DIGITS", DIGITS).split(), capsys))


def test_without_a_verb_argparse_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's words differ between versions of Python."""
    assert "invalid choice: 'fly'" in said(["fly"], capsys)
    assert "are required: VERB" in said([], capsys)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_that_is_what_is_said(
    capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    sentences(said(["run", "x", "--device", "cuda"], capsys))
    with sentences.raises(PairError):
        load_pair("builtin", device=99)  # type: ignore[arg-type]
    assert checked_device(None) is None and checked_device("cpu") == torch.device("cpu")


def test_a_gpu_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert checked_device("cuda:1") == torch.device("cuda:1")
    with sentences.raises(PairError):
        checked_device("cuda:2")
    with sentences.raises(PairError):
        load_pair("builtin", device=99)  # type: ignore[arg-type]


def test_places_to_write_to(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json")
    check_writable(tmp_path / "a" / "b", folder=True)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.geteuid():
        with pytest.raises(TraceError, match="may not write"):
            check_writable(locked / "x.json")


def test_a_reader_who_has_had_enough_is_no_error() -> None:
    command = f"{sys.executable} -m specviz variables | head -c 1"
    early = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True)
    assert early.stderr == b"" and len(early.stdout) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["--port", "0"]])
def test_app_takes_what_the_verb_page_takes(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("GRADIO_SERVER_PORT", "GRADIO_SERVER_NAME", "GRADIO_ANALYTICS_ENABLED"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "argv", ["app.py", *arguments])
    with pytest.raises(SystemExit) as ours:
        runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
    printed = capsys.readouterr()
    with pytest.raises(SystemExit) as verbs:
        sys.exit(main(["page", *arguments]))
    assert ours.value.code == verbs.value.code
    assert capsys.readouterr() == printed


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(64)
    return pair_of(target, relative(target, noise=0.1))


WRONG: dict[str, Any] = {
    "race, a dict of settings": lambda pair: race(pair, [1], {"gamma": 3}),
    "race, a text as settings": lambda pair: race(pair, [1], "greedy"),
    "race, a list of settings": lambda pair: race(pair, [1], [Settings(), 5]),
    "speculate, a dict of settings": lambda pair: speculate(pair, [1], {"gamma": 3}),
    "speculate, an empty dict": lambda pair: speculate(pair, [1], {}),
    "baseline, a text as settings": lambda pair: baseline(pair, [1], "greedy"),
    "race, no pair": lambda _: race(None, "x"),
    "speculate, a name as pair": lambda _: speculate("builtin", "x"),
    "baseline, a name as pair": lambda _: baseline("builtin", "x"),
    "a number as memory": lambda pair: speculate(pair, [1], Settings(drafter="suffix"), memory=5),
    "no tokenizer": lambda pair: Pair(pair.target, None, None),
    "a number as head": lambda pair: Pair(pair.target, None, pair.tokenizer, head=5),
    "no trace": lambda _: compute_metrics(None),
    "bytes as prompt": lambda pair: race(pair, b"hello"),
    "a dict as ids": lambda pair: speculate(pair, {1: 2}),
    "a dict as drafter": lambda _: Settings(drafter={}),
    "a dict as device": lambda _: load_pair("builtin", device={}),
    "a device that is none": lambda _: load_pair("builtin", device="warp9"),
    "no name": lambda _: load_pair(None),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_python_passes_wrongly_is_a_sentence(
    mistake: str, pair: Pair, sentences: Sentences
) -> None:
    with sentences.raises(SpecvizError):
        list(WRONG[mistake](pair))

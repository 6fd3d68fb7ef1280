"""What people pass to the command line and to Python, and what they are told in one sentence."""

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
from specviz.core.options import check_writable
from specviz.files.devices import checked_device

DIGITS = "9" * 5000


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a wrong command line is answered with: one line, and status 2."""
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("specviz: ") and lines[-1].endswith(".") and len(lines[-1]) < 400
    return lines[-1]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("run x --device warp9", "'warp9' is no device: use cpu, cuda, or cuda:1"),
        ("run x --device mps", "there is no Apple GPU here"),
        ("doctor builtin --device warp9", "'warp9' is no device"),
        ("doctor builtin --free nan", "--free: 'nan': use a number"),
        ("doctor builtin --free 1e400", "--free: '1e400': use a number"),
        ("doctor builtin --free -1", "--free: '-1': use a number"),
        ("doctor builtin --context -5", "--context: '-5': use a whole number from 1"),
        (f"doctor builtin --context {DIGITS}", "use a whole number"),
        (f"run x --seed {DIGITS}", "invalid int value"),
        (f"run x --lane gamma={DIGITS}", "gamma is"),
        ("run x --out /nowhere/x.json", "there is no folder for /nowhere/x.json"),
        ("record x --out /nowhere/x.json", "there is no folder for /nowhere/x.json"),
        ("record x --out .", "is a folder"),
        ("bench --out /nowhere/x.json", "there is no folder"),
        ("bench --acceptance nan", "--acceptance: 'nan'"),
        ("sweep --seconds inf", "--seconds: 'inf'"),
        ("sweep --out /nowhere/x.json", "there is no folder"),
        ("train --head . --device warp9", "'warp9' is no device"),
        ("train --head . --draft-minutes nan", "--draft-minutes: 'nan'"),
        ("train --head . --out README.md", "is a file"),
        ("guess --text - --gamma 0", "--gamma: '0'"),
        ("page --port 70000", "is '70000': use a whole number from 1 to 65535"),
        (f"page --port {DIGITS}", "use a whole number from 1 to 65535"),
        ("page --colour red", "unrecognized arguments: --colour red"),
        ("fly", "invalid choice: 'fly'"),
        ("", "are required: VERB"),
    ],
)
def test_a_wrong_command_line_is_a_sentence_before_any_work(
    line: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("GRADIO_SERVER_PORT", "GRADIO_SERVER_NAME", "GRADIO_ANALYTICS_ENABLED"):
        monkeypatch.setenv(name, "")
    assert sentence in said(line.split(), capsys)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_that_is_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(["run", "x", "--device", "cuda"], capsys)
    assert "there is no cuda here" in found and "network" not in found
    with pytest.raises(PairError, match="there is no cuda:99 here"):
        load_pair("builtin", device=99)  # type: ignore[arg-type]
    assert checked_device(None) is None and checked_device("cpu") == torch.device("cpu")


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert checked_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(PairError, match="no cuda:2 here, of 2 GPUs"):
        checked_device("cuda:2")


def test_places_to_write_to(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json")
    check_writable(tmp_path / "a" / "b", folder=True)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.geteuid():
        with pytest.raises(TraceError, match="this user may not write"):
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
    "the settings are dict": lambda pair: race(pair, [1], {"gamma": 3}),
    "the settings are str 'greedy'": lambda pair: race(pair, [1], "greedy"),
    "the settings are list": lambda pair: race(pair, [1], [Settings(), 5]),
    "settings are dict {'gamma'": lambda pair: speculate(pair, [1], {"gamma": 3}),
    "settings are dict {}": lambda pair: speculate(pair, [1], {}),
    "settings are str": lambda pair: baseline(pair, [1], "greedy"),
    "the pair is a NoneType": lambda _: race(None, "x"),
    "the pair is a str": lambda _: speculate("builtin", "x"),
    "pair is a str": lambda _: baseline("builtin", "x"),
    "memory is int 5": lambda pair: speculate(pair, [1], Settings(drafter="suffix"), memory=5),
    "the tokenizer is NoneType": lambda pair: Pair(pair.target, None, None),
    "the head is int 5": lambda pair: Pair(pair.target, None, pair.tokenizer, head=5),
    "the trace is NoneType": lambda _: compute_metrics(None),
    "not bytes b'hello'": lambda pair: race(pair, b"hello"),
    r"ids \(whole numbers\), not dict": lambda pair: speculate(pair, {1: 2}),
    "drafter is {}": lambda _: Settings(drafter={}),
    "there is no cuda:99": lambda _: load_pair("builtin", device=99),
    "'warp9' is no device": lambda _: load_pair("builtin", device="warp9"),
    "no device": lambda _: load_pair("builtin", device={}),
    "the pair's name is None": lambda _: load_pair(None),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_python_passes_wrongly_is_a_sentence(sentence: str, pair: Pair) -> None:
    with pytest.raises(SpecvizError, match=sentence) as caught:
        list(WRONG[sentence](pair))
    assert str(caught.value).endswith(".")

"""The command for a machine with a GPU: limits, failures, table and file; and without one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import pytest
import torch

from scripts.measure_gpu import FORMS, SPEEDS, Step, main, plan, run_all, table
from specviz.__main__ import parser_of
from specviz.core.lanes import LANE_LABELS

WRITES = """
import json, sys
spread = dict(median=200.0, low=1, high=2)
row = dict(tokens_per_second={name: spread for name in sys.argv[1].split(";")},
           pass_seconds={"1": 0.010, "3": 0.012}, draft_step_seconds=0.002, overhead_seconds=0.001)
floors = dict(target=dict(seconds=0.008), draft=dict(seconds=0.001))
open(sys.argv[3], "w").write(json.dumps(dict(rows=[row], floors=floors, settings=dict(gamma=2))))
"""
STARTS_ANOTHER = """
import subprocess, sys, time
late = "import time; time.sleep(1.5); open('{}', 'w')"
subprocess.Popen([sys.executable, "-c", late])
print("started", flush=True)
time.sleep(60)
"""


def python(name: str, code: str, limit: float, *arguments: str, measures: bool = False) -> Step:
    return Step(name, (sys.executable, "-c", code, *arguments), limit, measures=measures)


def test_the_others_run_whatever_becomes_of_one(tmp_path: Path, capfd: pytest.CaptureFixture):
    left_behind, file = tmp_path / "late", tmp_path / "results.json"
    steps = [
        python("fails", "print('why it failed'); raise SystemExit(3)", 30),
        python("hangs", STARTS_ANOTHER.format(left_behind), 1),
        python("measures", WRITES, 30, ";".join(SPEEDS), measures=True),
        python("writes nonsense", "import sys; open(sys.argv[2], 'w')", 30, measures=True),
    ]
    began = time.monotonic()
    outcomes = run_all(iter(steps), tmp_path, file)
    assert [one.state for one in outcomes] == [
        "failed with exit status 3",
        "stopped at its limit of 1 s",
        "passed",
        "passed",
    ]
    assert "why it failed" in outcomes[0].output and "started" in outcomes[1].output
    lines = list(table(outcomes))
    assert "| 200.0 | 200.0 | 200.0 | 200.0 | 10.00 ms, 80% of the bandwidth | " in lines[4]
    assert lines[4].endswith("17.00 ms, 1.70 times its floor |")
    assert len({line.count("|") for line in lines}) == 1 and outcomes[3].figures is None
    kept = json.loads(file.read_text("utf-8"))
    assert [one["name"] for one in kept] == [step.name for step in steps]
    assert kept[2]["figures"]["settings"] == {"gamma": 2}
    time.sleep(max(0.0, 3 - (time.monotonic() - began)))
    assert not left_behind.exists(), "what a step started ends with it"


def test_the_whole_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scripts.measure_gpu.SHORTEST", 0.5)
    steps = [python("first", "import time; time.sleep(60)", 60), python("second", "", 60)]
    states = [one.state for one in run_all(iter(steps), tmp_path, tmp_path / "r.json", whole=1.4)]
    assert states == ["stopped at its limit of 1 s", "not run: no time was left"]


def test_every_step_is_a_command_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scripts.measure_gpu.hub_is_reachable", lambda: True)
    options = argparse.Namespace(shape="llama-3.1-8b+3.2-1b", pairs=["a+b"], output=tmp_path)
    steps = list(plan(options))
    assert [step.name for step in steps if step.measures][-1] == "a+b"
    for step in steps:
        module, *arguments = step.command[2:]
        if module == "specviz":
            more = ["--out", "x"] if step.measures else []
            assert parser_of(arguments).parse_args([*arguments, *more])
    assert len(steps) == 1 + len(FORMS) + 1
    assert set(LANE_LABELS.values()) <= set(SPEEDS)


@pytest.mark.parametrize("reachable", [False, True])
def test_a_pair_runs_where_it_is_at_hand_or_can_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reachable: bool
):
    named = ["builtin", "qwen2.5-coder-1.5b-bf16", "a+b"]
    monkeypatch.setattr("scripts.measure_gpu.hub_is_reachable", lambda: reachable)
    monkeypatch.setattr("scripts.measure_gpu.at_hand", lambda row: row.name == named[1])
    options = argparse.Namespace(shape="small", pairs=named, output=tmp_path)
    steps = [step.name for step in plan(options)]
    assert [name for name in steps if name in named] == (named if reachable else named[1:2])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_without_a_gpu_it_says_so_in_one_sentence(capsys: pytest.CaptureFixture):
    assert main([]) == 1
    assert capsys.readouterr().out.strip().endswith("finds none here.")

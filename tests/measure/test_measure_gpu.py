"""The measurement on a machine with a GPU: limits, failures, resuming, table and file."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from forked_process import run_forked
from sentences import Sentences

from scripts.gpu_steps import Report, Visit
from scripts.measure_gpu import (
    DONE,
    HEADINGS,
    Outcome,
    Step,
    pack,
    plan,
    read_outcomes,
    run_all,
    table,
)
from specviz.inspect.shapes import SHAPES

STARTS_ANOTHER = "import time; time.sleep(1.2); open({!r}, 'w')"

VISIT = """
import sys
from pathlib import Path
from scripts.gpu_steps import Visit
from scripts.measure_gpu import plan, run_all, table
from specviz.inspect.shapes import Shape, Size

tiny = Shape(64, Size(64, 32, 64, 1, 2, 1, True), Size(64, 32, 64, 1, 2, 1, True))
visit = Visit(repeats=1, tokens=8, proofs=1, copied=1 << 20, gamma=1)
steps = [step for step in plan(visit, {"tiny": tiny}) if step.name in ("machine", "bits", "tiny")]
for line in table(run_all(steps, Path(sys.argv[1]), 120)):
    print(line)
"""


def hangs(late: Path) -> Any:
    def run(report: Report) -> None:
        report("first", 1)
        subprocess.Popen([sys.executable, "-c", STARTS_ANOTHER.format(str(late))])
        print("started", flush=True)
        time.sleep(60)

    return run


def fails(report: Report) -> None:
    print("why it failed")
    raise ValueError("no such thing")


def ends(report: Report) -> None:
    raise SystemExit("vLLM printed no rate")


def reports(report: Report) -> None:
    report("figure", {"median": 2.5})


def test_the_others_run_whatever_becomes_of_one(tmp_path: Path, sentences: Sentences):
    late = tmp_path / "late"
    file = tmp_path / "results.json"
    steps = [
        Step("fails", fails, 30),
        Step("hangs", hangs(late), 1),
        Step("ends", ends, 30),
        Step("reports", reports, 30),
    ]
    began = time.monotonic()
    outcomes = run_all(steps, file)
    failed, hung, ended, reported = outcomes
    sentences("\n".join(outcome.state for outcome in outcomes))
    assert "why it failed" in failed.output and "no such thing" in failed.output
    assert "started" in hung.output
    assert hung.figures == {"first": 1}, "what it had is kept"
    assert "vLLM printed no rate" in ended.output
    assert reported.state == DONE and reported.figures == {"figure": {"median": 2.5}}
    assert read_outcomes(file) == outcomes
    time.sleep(max(0.0, 2.5 - (time.monotonic() - began)))
    assert not late.exists(), "what a step started ends with it"


def test_a_visit_goes_on_behind_what_is_done(tmp_path: Path):
    file = tmp_path / "results.json"
    known = [Outcome("done before", DONE, figures={"kept": 1}), Outcome("cut", "stopped")]
    steps = [Step("done before", fails, 30), Step("cut", reports, 30)]
    outcomes = run_all(steps, file, known=known)
    assert [outcome.state for outcome in outcomes] == [DONE, DONE]
    assert outcomes[0].figures == {"kept": 1} and outcomes[1].figures


def test_every_figure_is_written_before_the_step_ends(tmp_path: Path):
    file = tmp_path / "results.json"
    seen = tmp_path / "seen"

    def looks(report: Report) -> None:
        report("first", 1)
        while "first" not in json.dumps([o.figures for o in read_outcomes(file)]):
            time.sleep(0.01)
        seen.write_text("yes")

    (outcome,) = run_all([Step("looks", looks, 20)], file)
    assert outcome.state == DONE and seen.exists()


def test_the_whole_has_a_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    monkeypatch.setattr("scripts.measure_gpu.SHORTEST", 0.5)
    steps = [Step("first", lambda _: time.sleep(60), 60), Step("second", reports, 60)]
    outcomes = run_all(steps, tmp_path / "results.json", whole=1.4)
    sentences("\n".join(outcome.state for outcome in outcomes))


def test_its_steps_fit_into_ten_minutes():
    names = ["qwen2.5-1.5b+0.5b", "llama-3.1-8b+3.2-1b"]
    steps = list(plan(Visit(), {name: SHAPES[name] for name in names}))
    assert sum(step.limit for step in steps) < 600
    assert [step.name for step in steps][:3] == ["machine", "bits", names[0]]


def test_a_table_has_what_was_measured_and_nothing_else():
    figures = {
        "target_floor_seconds": 0.001,
        "draft_floor_seconds": 0.0005,
        "torch: pass_seconds": {"1": 0.002, "2": 0.0021},
        "torch: step_seconds": 0.001,
        "torch: gamma": 2,
        "torch: tokens_per_second": {"target alone": 450.0, "with drafts": 600.0},
        "triton: pass_seconds": {"1": 0.00125},
    }
    outcomes = [
        Outcome("machine", DONE),
        Outcome("some pair", DONE, figures=figures),
        Outcome("vLLM, some pair", DONE, figures={"tokens_per_second": 300.0}),
    ]
    lines = list(table(outcomes))
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 4
    cells = dict(zip(HEADINGS, [cell.strip() for cell in lines[2].split("|")[1:-1]], strict=True))
    assert cells["floor"] == "1000" and cells["alone"] == "450.0" and cells["vLLM"] == "300.0"
    assert cells["with drafts (γ)"] == "600.0 (2)" and cells["generate()"] == ""
    assert cells["a pass, share of its floor"] == "2.00 ms, 50%"
    assert cells["a draft step, share of its floor"] == "1.00 ms, 50%"
    assert "1.25 ms, 80%" in lines[3] and "450.0" not in lines[3]


def test_its_steps_measure_tiny_models_on_a_processor(tmp_path: Path):
    """Everything but captures and kernels runs: all figures are present, and equal results are
    equal."""
    file = tmp_path / "results.json"
    environment = {"SPECVIZ_FORM": "static", "OMP_NUM_THREADS": "1"}
    done = run_forked([sys.executable, "-c", VISIT, str(file)], env=environment)
    assert done.returncode == 0, done.stderr
    machine, bits, pair = read_outcomes(file)
    assert machine.state == bits.state == pair.state == DONE, (bits.output, pair.output)
    assert machine.figures["device"] == "cpu" and machine.figures["captures"] is False
    assert bits.figures["torch"]["again"] and bits.figures["torch"]["in_longer_buffers"]
    for name in ("step by step", "one program", "the next one enqueued"):
        assert pair.figures[f"torch: {name}"]["milliseconds_of_a_round"] > 0
    assert pair.figures["torch: gamma"] == 1
    rates = pair.figures["torch: tokens_per_second"]
    assert {"target alone", "with drafts", "generate()", "generate(assistant)"} <= rates.keys()
    assert "| tiny | torch |" in done.stdout


def test_what_is_taken_along_is_small_and_has_no_weights(tmp_path: Path):
    file = tmp_path / "visit.tar.gz"
    pack(file)
    assert file.stat().st_size < 16 << 20
    with tarfile.open(file) as archive:
        names = archive.getnames()
    assert "scripts/measure_gpu.py" in names and "tests/engines/test_cuda.py" in names
    assert "assets/pairs.json" in names
    assert not any(name.endswith((".safetensors", ".pyc")) for name in names)


def test_without_a_gpu_it_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    from scripts import measure_gpu

    monkeypatch.setattr(measure_gpu, "plan", lambda *_: [Step("machine", reports, 30)])
    assert measure_gpu.main(["--output", str(tmp_path)]) == 1
    assert capsys.readouterr().out.strip().endswith("run make gpu on a machine with one.")

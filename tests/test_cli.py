"""The verbs of `python -m specviz`: their output and their errors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked_process import run_forked
from places import ROOT
from sentences import Sentences
from toy_models import byte_level, llama, relative

from specviz import Settings, Trace, compute_metrics, load_pair, race
from specviz.__main__ import main, parser_of
from specviz.inspect.random_models import scripted
from specviz.measure.bench.generate import ASSISTED, GENERATE, PLAIN, generate_seconds
from specviz.measure.bench.lanes import BASELINE, SPECULATIVE
from specviz.runs.settings_options import settings_from


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a tiny pair on disk, for `--pair`."""
    root = tmp_path_factory.mktemp("pair")
    target = llama(300, eos_token_id=None)
    for name, model in (("target", target), ("draft", relative(target, noise=0.1))):
        model.save_pretrained(root / name)
        byte_level(300).save_pretrained(root / name)
    return f"{root / 'target'}+{root / 'draft'}"


def line_with(part: str, printed: str) -> str:
    """The only line that contains `part`."""
    (line,) = [line for line in printed.splitlines() if part in line]
    return line


def test_run_prints_the_rounds_and_figures_that_add_up(
    folders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    saved = tmp_path / "run.json.gz"
    arguments = ["run", "Once upon", "--pair", folders, "--max-new-tokens", "20", "--gamma", "3"]
    assert main([*arguments, "--color", "never", "--out", str(saved)]) == 0
    printed = capsys.readouterr().out
    trace = Trace.load(saved)
    figures = compute_metrics(trace)
    assert sum(" │ " in line for line in printed.splitlines()) == 1 + figures.rounds
    sentences(line_with("identical", printed))
    assert "  ".join(f"{name} {count}" for name, count in figures.counts.items()) in printed
    assert "\x1b" not in printed
    assert main([*arguments, "--color", "never", "--lane", "drafter=ngram,gamma=2"]) == 0
    printed = capsys.readouterr().out
    assert "best: " in printed
    sentences(line_with("n-gram, gamma 2: 20/20", printed))


def test_a_conversation_is_asked_with_its_system_prompt(
    folders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    target = tmp_path / "target"
    shutil.copytree(folders.split("+")[0], target)
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[reply]"
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    file = tmp_path / "turns.json"
    file.write_text(json.dumps(turns), encoding="utf-8")
    saved = tmp_path / "run.json"
    arguments = ["--system", "Be kind.", "--messages", str(file), "--max-new-tokens", "4"]
    pair = ["--pair", f"{target}+none", "--drafter", "ngram"]
    assert main(["run", "And how?", *arguments, *pair, "--out", str(saved)]) == 0
    header = Trace.load(saved).header
    assert header.prompt == "[system]Be kind.[user]Why?[assistant]So.[user]And how?[reply]"
    assert header.question == "And how?" and len(header.messages or ()) == 4
    for without_prompt in ([*arguments, *pair], pair):
        assert main(["run", *without_prompt]) == 2
        sentences(capsys.readouterr().err.splitlines()[-1])


def test_run_in_colour_marks_every_outcome(
    folders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["run", "Once", "--pair", folders, "--max-new-tokens", "8", "--color", "always"]) == 0
    )
    assert "\x1b[9;38;5;166m✗rejected" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "run ",
        "run x --temperature nan",
        "run x --pair /no/target+/no/draft",
        "bench --repeats 0",
        "bench --acceptance 1.5",
        "bench --prompts no-such-file.json",
    ],
)
def test_an_error_is_one_sentence_and_an_exit_status(
    line: str, folders: str, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    arguments = line.split(" ")
    named = arguments if "--pair" in arguments else [*arguments, "--pair", folders]
    assert main(named) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specviz: ")
    sentences(message)


def test_a_shape_that_does_not_exist_is_answered_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "--shape", "enormous"]) == 2
    assert "choose from 'small', 'qwen2.5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\n", "\n"),
        (r"\n\n###", "\n\n###"),
        (r"\t\r", "\t\r"),
        (r"\\n", r"\n"),
        (r"\section", r"\section"),
        ("\n", "\n"),
    ],
)
def test_a_stop_text_is_written_with_escapes(written: str, meant: str) -> None:
    arguments = ["run", "x", "--stop", written, "--stop", "END"]
    options = parser_of(arguments).parse_args(arguments)
    assert settings_from(options).stop == (meant, "END")


def test_bench_measures_all_variants_on_the_same_prompts(
    folders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.json"
    figures = tmp_path / "bench.json"
    prompts.write_text(json.dumps(["Once upon", "It was"]))
    arguments = ["bench", "--pair", folders, "--prompts", str(prompts)]
    arguments += ["--repeats", "1", "--temperatures", "0", "--max-new-tokens", "12"]
    assert main([*arguments, "--threads", "1", "--out", str(figures)]) == 0
    results = json.loads(figures.read_text())
    (row,) = results["rows"]
    (best,) = results["best"]
    assert set(best["threads"].values()) == {1} and f"{SPECULATIVE} / {ASSISTED}" in best["ratios"]
    assert set(row["tokens_per_second"]) == {BASELINE, SPECULATIVE, GENERATE, ASSISTED, PLAIN}
    assert row["prompts"] == row["identical"] == 2
    for name, rate in row["wall_rates"].items():
        assert rate["median"] <= row["tokens_per_second"][name]["median"]
    assert set(row["wall_rates"]) == {BASELINE, SPECULATIVE} and row["speedup_wall"]["median"] > 0
    assert "floor of a one-token" in capsys.readouterr().out


def test_bench_of_one_token_says_that_it_is_too_short(
    folders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "--pair", folders, "--lanes-only", "--repeats", "1"]
    arguments += ["--count", "1", "--temperatures", "0", "--max-new-tokens", "1"]
    arguments += ["--threads", "1"]
    assert main(arguments) == 0
    assert re.search(r"speed-up +too short to compare", capsys.readouterr().out)


def test_generate_writes_the_same_text_as_the_lanes(folders: str) -> None:
    pair = load_pair(folders)
    settings = Settings(max_new_tokens=24, ignore_eos=True)
    ids = pair.encode("Once upon")
    ours = Trace.from_events(race(pair, ids, settings)).lane("baseline")
    wanted = [t.id for r in ours for t in r.emitted]
    for way in (GENERATE, ASSISTED):
        assert generate_seconds(pair, ids, settings, way)[1] == wanted


def test_scripted_verdicts_keep_drafts_as_often_as_asked() -> None:
    rule = scripted(0.7)
    generator = torch.Generator().manual_seed(0)
    p = torch.full((6, 8), 1 / 8)
    kept = judged = 0
    for _ in range(1000):
        u = torch.rand(5, generator=generator, dtype=torch.float64)
        accepted = int(rule(p, p[:5], torch.zeros(5, dtype=torch.long), u, generator)[0])
        kept = kept + accepted
        judged = judged + accepted + (accepted < 5)
    assert kept / judged == pytest.approx(0.7, abs=0.02)


def test_named_pairs_are_listed_by_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs"]) == 0
    printed = capsys.readouterr().out
    assert "GB free" in printed and printed.index("\nfits:") < printed.index("  builtin ")
    assert "opt-6.7b-125m" in printed and "(no safetensors" in printed
    assert "gemma-7b-2b" in printed and "(gated)" in printed


def test_a_target_without_a_draft_races_with_another_drafter(
    folders: str, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    target = folders.partition("+")[0]
    arguments = ["run", "the cat the cat", "--pair", f"{target}+none", "--max-new-tokens", "8"]
    assert main(arguments) == 0  # with ngram, the first drafter that needs no draft model
    sentences(line_with("identical", capsys.readouterr().out))
    assert main([*arguments, "--drafter", "model"]) == 2
    sentences(capsys.readouterr().err.splitlines()[-1])


def test_everything_but_compiled_passes_works_without_numba(folders: str) -> None:
    without = "import sys; sys.modules['numba'] = None; from specviz.__main__ import main; "
    script = without + "sys.exit(main(sys.argv[1:]))"
    arguments = ["run", "Once upon", "--pair", folders, "--max-new-tokens", "3"]
    ended = run_forked([sys.executable, "-c", script, *arguments])
    assert ended.returncode == 0, ended.stderr
    assert "with drafts" in ended.stdout


def test_what_needs_no_model_needs_no_torch() -> None:
    """torch takes seconds to import, and most command lines only show help or read a file. The page
    would start later and hold torch twice. It imports Gradio after the models' process has started
    and its address was checked."""
    recording = ROOT / "assets" / "recordings" / "easy.json.gz"
    lines = ["variables", "--help", "run --help", "doctor --help", "page --help"]
    lines += ["sweep --help", "bench --help"]
    lines += [f"check {recording}", "--bogus"]
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'gradio'): sys.modules[name] = None\n"
        "import specviz.page.serve\n"
        "from specviz.__main__ import main\n"
        f"for line in {lines}:\n"
        "    try: main(line.split())\n"
        "    except SystemExit: pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "usage: specviz run" in ended.stdout and "easy.json.gz: " in ended.stdout

"""All verbs that read a pair work on GGUF files in their stored format, and show the models' names
in them, never file names."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from sentences import Sentences

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

from tiny_files import tiny_file
from toy_models import emitted_ids

from specviz import Pair, Settings, Trace, baseline, load_pair, speculate
from specviz.__main__ import main
from specviz.core.pair import checked_pair
from specviz.measure.bench.generate import ASSISTED, GENERATE, PLAIN, other_writers
from specviz.pairs.cli import named_pair
from specviz.runs import cli

RECORDED = re.compile(r"\d+\.\d+ s recorded")
TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pair of files; the draft is the target with fewer bits."""
    folder = tmp_path_factory.mktemp("files")
    target = tiny_file(folder, "F16", "qwen2", name="large")
    draft = tiny_file(folder, "Q8_0", "qwen2", name="small")
    return f"{target.path}+{draft.path}"


@pytest.fixture(scope="module")
def pair(name: str) -> Pair:
    return load_pair(name)


@pytest.mark.parametrize("drafter", ["model", "ngram", "suffix", "early-exit"])
def test_each_drafter_keeps_the_greedy_text(pair: Pair, drafter: str) -> None:
    settings = Settings(max_new_tokens=24, drafter=drafter)
    drafted = list(speculate(pair, TEXT, settings))
    assert emitted_ids(drafted) == emitted_ids(baseline(pair, TEXT, settings))
    assert any(each.drafted for each in drafted)


def test_lanes_race_and_their_recording_is_the_same_run_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    file = str(tmp_path / "run.json.gz")
    words = ["--max-new-tokens", "12", "--temperature", "0.7", "--top-k", "40", "--top-p", "0.9"]
    lanes = ["--lane", "drafter=ngram", "--lane", "drafter=early-exit,gamma=2"]
    assert main(["run", TEXT, "--pair", name, *words, *lanes, "--out", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    rounds = [line.index("│") for line in lines if ", gamma " in line and " │ " in line]
    assert len(set(rounds)) == 1, "rounds of all lanes stand in one column"
    rates = [line.index(" tokens  ") for line in lines if line.endswith("tokens/s")]
    assert len(rates) == 4 and len(set(rates)) == 1
    assert main(["check", file, "--rerun", "--pair", name]) == 0
    said = capsys.readouterr().out
    _, answer, *_ = said.splitlines()
    sentences(answer)
    times = [match.start() for match in map(RECORDED.search, said.splitlines()) if match]
    assert len(times) == 4 and len(set(times)) == 1


@pytest.mark.parametrize("whose", ["small", "pair"])
def test_guess_calls_the_draft_by_its_name(
    name: str, whose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    draft = name if whose == "pair" else name.rpartition("+")[2]
    assert main(["guess", "--draft", draft, "--text", str(tmp_path / "text.txt")]) == 0
    assert "\nsmall guessed " in capsys.readouterr().out


def test_a_sweep_calls_models_by_their_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "sweep.json")
    words = ["--drafters", "model", "ngram", "--gammas", "2", "--seconds", "1", "--out", out]
    assert main(["sweep", "--pair", name, *words]) == 0
    said = capsys.readouterr().out
    assert "large with small on " in said
    folder = str(Path(name.partition("+")[0]).parent)
    assert f"{folder}/large.gguf with" not in said


def test_a_recording_of_files_asks_for_the_pair(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    file = str(tmp_path / "run.json.gz")
    assert main(["record", TEXT, "--pair", name, "--max-new-tokens", "4", "--out", file]) == 0
    assert main(["check", file, "--rerun"]) == 2
    sentences(capsys.readouterr().err.splitlines()[-1])


def test_transformers_own_generate_runs_beside_a_target_that_was_unpacked(name: str) -> None:
    """Its norms stay in fp32, which transformers' modules do not accept together with bf16."""
    pair = checked_pair(load_pair(name, dtype="bfloat16"))
    writers = other_writers(pair, Settings(max_new_tokens=4, ignore_eos=True))
    assert {GENERATE, ASSISTED, PLAIN} == {writer.name for writer in writers}
    assert all(rate > 0 for writer in writers for rate in writer.write(TEXT).rates.values())


@pytest.mark.parametrize("products", ["int8", "fp32"])
def test_a_rerun_takes_the_products_that_the_run_recorded(
    products: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{tiny_file(tmp_path, 'Q4_0').path}+none"
    run = tmp_path / "run.json.gz"
    racing = ["--drafter", "ngram", "--max-new-tokens", "4", "--products", products]
    assert not main(["record", "Once", "--pair", name, *racing, "--out", str(run)])
    assert Trace.load(run).header.target["products"] == products
    loaded: list[str] = []

    def noted(options: argparse.Namespace) -> Pair:
        loaded.append(options.products)
        return named_pair(options)

    monkeypatch.setattr(cli, "named_pair", noted)
    assert not main(["check", "--rerun", "--pair", name, str(run)])
    assert loaded == [products]

"""The doctor's report from headers alone equals the report from the models."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_writer import write_model
from places import ROOT
from tiny_files import SPECIAL, tiny_file, tiny_model, tiny_tokenizer

pytest.importorskip("numba")

from specviz import load_pair
from specviz.base.environment import may_have_gpu
from specviz.core.model_facts import parameter_bytes
from specviz.files.gguf.header import read_gguf
from specviz.files.gguf.layout import quantized_file_bytes
from specviz.pairs import doctor
from specviz.pairs.doctor import examine
from specviz.pairs.report import Report
from specviz.pairs.table import NamedPair, named_pairs

FREE = 10**9


def without_headers(monkeypatch: pytest.MonkeyPatch, names: str, **options: Any) -> Report:
    """The report from the models, on torch's `meta` device."""
    with monkeypatch.context() as patched:
        patched.setattr(doctor, "examined_headers", lambda *_: None)
        return examine(names, device="cpu", free=FREE, **options)


def by_headers(monkeypatch: pytest.MonkeyPatch, names: str, **options: Any) -> Report:
    """The report from the headers alone; it fails if a model is made."""
    with monkeypatch.context() as patched:
        module = "specviz.pairs.examine_models.examined_models"
        patched.setattr(module, lambda *_: pytest.fail("the models were made"))
        return examine(names, device="cpu", free=FREE, **options)


def named(folder: Path, tied: bool, architecture: str, **draft: Any) -> str:
    """The name of a pair of files. draft: options of the draft's file."""
    target = tiny_file(folder, "Q4_K", architecture, tie_word_embeddings=tied)
    return f"{target.path}+{tiny_file(folder, 'Q8_0', architecture, name='draft', **draft).path}"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_headers_say_what_models_say(
    architecture: str, tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = named(tmp_path, tied, architecture, seed=1)
    for options in ({}, {"dtype": "bfloat16"}, {"tokens": 100}):
        found = by_headers(monkeypatch, names, **options)
        assert found == without_headers(monkeypatch, names, **options)
        assert found.draft == "draft" and set(found.drafters) > {"model", "ngram"}
    target = names.partition("+")[0] + "+none"
    alone = by_headers(monkeypatch, target)
    assert alone == without_headers(monkeypatch, target)


DRAFTS: dict[str, dict[str, Any]] = {
    "one layer": {"num_hidden_layers": 1},
    "a shorter context": {"max_position_embeddings": 64},
    "positions that are scaled": {
        "writing": {"fields": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2}}
    },
    "no template": {"writing": {"fields": {"tokenizer.chat_template": ""}}},
    "an end that is no turn's": {"writing": {"fields": {"tokenizer.ggml.eos_token_id": 0}}},
}


@pytest.mark.parametrize("case", DRAFTS)
def test_a_draft_that_differs_is_described_alike(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = named(tmp_path, True, "llama", seed=1, **DRAFTS[case])
    assert examine(names, device="cpu", free=FREE) == without_headers(monkeypatch, names)


def test_an_output_layer_that_is_stored_apart_though_tied_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(tie_word_embeddings=False)
    with torch.no_grad():
        model.get_output_embeddings().weight.copy_(model.get_input_embeddings().weight)
    write_model(model, tiny_tokenizer(), tmp_path / "model.gguf", "Q8_0")
    names = f"{tmp_path / 'model.gguf'}+none"
    assert by_headers(monkeypatch, names) == without_headers(monkeypatch, names)


def test_a_draft_with_other_pieces_is_described_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tiny_tokenizer(SPECIAL[:1], 300)
    names = named(tmp_path, True, "llama", seed=1, tokenizer=tokenizer)
    assert examine(names, device="cpu", free=FREE) == without_headers(monkeypatch, names)


@pytest.mark.skipif(may_have_gpu(), reason="torch is asked for the GPU")
def test_examining_files_imports_no_library_of_models(tmp_path: Path) -> None:
    """Importing them takes seconds, while the doctor needs one for two files."""
    names = named(tmp_path, True, "qwen2", seed=1)
    script = (
        "import sys; from specviz.__main__ import main; "
        f"main(['doctor', {names!r}]); main(['pairs']); "
        "print(sorted({'torch', 'transformers', 'gradio', 'numba'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "with draft can race" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("tied", [True, False])
def test_a_draft_to_which_the_table_gives_few_bits_takes_what_it_takes_once_loaded(
    tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tiny_file(tmp_path, "Q4_K").path)
    file = tiny_file(tmp_path, "Q5_0", name="draft", tie_word_embeddings=tied)
    row = replace(named_pairs()[0], target_dtype=None)
    monkeypatch.setattr(NamedPair, "draft_bits", lambda self, name: "4bit")
    monkeypatch.setattr(doctor, "_names", lambda *_: ([target, str(file.path)], row))
    found = by_headers(monkeypatch, "a row")
    assert found == without_headers(monkeypatch, "a row")
    assert any("as 4bit" in finding.sentence for finding in found.findings)
    draft = load_pair(f"{target}+{file.path}", draft_quantize="4bit").draft
    assert parameter_bytes(draft) == quantized_file_bytes(read_gguf(file.path), "Q4_0", "Q4_0")

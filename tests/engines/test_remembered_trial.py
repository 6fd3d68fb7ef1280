"""The model of a file is tried once, not in every process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

from tiny_files import tiny_file, tiny_model

from specviz import load_pair
from specviz.core.engine_choice import make_engine
from specviz.files.few_bits.stale_code import MARK
from specviz.sides.fast_cpu import support

SOURCES = "0123abcd"
VOCAB = 300


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that were tried, with no remembered trials at first."""
    tried: list[Any] = []
    gives_its_logits = support._gives_its_logits

    def noted(model: Any, engine: Any) -> bool:
        tried.append(model)
        return gives_its_logits(model, engine)

    code = tmp_path / "code"
    code.mkdir()
    (code / MARK).write_text(SOURCES)
    monkeypatch.setattr(support, "CODE", code)
    monkeypatch.setattr(support, "_gives_its_logits", noted)
    return tried


def engine_name(path: Path, vocab: int = VOCAB, **options: Any) -> str:
    """The name of the engine of a file's model, which is loaded as in another process."""
    return make_engine(load_pair(f"{path}+none", **options).target, vocab).name


def test_a_file_is_tried_once(trials: list[Any], tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    assert [engine_name(path), engine_name(path)] == ["compiled", "compiled"]
    assert len(trials) == 1


def test_what_changes_the_outcome_is_tried_again(trials: list[Any], tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    engine_name(path)
    engine_name(path, vocab=VOCAB - 1)
    engine_name(path, dtype="bfloat16")
    (support.CODE / MARK).write_text("of other code")
    engine_name(path)
    engine_name(tiny_file(tmp_path, "Q4_0", seed=1).path)
    assert len(trials) == 5


def test_a_failure_is_not_remembered(
    trials: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    with monkeypatch.context() as patched:
        patched.setattr(support, "_gives_its_logits", lambda *_: False)
        assert engine_name(path) != "compiled"
    assert engine_name(path) == "compiled" and len(trials) == 1


def test_a_model_of_no_file_is_tried_each_time(trials: list[Any]) -> None:
    for _ in range(2):
        make_engine(tiny_model(), VOCAB)
    assert len(trials) == 2


def test_without_a_folder_for_code_it_is_tried_each_time(trials: list[Any], tmp_path: Path) -> None:
    (support.CODE / MARK).unlink()
    path = tiny_file(tmp_path, "Q4_0").path
    for _ in range(2):
        assert engine_name(path) == "compiled"
    assert len(trials) == 2

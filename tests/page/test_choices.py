"""The pairs that the page offers; nobody can request others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sentences import Sentences

from specviz.base.errors import PairError, SpecvizError
from specviz.page import doctor
from specviz.page.choices import (
    OTHER,
    chosen_pair,
    listed_drafters,
    offered_pairs,
    pair_choices,
    pair_models,
)
from specviz.page.controls import defaults_of
from specviz.page.doctor import Doctor, doctor_questions
from specviz.pairs.table import named_pairs
from specviz.worker.tasks import ExamineTask, Host

LAPTOP = Host(free=16 * 10**9, cpu=True)
SERVER = Host(free=80 * 10**9, cpu=False)


def test_what_fits_comes_first() -> None:
    labels = [label for label, _ in pair_choices("builtin", LAPTOP)]
    fits = ["too large" not in label for label in labels]
    assert fits == sorted(fits, reverse=True)
    assert True in fits and False in fits
    assert not any("8 or 4 bits" in label for label in labels), "a processor runs no such weights"


def test_a_large_gpu_takes_more_than_a_laptop() -> None:
    def large(machine: Host) -> int:
        return sum("too large" in label for label, _ in pair_choices("builtin", machine))

    assert large(SERVER) < large(LAPTOP)


def test_what_must_be_fetched_first_says_how_much(sentences: Sentences) -> None:
    labels = {value: label for label, value in pair_choices("builtin", LAPTOP)}
    sentences(labels["qwen2.5-coder-1.5b"])
    assert "download" not in labels["builtin"]


def test_rows_of_the_same_files_say_in_how_many_bits_their_target_is() -> None:
    models = pair_models("builtin")
    packed = models["qwen2.5-coder-1.5b"]
    wide = models["qwen2.5-coder-1.5b-bf16"]
    assert (packed["target"], packed["draft"]) == (wide["target"], wide["draft"])
    assert (packed["bits"], wide["bits"]) == (4, 16)
    assert "bits" not in models["builtin"]


def test_every_pair_of_the_table_is_offered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in (None, LAPTOP, SERVER):
        values = [value for _, value in pair_choices("builtin", machine)]
        assert sorted(values) == sorted(pair.name for pair in named_pairs())
    monkeypatch.setenv("SPECVIZ_PAIRS", "qwen3-8b-0.6b, gpt2-xl-gpt2")
    assert {pair.name for pair in offered_pairs()} == {"builtin", "qwen3-8b-0.6b", "gpt2-xl-gpt2"}


def test_other_models_are_refused_unless_the_operator_allows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPECVIZ_ANY_MODEL", raising=False)
    assert chosen_pair("builtin", "", "", page_pair="builtin") == "builtin"
    assert chosen_pair("toy", "", "", page_pair="toy") == "toy"
    for asked in (OTHER, "owner/model+owner/draft", "/etc+none", "", None, 3, ["builtin"]):
        with pytest.raises(PairError, match="not offered"):
            chosen_pair(asked, "owner/model", "owner/draft", page_pair="builtin")
    with pytest.raises(PairError, match="weights"):
        chosen_pair("builtin", "", "", "2bit", page_pair="builtin")
    assert chosen_pair("builtin", "", "", "4bit", page_pair="builtin") == "builtin@4bit"
    monkeypatch.setenv("SPECVIZ_ANY_MODEL", "1")
    assert chosen_pair(OTHER, " a/b ", "c/d", page_pair="builtin") == "a/b+c/d"
    assert chosen_pair(OTHER, "a/b", "", page_pair="builtin") == "a/b+none"
    with pytest.raises(PairError, match="target"):
        chosen_pair(OTHER, " ", "c/d", page_pair="builtin")
    assert chosen_pair("owner/model+none", "", "", page_pair="builtin") == "owner/model+none"


def examining(known: dict[str, list[str]]) -> Callable[[dict[str, str]], dict[str, Any]]:
    """The page's question about a pair. known: the drafters of each pair, as the doctor finds
    them."""

    def run(task: ExamineTask) -> Iterator[Any]:
        yield {"verdict": "good", "summary": "", "findings": [], "drafters": known[task.pair]}

    worker: Any = SimpleNamespace(run=run, close=lambda: None)
    (examine,) = doctor_questions(Doctor(worker), "builtin")
    return lambda naming: examine({"target": "", "draft": "", "weights": "usual", **naming})


def test_of_a_pair_that_must_be_fetched_the_page_says_how(sentences: Sentences) -> None:
    """Its files cannot be read before, so the doctor is not asked."""
    told = examining({})({"pair": "qwen2.5-coder-1.5b"})
    assert told["verdict"] == "warning"
    sentences(told["summary"])
    sentences(told["fetch"])
    assert set(told["drafters"]) == {"model", "ngram", "suffix", "early-exit", "none"}


def test_a_pair_of_this_machine_offers_only_the_drafters_that_it_has(tmp_path: Path) -> None:
    """This holds for the page's own pair and for one that a visitor names, before it is
    examined."""
    head = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    for name, config in (("head", head), ("draft", model)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "draft.gguf").write_bytes(b"GGUF")
    target = tmp_path / "draft"
    for part in ("draft", "draft.gguf"):
        offered = listed_drafters(f"{target}+{tmp_path / part}") or ()
        assert {"model", "ngram", "early-exit"} <= set(offered)
        assert offered[0] == "model" and not {"head", "ngram-head"} & set(offered)
        assert defaults_of(f"{target}+{tmp_path / part}")["drafter"] == "model"
    offered = listed_drafters(f"{target}+{tmp_path / 'head'}") or ()
    assert offered[0] == "head" and "model" not in offered
    assert "head" in (listed_drafters(f"{target}+mtp") or ())
    assert "head" in (listed_drafters(f"{target}+AngelSlim/Qwen3-4B_eagle3") or ())
    assert "head" not in (listed_drafters("owner/target+Qwen/Qwen3-0.6B") or ("head",))
    assert not {"head", "model"} & set(listed_drafters(f"{target}+none") or ())
    assert listed_drafters("owner/target+somebody/something-new") is None  # the doctor decides
    assert listed_drafters("no pair") is None


def test_of_models_that_are_named_the_page_hears_their_drafters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECVIZ_ANY_MODEL", "1")
    alone = ["ngram", "early-exit", "none"]
    both = ["model", "ngram", "none"]
    examine = examining({"a/b+none": alone, "a/b+c/d": both, "a/b+c/d@4bit": both})
    told = examine({"pair": OTHER, "target": "a/b"})
    assert (told["models"], told["fetch"]) == ("a/b+none", None)
    assert told["drafters"][0] == "ngram" and "model" not in told["drafters"]
    told = examine({"pair": OTHER, "target": "a/b", "draft": "c/d"})
    assert (told["drafters"], told["models"]) == (both, "a/b+c/d")
    told = examine({"pair": OTHER, "target": "a/b", "draft": "c/d", "weights": "4bit"})
    assert told["models"] == "a/b+c/d", "other weights of the same models change no choice"
    with pytest.raises(PairError, match="Name a target"):
        examine({"pair": OTHER})


def test_no_more_visitors_wait_for_the_doctor_than_there_are_threads_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "MAX_WAITING", 0)
    with pytest.raises(SpecvizError, match="choose this one again"):
        examining({})({"pair": "builtin"})

"""A sweep's settings for other engines can be pasted, and are the best that each engine can run."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sentences import Sentences

from specviz.measure.sweep.deploy import engine_settings, recommendations
from specviz.measure.sweep.model_locations import locate_models
from specviz.measure.sweep.types import (
    Configuration,
    EngineSettings,
    Machine,
    Measured,
    ModelLocation,
    RoundTimes,
    Row,
    SweepRequest,
)
from specviz.pairs.prompts import PromptOfKind
from specviz.runs.uncertainty import Estimate, Spread

MACHINE = Machine(
    pair="a pair",
    target="owner/target",
    draft="owner/draft",
    device="CPU",
    processor="",
    dtype="bfloat16",
    form="compiled",
    threads=2,
    versions={},
    date="2026-11-25T12:00:00+00:00",
    exit_layers=4,
)
REQUEST = SweepRequest((PromptOfKind("prose", "once"),))
FILES = replace(
    MACHINE,
    target_place=ModelLocation("/my models/a target.gguf", "/my models/a target.gguf"),
    draft_place=ModelLocation("draft.gguf", "draft.gguf"),
)


def measured(drafter: str, speed: float, mark: Any = None, gamma: int = 5) -> Row:
    figures = Measured(
        tau=3.0,
        alpha=0.8,
        alpha_by_position=(0.8,),
        efficiency=0.7,
        drafted=float(gamma),
        runs=8,
        prompts=8,
        rate=Spread(100.0, 90.0, 110.0),
        alone_rate=Spread(60.0, 50.0, 70.0),
        speedup=Estimate(speed, speed - 0.05, speed + 0.05),
        by_kind={},
        tau_predicted=3.0,
        c=0.1,
        times=RoundTimes(1.0, 1.0, 1.0, 1.0),
        doubts=0,
    )
    configuration = Configuration(drafter, gamma, "fixed", 0.0)
    return Row(configuration, "measured", mark, measured=figures)


def given(rows: list[Row], machine: Machine = MACHINE) -> dict[str, EngineSettings]:
    (advice,) = recommendations(rows, machine, REQUEST)
    assert advice.answer == "speculate"
    return {one.engine: one for one in advice.settings}


def test_each_engine_gets_the_best_row_that_it_can_run(sentences: Sentences) -> None:
    rows = [
        measured("ngram", 1.2, gamma=8),
        measured("ngram-head", 1.6, "best"),
        measured("ngram", 1.3, gamma=3),
        measured("suffix", 1.4),
        measured("early-exit", 0.6),
    ]
    settings = given(rows)
    assert all(one.text for one in settings.values())
    assert "prompt_lookup_num_tokens=3" in settings["transformers"].text
    assert '"method": "suffix"' in settings["vLLM"].text
    assert "--speculative-num-draft-tokens 4" in settings["SGLang"].text
    assert "--spec-ngram-simple-size-m 3" in settings["llama.cpp"].text
    sentences(settings["SGLang"].note)


def test_an_engine_gets_no_row_that_does_not_pay(sentences: Sentences) -> None:
    rows = [
        measured("ngram-head", 1.6, "best"),
        measured("ngram", 0.9),
        replace(measured("model", 1.5), mark="open"),
    ]
    for engine, settings in given(rows).items():
        assert settings.text == ""
        sentences(f"{engine}: {settings.note}")


def test_the_best_row_needs_no_word_on_which_row_it_is() -> None:
    settings = given([measured("model", 1.8, "best"), measured("ngram", 1.5)])
    assert all(one.text and "cannot run" not in one.note for one in settings.values())


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_names_and_paths_come_through_a_shell_as_they_are(drafter: str) -> None:
    machine = replace(
        FILES,
        target_place=ModelLocation("/it's my/a target & more", None),
        draft_place=ModelLocation("a draft; it's", None),
    )
    rows = [measured(drafter, 1.8, "best")]
    settings = {one.engine: one.text for one in engine_settings(rows, machine)}
    words = shlex.split(settings["vLLM"])
    assert words[:4] == ["vllm", "serve", "/it's my/a target & more", "--speculative-config"]
    assert json.loads(words[4])["num_speculative_tokens"] == 5
    words = shlex.split(settings["SGLang"])
    assert words[words.index("--model-path") + 1] == "/it's my/a target & more"
    if drafter == "model":
        assert words[words.index("--speculative-draft-model-path") + 1] == "a draft; it's"


def test_llama_cpp_gets_the_files_themselves(sentences: Sentences) -> None:
    settings = {one.engine: one for one in engine_settings([measured("model", 1.8)], FILES)}
    words = shlex.split(settings["llama.cpp"].text)
    assert words[words.index("-m") + 1] == "/my models/a target.gguf"
    assert words[words.index("--spec-draft-model") + 1] == "draft.gguf"
    assert "GGUF" not in settings["llama.cpp"].note
    assert "from_pretrained('.', gguf_file='draft.gguf')" in settings["transformers"].text
    without = {one.engine: one for one in engine_settings([measured("model", 1.8)], MACHINE)}
    sentences(without["llama.cpp"].note)


def test_a_pair_of_published_files_is_named_by_its_repositories(sentences: Sentences) -> None:
    machine = replace(
        MACHINE,
        target_place=ModelLocation(
            "owner/target", "target-q4.gguf", repository="owner/target-GGUF"
        ),
        draft_place=ModelLocation("owner/draft", "draft-q4.gguf", repository="owner/draft-GGUF"),
    )
    rows = [measured("model", 1.8, "best")]
    settings = {one.engine: one for one in engine_settings(rows, machine)}
    assert "from_pretrained('owner/draft')" in settings["transformers"].text
    assert "vllm serve owner/target " in settings["vLLM"].text and not settings["vLLM"].note
    assert "-m target-q4.gguf" in settings["llama.cpp"].text
    sentences(settings["llama.cpp"].note)


def test_places_are_what_somebody_typed(tmp_path: Path) -> None:
    file = tmp_path / "a target.gguf"
    file.write_bytes(b"GGUF")
    (tmp_path / "draft").mkdir()

    def found(name: str, draft: str | None = "told draft") -> Any:
        return locate_models(SimpleNamespace(name=name, target=None, draft=None), "told", draft)

    assert found(f"{file}+{tmp_path / 'draft'}") == (
        ModelLocation(str(file), str(file)),
        ModelLocation(str(tmp_path / "draft")),
    )
    assert found("owner/target+owner/draft") == (ModelLocation("told"), ModelLocation("told draft"))
    assert found(f"{file}+none", None) == (ModelLocation(str(file), str(file)), None)
    assert found("of my own") == (ModelLocation("told"), ModelLocation("told draft"))
    coder = "Qwen/Qwen2.5-Coder-{}-Instruct"
    assert found("qwen2.5-coder-1.5b") == tuple(
        ModelLocation(
            coder.format(size),
            f"qwen2.5-coder-{size.lower()}-instruct-q4_k_m.gguf",
            repository=f"{coder.format(size)}-GGUF",
        )
        for size in ("1.5B", "0.5B")
    )
    target, draft = found("smollm2-135m", None)
    assert target.name == "HuggingFaceTB/SmolLM2-135M-Instruct" and draft is None

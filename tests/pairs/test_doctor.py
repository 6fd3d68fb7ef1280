"""The doctor: its findings before any weights are read, and its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_reports import sentence_about
from model_families import (
    FAMILIES,
    PAST_ELSEWHERE,
    build,
    saved,
    saved_family,
    saved_llama,
    small_tokenizer,
)
from safetensors.torch import load_file
from sentences import Sentences
from toy_models import tokenizer_of, words

from specviz.__main__ import main
from specviz.files.findings import rollback_findings, size_findings
from specviz.files.memory import shown_bytes
from specviz.files.metadata import ModelMetadata, meta_model, read_metadata
from specviz.files.source import ModelSource
from specviz.pairs.doctor import examine


def test_a_good_pair_has_the_verdict_good(good_pair: tuple[Path, Path], sentences: Sentences):
    report = examine(*map(str, good_pair))
    assert report.verdict == "good"
    sentences(report.summary)
    sentences(sentence_about(report, "tokenizer", "good"))
    sentences(sentence_about(report, "size", "good"))
    assert {f.topic for f in report.findings} >= {"rollback", "context", "chat", "memory"}
    assert all(f.sentence.endswith(".") for f in report.findings)
    assert not any(str(good_pair[0].parent) in f.sentence for f in report.findings)


def test_a_draft_that_is_too_large_is_not_told_to_choose_itself(good_pair: tuple[Path, Path]):
    models = [read_metadata(str(folder)) for folder in reversed(good_pair)]
    (other,) = size_findings(models, "owner/smaller")
    assert other.level == "warning" and "choose owner/smaller." in other.sentence
    (itself,) = size_findings(models, f"owner/{models[1].source.shown}")
    assert itself.level == "warning" and "choose" not in itself.sentence


def test_memory_counts_weights_and_caches(good_pair: tuple[Path, Path]):
    report = examine(*map(str, good_pair), tokens=100)
    numbers = {
        name: sum(t.numel() for t in load_file(path / "model.safetensors").values())
        for name, path in zip(("target", "draft"), good_pair, strict=True)
    }
    # The target has two layers of 24 numbers for key and value in each of four lanes; the draft has
    # one layer of 8 in each of three.
    cached = 100 * (4 * 2 * 2 * 24 + 3 * 2 * 8)
    assert report.memory["float32"] == 4 * (sum(numbers.values()) + cached)
    assert report.memory["bfloat16"] == 2 * (sum(numbers.values()) + cached)
    assert report.memory["4bit"] < report.memory["8bit"] < report.memory["bfloat16"]


def test_caches_take_no_more_than_windows_and_contexts_allow(tmp_path: Path):
    target, _ = saved_family(tmp_path, "mistral, sliding", noise=0.1)
    memory = [examine(str(target), tokens=tokens).memory["float32"] for tokens in (8, 500)]
    assert memory[0] == memory[1]  # its window has 8 tokens
    target = saved_llama(tmp_path / "short", max_position_embeddings=16)
    memory = [examine(str(target), tokens=tokens).memory["float32"] for tokens in (8, 16, 500)]
    assert memory[0] < memory[1] == memory[2]


@pytest.mark.parametrize(("target", "draft"), [(12, 8), (8, 12), (16, 10)])
def test_vocabularies_padded_to_different_sizes_are_fine(
    tmp_path: Path, target: int, draft: int, sentences: Sentences
):
    names = [str(saved_llama(tmp_path / str(n), vocab=n)) for n in (target, draft)]
    report = examine(*names)
    sentences(sentence_about(report, "vocabulary", "good"))
    assert report.verdict != "stop"


def test_tokenizers_with_nothing_in_common_are_stopped_with_numbers(
    tmp_path: Path, sentences: Sentences
):
    foreign = tokenizer_of({"w0" if i == 0 else f"x{i}": i for i in range(40)})
    names = [
        saved_llama(tmp_path / "one", vocab=40, tokenizer=words(40)),
        saved_llama(tmp_path / "two", vocab=40, tokenizer=foreign),
    ]
    report = examine(*map(str, names))
    assert report.verdict == "stop"
    sentences(sentence_about(report, "tokenizer", "stop"))


def test_another_draft_is_named_where_one_is_known(tmp_path: Path, sentences: Sentences):
    target = saved_llama(tmp_path / "Qwen2.5-7B-Instruct")
    report = examine(str(target), str(saved_llama(tmp_path / "two", tokenizer=words(7))))
    assert report.suggested == "Qwen/Qwen2.5-0.5B-Instruct"
    sentences(sentence_about(report, "tokenizer", "warning"))
    sentences(sentence_about(examine(str(target)), "draft", "good"))


def test_different_end_of_text_tokens_are_mentioned(tmp_path: Path, sentences: Sentences):
    names = [
        saved_llama(tmp_path / "one", eos_token_id=3),
        saved_llama(tmp_path / "two", eos_token_id=4),
    ]
    sentences(sentence_about(examine(*map(str, names)), "special tokens", "warning"))


@pytest.mark.parametrize("free", [0, 20_000])
def test_a_pair_that_is_too_large_is_stopped_with_numbers(
    good_pair: tuple[Path, Path], free: int, sentences: Sentences
):
    report = examine(*map(str, good_pair), free=free, device="cpu")
    assert report.verdict == "stop" and report.free == free
    sentences(sentence_about(report, "memory", "stop"))


def test_the_report_says_what_would_fit(good_pair: tuple[Path, Path], sentences: Sentences):
    memory = examine(*map(str, good_pair)).memory
    between = (memory["float32"] + memory["bfloat16"]) // 2
    report = examine(*map(str, good_pair), free=between, device="cpu")
    sentences(sentence_about(report, "memory", "stop"))
    assert examine(*map(str, good_pair), free=between, dtype="bfloat16").verdict != "stop"
    tight = examine(*map(str, good_pair), free=memory["float32"] + 1, device="cpu")
    sentences(sentence_about(tight, "memory", "warning"))


def test_a_draft_with_a_shorter_context_is_mentioned(tmp_path: Path, sentences: Sentences):
    names = [saved_llama(tmp_path / str(n), max_position_embeddings=n) for n in (64, 32)]
    sentences(sentence_about(examine(*map(str, names)), "context", "warning"))


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_families_that_race_are_not_stopped(tmp_path: Path, kind: str):
    report = examine(*map(str, saved_family(tmp_path, kind, noise=0.1)))
    assert report.verdict == "warning", report.findings  # the draft is as large as the target
    assert sum(f.topic == "rollback" and f.level == "good" for f in report.findings) == 2
    assert ("8-bit" in str(report.findings)) == (kind == "mixtral")


@pytest.mark.parametrize("kind", sorted(PAST_ELSEWHERE.keys() - {"minimax"}))
def test_models_that_cannot_roll_back_are_stopped(tmp_path: Path, kind: str, sentences: Sentences):
    bad = saved(tmp_path / "bad", build(kind, vocab_size=288), small_tokenizer())
    sentences(sentence_about(examine(str(bad)), "rollback", "stop"))


@pytest.mark.parametrize(
    ("kind", "channels", "state"),
    [("bamba", 4 * 16 + 2 * 8, 4 * 16 * 8), ("qwen 3.5", 48, 2 * 8 * 8)],
)
def test_the_price_of_running_states_is_said(
    kind: str, channels: int, state: int, sentences: Sentences
):
    """One layer keeps four inputs of a convolution in 16 bits, and the state in fp32."""
    (finding,) = rollback_findings(metadata_of(kind))
    size = shown_bytes(4 * channels * 2 + state * 4)
    assert finding.level == "good" and f"about {size}. After a rejection" in finding.sentence
    sentences(finding.sentence)


@pytest.mark.parametrize("kind", ["mamba", "falcon mamba", "jamba", "zamba"])
def test_states_that_longer_passes_do_not_read_are_told_without_weights(
    kind: str, sentences: Sentences
):
    (finding,) = rollback_findings(metadata_of(kind))
    assert finding.level == "warning"
    sentences(finding.sentence)


def test_what_cannot_be_tried_without_weights_says_so(sentences: Sentences):
    (finding,) = rollback_findings(metadata_of("minimax"))
    assert finding.level == "warning"
    sentences(finding.sentence)


def metadata_of(kind: str) -> ModelMetadata:
    return ModelMetadata(ModelSource("a model", None), meta_model(build(kind).config), None)


def test_a_base_draft_for_a_tuned_target_is_mentioned(tmp_path: Path, sentences: Sentences):
    tuned = words(8)
    tuned.chat_template = "{{ messages[0].content }}"
    names = [
        str(saved_llama(tmp_path / "one", tokenizer=tuned)),
        str(saved_llama(tmp_path / "two")),
    ]
    sentences(sentence_about(examine(*names), "chat", "warning"))
    sentences(sentence_about(examine(*names[::-1]), "chat", "warning"))
    sentences(sentence_about(examine(names[0], names[0]), "chat", "good"))


def test_a_target_alone_is_examined(good_pair: tuple[Path, Path], sentences: Sentences):
    report = examine(str(good_pair[0]))
    assert report.verdict == "good" and report.draft is None
    sentences(sentence_about(report, "draft", "good"))
    assert examine(f"{good_pair[0]}+none").draft is None


def test_a_pair_may_be_named_as_one(good_pair: tuple[Path, Path]):
    assert examine("+".join(map(str, good_pair))).draft == "draft"
    assert examine("builtin").verdict != "stop"


def test_quantized_weights_that_passes_do_not_read_are_stopped(
    good_pair: tuple[Path, Path], monkeypatch: Any, sentences: Sentences
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    report = examine(*map(str, good_pair), quantize="4bit")
    sentences(sentence_about(report, "precision", "stop"))


# On the command line


def test_the_command_prints_findings_and_a_verdict(
    good_pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    assert main(["doctor", *map(str, good_pair)]) == 0
    printed = capsys.readouterr().out
    assert "✓ good    tokenizer" in printed and "ready to race." in printed
    assert "as 4bit" in printed
    assert main(["doctor", *map(str, good_pair), "--free", "0.00001"]) == 1
    assert "✗ stop    memory" in capsys.readouterr().out


def test_the_command_prints_json(good_pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", str(good_pair[0]), "/no/where", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "stop" and report["draft"] == "where"
    assert {"level": "stop", "topic": "model"} in [
        {key: finding[key] for key in ("level", "topic")} for finding in report["findings"]
    ]

"""Folders of heads: loading with a target, the doctor, and sentences for heads that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doctor_reports import sentence_about
from model_families import saved_llama
from safetensors.torch import load_file, save_file
from sentences import Sentences
from toy_heads import ToyHead
from transformers import AutoModelForCausalLM

from specviz import Settings, load_pair, race, speculate
from specviz.base.errors import PairError
from specviz.pairs.doctor import examine

LAYERS = 6


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = dict(hidden_size=32, head_dim=32, num_hidden_layers=LAYERS, num_attention_heads=2)
    return saved_llama(tmp_path_factory.mktemp("with-head") / "target", **sizes)


@pytest.fixture
def head(target: Path) -> ToyHead:
    model = AutoModelForCausalLM.from_pretrained(target)
    return ToyHead(model, (2, 3, 5), range(0, model.config.vocab_size, 2))


def test_a_target_with_a_head_loads_by_name_and_races(
    head: ToyHead, target: Path, tmp_path: Path, sentences: Sentences
):
    folder = head.save_speculators(tmp_path / "head")
    pair = load_pair(f"{target}+{folder}", device="cpu")
    assert pair.draft is None and pair.head.config.states == (2, 3, 5)
    # Such a pair drafts with its head by default.
    assert pair.drafters == ("head", "ngram-head", "ngram", "suffix", "early-exit", "none")
    rounds = list(speculate(pair, [1, 2, 3], pair.settings(max_new_tokens=9)))
    assert any(r.drafted for r in rounds)
    header = next(iter(race(pair, [1, 2, 3])))
    assert header.settings.drafter == "head"
    with sentences.raises(PairError):
        next(race(pair, [1, 2, 3], Settings()))
    report = examine(str(target), str(folder))
    assert report.verdict == "good"
    sentences(sentence_about(report, "head", "good"))
    assert report.memory["float32"] > examine(str(target)).memory["float32"]


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def changed(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


FAULTS: list[tuple[dict[str, object], Callable[[Path], object]]] = [
    ({"target_hidden_size": 64}, lambda folder: None),
    ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}}, lambda folder: None),
    ({"vocab_size": 9999}, lambda folder: None),
    ({"num_hidden_layers": 2}, lambda folder: None),
    ({"norm_output": True}, lambda folder: None),
    ({"hidden_size": None}, lambda folder: None),
    ({"draft_vocab_size": 3}, lambda folder: None),
    ({}, pickled),
    ({}, changed(lambda w: w.pop("fc.weight"))),
    ({}, changed(lambda w: w.update(extra=torch.ones(1)))),
    ({}, changed(lambda w: w["d2t"].add_(99))),
]


@pytest.mark.parametrize(("config", "damage"), FAULTS)
def test_a_head_that_does_not_fit_gets_one_sentence(
    head: ToyHead,
    target: Path,
    tmp_path: Path,
    config: dict[str, object],
    damage: Callable[[Path], object],
    sentences: Sentences,
):
    folder = head.save_eagle(tmp_path / "head", **config)
    damage(folder)
    with sentences.raises(PairError) as caught:
        load_pair(f"{target}+{folder}", device="cpu")
    shown = str(caught.value)
    # The doctor reports faults outside the weights too, in the same words.
    if (config and "weights" not in shown) or damage is pickled:
        assert sentence_about(examine(str(target), str(folder)), "head", "stop") == shown

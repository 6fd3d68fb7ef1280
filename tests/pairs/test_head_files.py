"""Folders of heads: loading with a target, the doctor, and sentences for what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doctor_reports import sentence_about
from model_families import saved_llama
from safetensors.torch import load_file, save_file
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


def test_a_target_with_a_head_loads_by_name_and_races(head: ToyHead, target: Path, tmp_path: Path):
    folder = head.save_speculators(tmp_path / "head")
    pair = load_pair(f"{target}+{folder}", device="cpu")
    assert pair.draft is None and pair.head.config.states == (2, 3, 5)
    # Nobody has to say that such a pair drafts with its head.
    assert pair.drafters == ("head", "ngram-head", "ngram", "suffix", "early-exit", "none")
    rounds = list(speculate(pair, [1, 2, 3], pair.settings(max_new_tokens=9)))
    assert any(r.drafted for r in rounds)
    header = next(iter(race(pair, [1, 2, 3])))
    assert header.settings.drafter == "head"
    with pytest.raises(PairError, match=r"no draft model: .* offers: head, ngram-head, ngram"):
        next(race(pair, [1, 2, 3], Settings()))
    report = examine(str(target), str(folder))
    assert report.verdict == "good"
    drafted, whole = len(head.drafted), head.target.config.vocab_size
    shown = sentence_about(report, "head", "good")
    assert "after 2, 3, 5 of its 6 layers" in shown
    assert f"draft {drafted} of the target's {whole} tokens" in shown
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


FAULTS: list[tuple[dict[str, object], Callable[[Path], object], str]] = [
    ({"target_hidden_size": 64}, lambda folder: None, "width 64 and the target's have width 32"),
    (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}},
        lambda folder: None,
        "after 2, 4, 7 layers and the target has 6",
    ),
    ({"vocab_size": 9999}, lambda folder: None, "vocabulary of 9,999 tokens"),
    ({"num_hidden_layers": 2}, lambda folder: None, "a head with 2 layers"),
    ({"norm_output": True}, lambda folder: None, "a head with norm_output"),
    ({"hidden_size": None}, lambda folder: None, "damaged or incomplete config.json"),
    ({"draft_vocab_size": 3}, lambda folder: None, "does not hold the weights"),
    ({}, pickled, "only as pickles, which can run any code"),
    ({}, changed(lambda w: w.pop("fc.weight")), "does not hold the weights"),
    ({}, changed(lambda w: w.update(extra=torch.ones(1))), "does not hold the weights"),
    ({}, changed(lambda w: w["d2t"].add_(99)), "outside of the target's vocabulary"),
]


@pytest.mark.parametrize(("config", "damage", "sentence"), FAULTS)
def test_a_head_that_does_not_fit_gets_one_sentence(
    head: ToyHead,
    target: Path,
    tmp_path: Path,
    config: dict[str, object],
    damage: Callable[[Path], object],
    sentence: str,
):
    folder = head.save_eagle(tmp_path / "head", **config)
    damage(folder)
    with pytest.raises(PairError, match=sentence) as caught:
        load_pair(f"{target}+{folder}", device="cpu")
    shown = str(caught.value)
    assert shown.endswith(".") and str(tmp_path) not in shown
    # What needs no weights, the doctor says too, in the same words.
    if (config and "weights" not in sentence) or damage is pickled:
        assert sentence_about(examine(str(target), str(folder)), "head", "stop") == shown

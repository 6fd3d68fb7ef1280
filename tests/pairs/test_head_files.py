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
from specviz.errors import PairError
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
    assert report.verdict == "warning" and report.summary.startswith("target with head can race")
    assert "after 2, 3, 5 of its 6 layers" in sentence_about(report, "head", "good")
    assert "trained for someone/another" in sentence_about(report, "head", "warning")
    drafted, whole = len(head.drafted), head.target.config.vocab_size
    shown = sentence_about(report, "vocabulary", "good")
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
        "after 2, 4 and 7 layers and the target has 6",
    ),
    ({"vocab_size": 9999}, lambda folder: None, "vocabulary of 9,999 tokens"),
    ({"num_hidden_layers": 2}, lambda folder: None, "a head with 2 layers"),
    ({"norm_output": True}, lambda folder: None, "a head with norm_output"),
    ({"hidden_size": None}, lambda folder: None, "damaged or incomplete config.json"),
    ({"draft_vocab_size": 3}, lambda folder: None, "does not fit its own config.json: d2t"),
    ({}, pickled, "only as pickles, which can run any code"),
    ({}, changed(lambda w: w.pop("fc.weight")), "lacks weights, fc.weight among them"),
    ({}, changed(lambda w: w.update(extra=torch.ones(1))), "has a weight extra, which"),
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
    if (config and "d2t" not in sentence) or damage is pickled:
        assert sentence_about(examine(str(target), str(folder)), "head", "stop") == shown


def test_the_doctor_tells_what_the_table_knows_of_a_head_and_what_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("specviz.pairs.hub.constants.HF_HUB_OFFLINE", True)
    known = examine("qwen3-4b-eagle3", free=10**12)
    said = sentence_about(known, "head", "good")
    assert "218 million parameters, states of width 2,560, 32,000 tokens" in said
    assert said.endswith("unknown until the hub is asked: licence.")
    # bf16 or fp32 weights, and caches in the lanes of a race of four
    assert "by the table of pairs" in sentence_about(known, "memory", "good")
    unknown = examine("qwen3-8b-speculator", free=10**12)
    said = sentence_about(unknown, "head", "good")
    assert "the format speculators, with the licence apache-2.0; unknown" in said
    assert "parameters, width, vocabulary, file." in said
    assert not [one for one in unknown.findings if one.topic == "memory"]
    pickles = sentence_about(examine("llama-3.1-8b-eagle3"), "head", "stop")
    assert "only as pickles" in pickles and "save it again as safetensors" in pickles

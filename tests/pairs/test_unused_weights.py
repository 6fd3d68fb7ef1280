"""Folders whose weights do not match their config are refused, because another model would run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_families import saved_llama
from safetensors.torch import load_file, save_file
from sentences import Sentences

from specviz import load_pair
from specviz.base.errors import PairError
from specviz.files.source import ModelSource
from specviz.files.weights import LoadOptions, load_model
from specviz.pairs.doctor import examine

State = dict[str, torch.Tensor]


def changed(folder: Path, change: Callable[[State], State], **config: Any) -> str:
    """Save a model's folder with changed weights or config."""
    saved_llama(folder)
    weights = folder / "model.safetensors"
    save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return str(folder)


def another_layer(state: State) -> State:
    more = {name.replace("layers.0.", "layers.1."): t.clone() for name, t in state.items()}
    return more | state


def with_bias(state: State) -> State:
    queries = state["model.layers.0.self_attn.q_proj.weight"]
    return {**state, "model.layers.0.self_attn.q_proj.bias": queries[:, 0].clone()}


def with_more(name: str) -> Callable[[State], State]:
    return lambda state: {**state, name: torch.ones(3)}


UNUSED = {
    "another layer": another_layer,
    "a bias": with_bias,
    "a norm of queries": with_more("model.layers.0.self_attn.q_norm.weight"),
    "a name of nobody": with_more("extra"),
}


@pytest.mark.parametrize("name", UNUSED)
def test_weights_that_no_part_of_a_model_uses_are_refused(
    name: str, tmp_path: Path, sentences: Sentences
) -> None:
    folder = changed(tmp_path / "model", UNUSED[name])
    with sentences.raises(PairError):
        load_pair(f"{folder}+none")
    assert examine(f"{folder}+none").verdict == "stop"
    with sentences.raises(PairError):
        # This is the path of a model on the hub, whose files are checked only when they are read.
        load_model(ModelSource(folder, Path(folder)), LoadOptions(device=torch.device("cpu")))


HARMLESS = {
    "frequencies": "model.layers.0.self_attn.rotary_emb.inv_freq",
    "positions": "model.position_ids",
    "layers that only drafts use": "mtp.layers.0.norm.weight",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_is_no_reason_to_refuse(name: str, tmp_path: Path) -> None:
    load_pair(f"{changed(tmp_path / 'model', with_more(HARMLESS[name]))}+none")


def test_layers_that_predict_more_tokens_are_no_reason_to_refuse(tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", another_layer, num_nextn_predict_layers=1)
    load_pair(f"{folder}+none")


def test_a_tied_output_layer_may_be_there_or_not(tmp_path: Path) -> None:
    def tied(state: State) -> State:
        return {**state, "lm_head.weight": state["model.embed_tokens.weight"].clone()}

    def once(state: State) -> State:
        return {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}

    for index, change in enumerate((tied, once)):
        folder = changed(tmp_path / str(index), change, tie_word_embeddings=True)
        load_pair(f"{folder}+none")


def test_missing_weights_and_other_shapes_are_refused(tmp_path: Path, sentences: Sentences) -> None:
    def without_gate(state: State) -> State:
        return {name: tensor for name, tensor in state.items() if "gate_proj" not in name}

    def short_norm(state: State) -> State:
        return {**state, "model.norm.weight": torch.ones(3)}

    for index, change in enumerate((without_gate, short_norm)):
        folder = changed(tmp_path / str(index), change)
        with sentences.raises(PairError):
            load_pair(f"{folder}+none")

"""A trained model as the beginning of a larger one: what it has learnt is not learnt again.

What is added changes nothing at first: new rows that read are random, new columns that write are
zero (Chen et al. 2016, "Net2Net", arXiv 1511.05641; Wu et al. 2024, "LLaMA Pro", arXiv
2401.02415). Only where heads come to share their keys and values does the function change: they
begin as the mean of the old ones (Ainslie et al. 2023, "GQA", arXiv 2305.13245).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from ..errors import SpecvizError


@torch.no_grad()
def grow(model: LlamaForCausalLM, seed: LlamaForCausalLM) -> None:
    """Begin `model` in place as the smaller `seed`, of the same vocabulary and head width.

    Raises SpecvizError if `seed` is larger in any direction, or its heads cannot be shared out.
    """
    _check(model.config, seed.config)
    width = seed.config.hidden_size
    embedding = model.model.embed_tokens.weight
    embedding.zero_()
    embedding[:, :width] = seed.model.embed_tokens.weight
    _norm(model.model.norm.weight, seed.model.norm.weight)
    origins = _origins(len(model.model.layers), len(seed.model.layers))
    for place, (layer, origin) in enumerate(zip(model.model.layers, origins, strict=True)):
        _layer(layer, seed.model.layers[origin], model.config, seed.config)
        if place and origins[place - 1] == origin:  # a layer repeated: silent at first
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()


def _check(config: Any, seed: Any) -> None:
    larger = [
        name
        for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
        if getattr(seed, name) > getattr(config, name)
    ]
    shared = config.num_key_value_heads
    if larger or seed.vocab_size != config.vocab_size or seed.head_dim != config.head_dim:
        raise SpecvizError(
            "The model to begin from does not fit into the new one: choose a shape that is at "
            "least as deep and as wide, and the same tokenizer."
        )
    if seed.num_key_value_heads % shared or seed.num_attention_heads % shared:
        raise SpecvizError(
            f"The model to begin from has {seed.num_attention_heads} heads, which cannot be shared "
            f"out over {shared} of keys and values: choose another width."
        )


def _origins(layers: int, old: int) -> list[int]:
    """Which old layer each new one begins as: all in order, some of them twice, evenly spread."""
    return [place * old // layers for place in range(layers)]


def _layer(layer: Any, old: Any, config: Any, seed: Any) -> None:
    """One block from one block."""
    ours, theirs, width = layer.self_attn, old.self_attn, seed.hidden_size
    head, shared = config.head_dim, config.num_key_value_heads
    group, old_group = config.num_attention_heads // shared, seed.num_attention_heads // shared
    # Old heads stay with the keys that are made of their own.
    q = ours.q_proj.weight.view(shared, group, head, -1)
    q[:, :old_group, :, :width] = theirs.q_proj.weight.view(shared, old_group, head, width)
    for name in ("k_proj", "v_proj"):
        mean = getattr(theirs, name).weight.view(shared, -1, head, width).mean(1)
        getattr(ours, name).weight.view(shared, head, -1)[..., :width] = mean
    out = ours.o_proj.weight.zero_().view(-1, shared, group, head)
    out[:width, :, :old_group] = theirs.o_proj.weight.view(width, shared, old_group, head)

    inner = seed.intermediate_size
    for name in ("gate_proj", "up_proj"):
        getattr(layer.mlp, name).weight[:inner, :width] = getattr(old.mlp, name).weight
    layer.mlp.down_proj.weight.zero_()[:width, :inner] = old.mlp.down_proj.weight
    _norm(layer.input_layernorm.weight, old.input_layernorm.weight)
    _norm(layer.post_attention_layernorm.weight, old.post_attention_layernorm.weight)


def _norm(weight: Tensor, old: Tensor) -> None:
    # The mean of squares is over more entries of which the new ones are zero: normed entries
    # come out larger by this factor.
    weight.fill_(1.0)
    weight[: len(old)] = old * math.sqrt(len(old) / len(weight))

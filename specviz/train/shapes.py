"""Shapes of the models that are trained, models of a shape, and growth: a trained model gives a
larger one its initial weights.

The new weights do not change the output at first: new rows that read the hidden state are random,
new columns that write to it are zero (Chen et al. 2016, "Net2Net", arXiv 1511.05641; Wu et al.
2024, "LLaMA Pro", arXiv 2401.02415). The output changes only if more heads share their keys and
values than before: these start as the mean of the old ones (Ainslie et al. 2023, "GQA", arXiv
2305.13245).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from ..errors import SpecvizError

HEAD_WIDTH = 64
CONTEXT = 1024  # positions
MOST_SHARED = 3  # most query heads per key-value head; sharing makes a long context cheaper


@dataclass(frozen=True)
class Shape:
    """The depth and width of a Llama, from which all other sizes follow.

    Raises `SpecvizError` if no model can have this shape.
    """

    layers: int
    width: int

    def __post_init__(self) -> None:
        if self.layers < 1 or self.width < HEAD_WIDTH or self.width % HEAD_WIDTH:
            raise SpecvizError(
                f"A model of {self.layers} layers x {self.width} cannot be built: use at least one "
                f"layer and a width that is a multiple of {HEAD_WIDTH}."
            )

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.width // HEAD_WIDTH

    @property
    def kv_heads(self) -> int:
        """The number of key-value heads: as few as `MOST_SHARED` allows."""
        groups = range(MOST_SHARED, 0, -1)
        return self.heads // next(group for group in groups if self.heads % group == 0)

    @property
    def feed_forward(self) -> int:
        """The inner width of the SwiGLU: 8/3 of the width, rounded up to a multiple of 64."""
        return -(-8 * self.width // 3 // HEAD_WIDTH) * HEAD_WIDTH


@dataclass(frozen=True)
class PairShape:
    """The shapes of a pair, and the default minutes of training for the target and the draft."""

    target: Shape
    draft: Shape
    minutes: float
    draft_minutes: float


PRESETS = {
    "small": PairShape(Shape(8, 384), Shape(2, 128), minutes=240, draft_minutes=60),
    "large": PairShape(Shape(8, 512), Shape(2, 192), minutes=30, draft_minutes=10),
}


def build_model(shape: Shape, *, vocabulary: int, end_id: int, seed: int) -> LlamaForCausalLM:
    """A new Llama in fp32 with tied embeddings. seed: of its random initial weights."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=HEAD_WIDTH,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=end_id,
        eos_token_id=end_id,
        pad_token_id=end_id,
        use_cache=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    # With zero output weights the layers do not change the residual stream at first, which makes
    # training more stable.
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    # transformers sets the padding row to zero and does not train it; here it is also the
    # end-of-text token.
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=config.initializer_range)
    model.model.embed_tokens.padding_idx = None
    return model


@torch.no_grad()
def grow(model: LlamaForCausalLM, seed: LlamaForCausalLM) -> None:
    """Initialise `model` in place with the weights of the smaller model `seed`.

    Both need the same vocabulary and head width. Raises `SpecvizError` if `seed` is larger in any
    dimension, or if its heads cannot be divided among the key-value heads of `model`.
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
        if place and origins[place - 1] == origin:  # a repeated layer has no output at first
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
            "least as deep and as wide, and use the same tokenizer."
        )
    if seed.num_key_value_heads % shared or seed.num_attention_heads % shared:
        raise SpecvizError(
            f"The model to begin from has {seed.num_attention_heads} heads, which cannot be "
            f"divided among {shared} key-value heads: choose another width."
        )


def _origins(layers: int, old: int) -> list[int]:
    """The old layer that each new layer starts as: all of them in order, some repeated."""
    return [place * old // layers for place in range(layers)]


def _layer(layer: Any, old: Any, config: Any, seed: Any) -> None:
    """Initialise one block with an old block."""
    ours, theirs, width = layer.self_attn, old.self_attn, seed.hidden_size
    head, shared = config.head_dim, config.num_key_value_heads
    group, old_group = config.num_attention_heads // shared, seed.num_attention_heads // shared
    # Each old head stays in the group of the key-value head that replaces its own.
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
    # RMSNorm divides by the root mean square. The new entries are zero and make it smaller; this
    # factor compensates for that.
    weight.fill_(1.0)
    weight[: len(old)] = old * math.sqrt(len(old) / len(weight))

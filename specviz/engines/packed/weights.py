"""A Llama model's weights arranged for short passes on a processor.

Norms are folded into the matrices behind them, q, k and v are one matrix, the scale of the
scores is part of q, and the entries of q and k that rotate together lie side by side.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...models.pair import context_length
from .matmul import Product, in_one_memory, product


class Layer(NamedTuple):
    """The matrices of one block."""

    qkv: Product
    out: Product
    gate_up: Product
    down: Product


class PackedModel:
    """A model's weights in the layout of this module, shared by all its engines.

    rotation: complex64 [places, 1, head_dim / 2]. limit: places of the context.
    """

    def __init__(self, model: Any, vocab: int) -> None:
        config = model.config
        self.vocab = vocab
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = model.model.layers[0].self_attn.head_dim
        self.inner = config.intermediate_size
        self.eps = float(config.rms_norm_eps)
        self.embedding = model.model.embed_tokens.weight.detach().numpy()
        self.width = self.embedding.shape[1]
        self.limit = context_length(model) or 0
        self.layers = [self._layer(block) for block in model.model.layers]
        head = model.get_output_embeddings().weight.detach()[:vocab]
        self.head = product(head * model.model.norm.weight.detach(), None)
        in_one_memory([*chain.from_iterable(self.layers), self.head])
        self.rotation = _rotation(model.model.rotary_emb, self.limit).numpy()

    def _layer(self, block: Any) -> Layer:
        attention, mlp = block.self_attn, block.mlp
        order = _interleaved(self.head_dim)
        q = _reordered(attention.q_proj, self.heads, order, self.head_dim**-0.5)
        k = _reordered(attention.k_proj, self.kv_heads, order)
        return Layer(
            _folded([q, k, _parts(attention.v_proj)], block.input_layernorm),
            product(*_parts(attention.o_proj)),
            _folded([_parts(mlp.gate_proj), _parts(mlp.up_proj)], block.post_attention_layernorm),
            product(*_parts(mlp.down_proj)),
        )


Parts = tuple[Tensor, Tensor | None]


def _parts(linear: Any) -> Parts:
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()


def _folded(parts: list[Parts], norm: Any) -> Product:
    """Several linears of one normed input as one, the norm's scale taken into the weights."""
    weight = torch.cat([w for w, _ in parts]) * norm.weight.detach()
    biases = [b for _, b in parts if b is not None]
    return product(weight, torch.cat(biases) if biases else None)


def _interleaved(head_dim: int) -> Tensor:
    # transformers rotates entry i against entry i + head_dim / 2. Side by side they are one
    # complex number, and the rotation one product; q and k reordered alike agree as before.
    return torch.arange(head_dim).view(2, -1).t().reshape(-1)


def _reordered(linear: Any, heads: int, order: Tensor, scale: float = 1.0) -> Parts:
    weight, bias = _parts(linear)
    by_head = weight.view(heads, len(order), -1)[:, order].reshape(weight.shape) * scale
    if bias is None:
        return by_head, None
    return by_head, bias.view(heads, -1)[:, order].reshape(-1) * scale


def _rotation(rotary: Any, length: int) -> Tensor:
    """e^(i * place * frequency), complex64 [length, 1, head_dim / 2]."""
    angles = torch.outer(torch.arange(length).float(), rotary.inv_freq.float())
    scale = torch.full_like(angles, float(rotary.attention_scaling))
    return torch.polar(scale, angles).unsqueeze(1)

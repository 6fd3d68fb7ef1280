"""Weights of 8 or 4 bits on a processor: blocks of 32, as GGUF files have them, which compiled
passes read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor, nn

from ..environment import has_numba
from ..errors import PairError
from .packed import PackedEmbedding, PackedLinear
from .packed_weights import PIECE, unpacked
from .progress import Progress, Watcher

KINDS = {"8bit": "Q8_0", "4bit": "Q4_1"}
"""In which kind linear layers are kept: 32 weights share a scale and, of 4 bits, a minimum."""

TABLE = "Q8_0"
"""The kind of the embedding table and the output layer, where fewer bits cost the most."""

BLOCK = 32  # weights


def quantize_on_processor(
    model: Any, name: str, bits: str, on_progress: Watcher | None = None
) -> None:
    """Replace the weights of a model by blocks of `bits`, "8bit" or "4bit", one layer after the
    other, so that memory holds few of them twice.

    name: what the model is called. Raises `PairError` if compiled passes do not read such a model.
    """
    check_quantizable(model, name)
    linears = list(_linears(model))
    for done, (part, attribute) in enumerate(linears, 1):
        setattr(part, attribute, _packed_linear(getattr(part, attribute), KINDS[bits]))
        if on_progress is not None:
            on_progress(Progress(f"making the weights of {name} smaller", done / len(linears)))
    inner = model.model
    table = inner.embed_tokens
    tied = model.lm_head.weight is table.weight
    width = table.embedding_dim
    inner.embed_tokens = PackedEmbedding(_blocks_of(table, width, TABLE), TABLE, width)
    if tied:
        model.lm_head = PackedLinear(inner.embed_tokens.weight, TABLE, width, None)
    else:
        model.lm_head = _packed_linear(model.lm_head, TABLE)
    for parameter in model.parameters():  # norms and biases, which are small
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    model.packed_as = KINDS[bits]
    model.config.dtype = torch.float32


def check_quantizable(model: Any, name: str) -> None:
    """Raises `PairError` if compiled passes do not read a model, which may be on the `meta`
    device."""
    if has_numba():
        from ..sides.fast_cpu.support import is_read_in_place

        if is_read_in_place(model):
            return
    raise PairError(
        f"on a processor weights of 8 or 4 bits need the package numba and a model of type llama, "
        f"mistral, qwen2 or qwen3 as it was published, and {name} is none, or numba is missing: "
        "load it without."
    )


def quantized_bytes(model: Any, bits: str) -> int:
    """Bytes of the weights of a model of bf16 or fp32, which may be on the `meta` device, in
    `bits`."""
    inside = sum(getattr(part, attribute).weight.numel() for part, attribute in _linears(model))
    table: int = model.model.embed_tokens.weight.numel()
    tables = table if model.config.tie_word_embeddings else 2 * table
    size: int = inside * _block_bytes(KINDS[bits]) + tables * _block_bytes(TABLE)
    return size // BLOCK


def _block_bytes(kind: str) -> int:
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return size


def _linears(model: Any) -> Iterator[tuple[nn.Module, str]]:
    """The linear layers inside: the module that has each, and its name there."""
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for attribute, _ in list(part.named_children()):
                if attribute.endswith("_proj"):
                    yield part, attribute


def _packed_linear(linear: Any, kind: str) -> PackedLinear:
    width = linear.in_features
    return PackedLinear(_blocks_of(linear, width, kind), kind, width, linear.bias)


def _blocks_of(module: Any, width: int, kind: str) -> nn.Parameter:
    """The weights of a linear layer or a table as blocks: uint8 [rows, bytes]."""
    weight = module.weight
    packed_as = getattr(module, "packed_as", None)
    blocks = torch.empty(len(weight), width // BLOCK * _block_bytes(kind), dtype=torch.uint8)
    step = max(1, PIECE // width)
    for begin in range(0, len(weight), step):
        part = weight[begin : begin + step]
        numbers = part.float() if packed_as is None else unpacked(part, packed_as, width)
        blocks[begin : begin + step] = packed(numbers, kind)
    return nn.Parameter(blocks, requires_grad=False)


def packed(weights: Tensor, kind: str) -> Tensor:
    """Weights, fp32 [rows, width], as blocks of Q8_0 or Q4_1: uint8 [rows, bytes]. Each code is the
    one nearest to its weight with the scale as it is kept, in fp16."""
    blocks = weights.detach().numpy().reshape(-1, BLOCK)
    if kind == "Q8_0":
        scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
        codes = _codes(blocks, scale, np.float16(0), -127, 127).astype(np.int8)
        parts = [scale.view(np.uint8), codes.view(np.uint8)]
    else:
        lowest = blocks.min(1, keepdims=True)
        minimum = lowest.astype(np.float16)
        scale = ((blocks.max(1, keepdims=True) - lowest) / 15).astype(np.float16)
        codes = _codes(blocks, scale, minimum, 0, 15).astype(np.uint8)
        halves = codes[:, : BLOCK // 2] | codes[:, BLOCK // 2 :] << 4
        parts = [scale.view(np.uint8), minimum.view(np.uint8), halves]
    return torch.from_numpy(np.concatenate(parts, 1).reshape(len(weights), -1))


def _codes(
    blocks: NDArray[np.float32], scale: Any, minimum: Any, lowest: int, highest: int
) -> NDArray[np.float32]:
    step = scale.astype(np.float32)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    codes: NDArray[np.float32] = np.rint((blocks - np.float32(minimum)) * inverse)
    return codes.clip(lowest, highest)

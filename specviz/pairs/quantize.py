"""Weights of 8 or 4 bits on a processor: blocks of 32, as GGUF files have them, which compiled
passes read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from ..core.threads import one_torch_thread, used_processors
from ..environment import has_numba
from ..errors import PairError
from ..sides.fast_cpu.kind import FIVE_BIT
from .few_bits import repacked, row_bytes
from .packed import PackedEmbedding, PackedLinear
from .progress import Progress, Watcher

KINDS = {"8bit": "Q8_0", "5bit": FIVE_BIT, "4bit": "Q4_1"}
"""In which kind linear layers are kept: 32 weights share a scale and, of 4 bits, a minimum."""

TABLE = "Q8_0"
"""The kind of the embedding table and the output layer, where fewer bits cost the most."""


def quantize_on_processor(
    model: Any, name: str, bits: str, on_progress: Watcher | None = None
) -> None:
    """Replace the weights of a model by blocks of `bits`, one of `KINDS`. Each processor takes one
    layer after the other, so that memory holds few of them twice.

    name: what the model is called. Raises `PairError` if compiled passes do not read such a model.
    """
    check_quantizable(model, name)
    linears = list(_linears(model))
    with one_torch_thread(), ThreadPoolExecutor(used_processors()) as pool:
        in_blocks = pool.map(lambda linear: _packed_linear(getattr(*linear), KINDS[bits]), linears)
        for done, (linear, packed) in enumerate(zip(linears, in_blocks, strict=True), 1):
            setattr(*linear, packed)
            if on_progress is not None:
                on_progress(Progress(f"making the weights of {name} smaller", done / len(linears)))
        if bits == FIVE_BIT:
            _pack_output_layer(model, pool)
        else:
            _pack_tables(model, pool)
    for parameter in model.parameters():  # norms and biases, which are small
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    model.packed_as = KINDS[bits]
    model.config.dtype = torch.float32


def _pack_tables(model: Any, pool: ThreadPoolExecutor) -> None:
    """The embedding table and the output layer, which may be one."""
    inner = model.model
    table = inner.embed_tokens
    tied = model.lm_head.weight is table.weight
    width = table.embedding_dim
    inner.embed_tokens = PackedEmbedding(_blocks_of(table, width, TABLE, pool), TABLE, width)
    if tied:
        model.lm_head = PackedLinear(inner.embed_tokens.weight, TABLE, width, None)
    else:
        model.lm_head = _packed_linear(model.lm_head, TABLE, pool)


def _pack_output_layer(model: Any, pool: ThreadPoolExecutor) -> None:
    """The output layer alone in five bits: of the table a pass reads a single row."""
    inner = model.model
    table = inner.embed_tokens
    width = table.embedding_dim
    if model.lm_head.weight is table.weight:
        model.lm_head = PackedLinear(
            _blocks_of(table, width, FIVE_BIT, pool), FIVE_BIT, width, None
        )
        model.stores_tied_apart = True
    else:
        model.lm_head = _packed_linear(model.lm_head, FIVE_BIT, pool)
    if not hasattr(table, "packed_as"):
        inner.embed_tokens = PackedEmbedding(_blocks_of(table, width, TABLE, pool), TABLE, width)


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
    kind = KINDS[bits]
    inside = sum(
        linear.out_features * row_bytes(linear.in_features, kind)
        for linear in (getattr(part, attribute) for part, attribute in _linears(model))
    )
    table = model.model.embed_tokens
    rows = table.num_embeddings
    width = table.embedding_dim
    outputs = FIVE_BIT if bits == FIVE_BIT else TABLE
    shared = model.config.tie_word_embeddings and outputs == TABLE
    total: int = inside + rows * row_bytes(width, TABLE)
    return total if shared else total + rows * row_bytes(width, outputs)


def _linears(model: Any) -> Iterator[tuple[nn.Module, str]]:
    """The linear layers inside: the module that has each, and its name there."""
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for attribute, _ in list(part.named_children()):
                if attribute.endswith("_proj"):
                    yield part, attribute


def _packed_linear(linear: Any, kind: str, pool: ThreadPoolExecutor | None = None) -> PackedLinear:
    if getattr(linear, "packed_as", None) == kind:
        packed_already: PackedLinear = linear
        return packed_already
    width = linear.in_features
    return PackedLinear(_blocks_of(linear, width, kind, pool), kind, width, linear.bias)


def _blocks_of(
    module: Any, width: int, kind: str, pool: ThreadPoolExecutor | None = None
) -> nn.Parameter:
    """The weights of a linear layer or a table as blocks: uint8 [rows, bytes]."""
    blocks = repacked(module.weight, getattr(module, "packed_as", None), width, kind, pool)
    return nn.Parameter(blocks, requires_grad=False)

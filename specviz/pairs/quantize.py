"""Quantize weights on a processor into the blocks of GGUF files, which compiled passes read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from ..base.environment import has_numba
from ..base.errors import PairError
from ..core.llama_layer import linear_places
from ..core.products import FP32_PRODUCTS, INTEGER_PRODUCTS
from ..core.threads import all_threads, one_torch_thread
from ..files.few_bits.unpacking import repacked, row_bytes
from ..files.memory import DRAFT_KINDS, KINDS, TABLE
from ..files.packed import PackedEmbedding, PackedLinear, choose_products
from ..files.progress import Progress, Watcher
from ..files.source import ModelSource
from ..files.weights import LoadOptions, load_model


def load_quantized(
    source: ModelSource, options: LoadOptions, on_progress: Watcher | None = None
) -> Any:
    """Load a model with `load_model`, and quantize it if the options say so and it runs on a
    processor. Raises `PairError`."""
    model = load_model(source, options, on_progress)
    on_cpu = options.device is not None and options.device.type == "cpu"
    if options.quantize is not None and on_cpu:
        quantize_on_processor(
            model,
            source.shown,
            options.quantize,
            options.products,
            on_progress,
            is_draft=options.is_draft,
        )
    return model


def quantize_on_processor(
    model: Any,
    name: str,
    bits: str,
    products: str = INTEGER_PRODUCTS,
    on_progress: Watcher | None = None,
    *,
    is_draft: bool = False,
) -> None:
    """Replace the weights of a model by blocks of `bits`, one of `KINDS`. Each thread packs one
    layer after the other, so that few layers are in memory twice.

    name: the model's name in errors. products: how the blocks are multiplied, one of `PRODUCTS`.
    is_draft: whether to use `DRAFT_KINDS`. Raises `PairError` if compiled passes cannot run the
    model.
    """
    check_quantizable(model, name)
    kind, output_kind = block_kinds(bits, is_draft=is_draft)
    places = list(linear_places(model))

    def packed_at(place: tuple[Any, str]) -> PackedLinear:
        module, attribute = place
        return _packed_linear(getattr(module, attribute), kind)

    with one_torch_thread(), ThreadPoolExecutor(all_threads()) as pool:
        packed_linears = pool.map(packed_at, places)
        for index, packed in enumerate(packed_linears):
            module, attribute = places[index]
            setattr(module, attribute, packed)
            if on_progress is not None:
                share = (index + 1) / len(places)
                on_progress(Progress(f"quantizing {name}", share))
        _pack_tables(model, output_kind, pool)
    for parameter in model.parameters():  # norms and biases, which are small
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    model.packed_as = kind
    choose_products(model, products)
    model.config.dtype = torch.float32


def block_kinds(bits: str, *, is_draft: bool) -> tuple[str, str]:
    """The kind of blocks of a model in `bits`, and that of its output layer."""
    if is_draft:
        return DRAFT_KINDS[bits], DRAFT_KINDS[bits]
    return KINDS[bits], TABLE


def _pack_tables(model: Any, kind: str, pool: ThreadPoolExecutor) -> None:
    """Pack the output layer, in this kind, and the embedding table, which may be the same tensor. A
    packed table stays unchanged: a pass reads a single row of it for each token."""
    inner = model.model
    table = inner.embed_tokens
    width = table.embedding_dim
    is_tied = model.lm_head.weight is table.weight
    if not hasattr(table, "packed_as"):
        blocks = _blocks_of(table, width, TABLE, pool)
        table = PackedEmbedding(blocks, TABLE, width)
        inner.embed_tokens = table
    if not is_tied:
        model.lm_head = _packed_linear(model.lm_head, kind, pool)
        return
    weight = table.weight
    if table.packed_as != kind:
        weight = _blocks_of(table, width, kind, pool)
        model.stores_tied_apart = True
    model.lm_head = PackedLinear(weight, kind, width, None)


def check_quantizable(model: Any, name: str) -> None:
    """Raise `PairError` if compiled passes cannot run a model, perhaps on the `meta` device."""
    if has_numba():
        from ..sides.fast_cpu.support import is_read_in_place

        if is_read_in_place(model):
            return
    raise PairError(
        "on a processor, 8-bit and 4-bit weights need the package numba and an unmodified model "
        f"of type llama, mistral, qwen2 or qwen3, and {name} is not one, or numba is missing: "
        "load it without quantization."
    )


def quantized_bytes(model: Any, bits: str, products: str, *, is_draft: bool = False) -> int:
    """Bytes of the weights of a model of bf16 or fp32, which may be on the `meta` device, in
    `bits`. products: one of `PRODUCTS`; with integers a tied output layer is stored separately."""
    kind, output_kind = block_kinds(bits, is_draft=is_draft)
    total: int = 0
    for module, attribute in linear_places(model):
        linear = getattr(module, attribute)
        total += linear.out_features * row_bytes(linear.in_features, kind)
    table = model.model.embed_tokens
    rows = table.num_embeddings
    width = table.embedding_dim
    total += rows * row_bytes(width, TABLE)
    is_shared = model.config.tie_word_embeddings and products == FP32_PRODUCTS
    if not is_shared:
        total += rows * row_bytes(width, output_kind)
    return total


def _packed_linear(linear: Any, kind: str, pool: ThreadPoolExecutor | None = None) -> PackedLinear:
    if getattr(linear, "packed_as", None) == kind:
        packed_already: PackedLinear = linear
        return packed_already
    width = linear.in_features
    blocks = _blocks_of(linear, width, kind, pool)
    return PackedLinear(blocks, kind, width, linear.bias)


def _blocks_of(
    module: Any, width: int, kind: str, pool: ThreadPoolExecutor | None = None
) -> nn.Parameter:
    """The weights of a linear layer or a table as blocks: uint8 [rows, bytes]."""
    packed_as = getattr(module, "packed_as", None)
    blocks = repacked(module.weight, packed_as, width, kind, pool)
    return nn.Parameter(blocks, requires_grad=False)

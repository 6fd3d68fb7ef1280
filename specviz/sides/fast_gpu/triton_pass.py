"""Passes of the Llama family over at most 16 tokens, in five kernels a layer.

The kernels are in `triton_kernels.py`. Rows are padded to 16, so that one program serves all widths
and a row has the same bits in each of them: a greedy text does not depend on how many tokens were
drafted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import StaticLayer

from ...core.llama_layer import layer_modules, llama_sizes
from . import triton_kernels as kernels
from .llama_pass import joined
from .triton_weights import ROWS, Matrix, packed_matrix

CHUNK = 128  # positions of the cache that a program attends to; fewer in fp32
TOGETHER = 2  # heads of queries that share keys in a program
FP32_CHUNK = 16
MAX_BLOCK = 256  # inputs of a step of a product
MIN_BLOCK = 16
STEP_WEIGHTS = 8192  # at most, in a step of a program; a quarter in fp32, for shared memory
PROGRAMS = 264  # two for each processor of an H100
MAX_SPLITS = 8
OPTIONS = {"num_warps": 4, "num_stages": 4, "enable_fp_fusion": True}


@dataclass(frozen=True)
class Call:
    """One launch of a kernel. sizes: its compile-time constants."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    sizes: dict[str, Any]
    options: dict[str, int] = field(default_factory=lambda: dict(OPTIONS))

    def launch(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.sizes, **self.options)

    def compile(self) -> Any:
        """Compile the kernel for these sizes, without a launch."""
        return self.kernel.warmup(*self.arguments, grid=self.grid, **self.sizes, **self.options)


@dataclass(frozen=True)
class Layer:
    """The weights of a layer; biases and norms of heads are None where it has none."""

    input_norm: Tensor
    qkv: Matrix
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Matrix
    output_bias: Tensor | None
    middle_norm: Tensor
    gate_and_up: Matrix
    gate_and_up_bias: Tensor | None
    down: Matrix
    down_bias: Tensor | None


@dataclass(frozen=True)
class Buffers:
    """The buffers between the kernels of a pass. Each pass makes new ones; a graph keeps those of
    its capture."""

    x: Tensor  # [16, width]
    positions: Tensor  # int64 [16], -1 for dead rows
    queries: Tensor  # [16, heads * head_dim]
    attended: Tensor  # [16, heads * head_dim]
    activated: Tensor  # [16, intermediate size]
    logits: Tensor  # fp32 [16, vocab]
    counters: Tensor  # int32
    partial: Tensor  # fp32, of chunks or of parts of a sum
    maxima: Tensor  # fp32, as are sums
    sums: Tensor


class TritonPass:
    """A `LlamaPass` over at most 16 tokens, in few kernels. It does not keep the model alive.

    Raises `ValueError` if the sizes of the model do not fit.
    """

    def __init__(self, model: Any) -> None:
        inner = model.model
        self._table = _table(inner.embed_tokens, model.dtype)
        self._rotary = inner.rotary_emb
        self._rotations: dict[int, tuple[Tensor, Tensor]] = {}  # by capacity
        self._norm = inner.norm.weight
        self._epsilon: float = inner.norm.variance_epsilon
        self._head = _matrix(model.get_output_embeddings())
        self._head_bias = model.get_output_embeddings().bias
        self._layers = [_layer(layer) for layer in inner.layers]
        self._dtype = self._table.dtype
        self._device = self._table.device
        self._sizes = llama_sizes(model.config)
        self._scale = self._sizes.score_factor
        self._is_exact = self._dtype == torch.float32 or is_interpreted()
        block_of(self._head, 16)  # which raises the `ValueError`
        for layer in self._layers:
            for matrix in _matrices(layer):
                block_of(matrix, 16)
        # Attention: the query heads of a program, and the programs for a head of keys.
        self._chunk = CHUNK
        self._together = min(TOGETHER, self._sizes.group)
        if self._dtype == torch.float32:
            self._chunk = min(CHUNK, FP32_CHUNK)
            self._together = 1
        programs_for_a_head = -(-self._sizes.group // self._together)
        self._attention_programs = self._sizes.kv_heads * programs_for_a_head

    def logits(
        self,
        ids: Tensor,
        positions: Tensor,
        keep: int,
        cache_layers: Sequence[StaticLayer],
        depth: int | None = None,
    ) -> Tensor:
        """fp32 logits of the last `keep` of at most 16 `ids` int64 [n]: [keep, vocab].

        positions: int64 [n]; a row at -1 is dead. The other arguments are those of `LlamaPass`.
        """
        self._initialize(cache_layers)
        buffers = self._buffers(_capacity(cache_layers))
        with on_device(self._device):
            for call in self.calls(ids, positions, cache_layers, buffers, depth):
                call.launch()
        return buffers.logits[len(ids) - keep : len(ids)]

    def compile_calls(self, capacity: int) -> Iterator[Call]:
        """The different kernels of a pass over a cache, ready to be compiled."""
        shape = (self._sizes.kv_heads, capacity, self._sizes.head_dim)
        ids = torch.zeros(ROWS, dtype=torch.int64, device=self._device)
        layer = StaticLayer(max_cache_len=capacity)
        layer.keys = torch.empty(shape, dtype=self._dtype, device=self._device)
        layer.values = torch.empty_like(layer.keys)
        seen = []
        layers = [layer] * len(self._layers)
        for call in self.calls(ids, ids, layers, self._buffers(capacity), None):
            if (call.kernel, call.sizes) not in seen:
                seen.append((call.kernel, call.sizes))
                yield call

    def calls(
        self,
        ids: Tensor,
        positions: Tensor,
        cache_layers: Sequence[StaticLayer],
        buffers: Buffers,
        depth: int | None,
    ) -> Iterator[Call]:
        """The launches of a pass, in their order."""
        yield self._embed(ids, positions, _capacity(cache_layers), buffers)
        for layer, cache in zip(self._layers[:depth], cache_layers, strict=False):
            yield self._queries_keys_values(layer, cache, buffers)
            yield self._attend(cache, buffers)
            yield self._add_product(buffers.attended, layer.output, layer.output_bias, buffers)
            yield self._gate_and_up(layer, buffers)
            yield self._add_product(buffers.activated, layer.down, layer.down_bias, buffers)
        yield self._output_logits(buffers)

    def _initialize(self, cache_layers: Sequence[StaticLayer]) -> None:
        """Allocate the cache's memory before its first pass."""
        for layer in cache_layers:
            if not layer.is_initialized:
                shape = (1, self._sizes.kv_heads, 0, self._sizes.head_dim)
                nothing = torch.empty(shape, dtype=self._dtype, device=self._device)
                layer.lazy_initialization(nothing, nothing)

    def _buffers(self, capacity: int) -> Buffers:
        sizes = self._sizes
        slots = self._attention_programs * -(-capacity // self._chunk) * ROWS * self._together
        tiles = -(-sizes.width // 16)
        return Buffers(
            x=self._empty(ROWS, sizes.width),
            positions=self._empty(ROWS, dtype=torch.int64),
            queries=self._empty(ROWS, sizes.queries),
            attended=self._empty(ROWS, sizes.queries),
            activated=self._empty(ROWS, sizes.inner),
            logits=self._empty(ROWS, self._head.outputs, dtype=torch.float32),
            counters=self._empty(max(self._attention_programs, tiles), dtype=torch.int32),
            partial=self._empty(
                max(slots * power_of_two(sizes.head_dim), MAX_SPLITS * ROWS * sizes.width),
                dtype=torch.float32,
            ),
            maxima=self._empty(slots, dtype=torch.float32),
            sums=self._empty(slots, dtype=torch.float32),
        )

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self._dtype, device=self._device)

    def _embed(self, ids: Tensor, positions: Tensor, capacity: int, buffers: Buffers) -> Call:
        width = self._sizes.width
        block = min(256, power_of_two(width))
        return Call(
            kernel=kernels.embed,
            grid=(-(-width // block),),
            arguments=(
                ids,
                positions,
                self._table,
                buffers.x,
                buffers.positions,
                buffers.counters,
                len(ids),
                capacity,
            ),
            sizes={
                "WIDTH": width,
                "BLOCK": block,
                "COUNTERS": len(buffers.counters),
            },
        )

    def _queries_keys_values(self, layer: Layer, cache: StaticLayer, buffers: Buffers) -> Call:
        sizes = self._sizes
        pairs = sizes.head_dim // 2
        has_norms = layer.query_norm is not None
        half = max(8, power_of_two(pairs))
        if not has_norms:  # the norm of a head needs all of it
            half = min(half, columns_for(layer.qkv.outputs) // 2)
        capacity = _capacity([cache])
        cos, sin = self._rotation(capacity)
        return Call(
            kernel=kernels.queries_keys_values,
            grid=((sizes.heads + 2 * sizes.kv_heads) * -(-pairs // half),),
            arguments=(
                buffers.x,
                layer.input_norm,
                *_parts(layer.qkv),
                _or(layer.qkv_bias, layer.input_norm),
                _or(layer.query_norm, layer.input_norm),
                _or(layer.key_norm, layer.input_norm),
                cos,
                sin,
                buffers.positions,
                buffers.queries,
                cache.keys,
                cache.values,
                capacity,
            ),
            sizes={
                "WIDTH": sizes.width,
                "HEADS": sizes.heads,
                "KV_HEADS": sizes.kv_heads,
                "HEAD": sizes.head_dim,
                "HALF": half,
                "BLOCK": block_of(layer.qkv, 2 * half),
                "EPS": self._epsilon,
                "HAS_BIAS": layer.qkv_bias is not None,
                "HAS_NORMS": has_norms,
                "KIND": layer.qkv.kind,
                "EXACT": self._is_exact,
            },
        )

    def _attend(self, cache: StaticLayer, buffers: Buffers) -> Call:
        sizes = self._sizes
        capacity = _capacity([cache])
        chunks = -(-capacity // self._chunk)
        return Call(
            kernel=kernels.attend,
            grid=(self._attention_programs, chunks),
            arguments=(
                buffers.queries,
                cache.keys,
                cache.values,
                buffers.positions,
                buffers.partial,
                buffers.maxima,
                buffers.sums,
                buffers.counters,
                buffers.attended,
                capacity,
                chunks,
            ),
            sizes={
                "KV_HEADS": sizes.kv_heads,
                "SHARING": sizes.group,
                "TOGETHER": self._together,
                "HEAD": sizes.head_dim,
                "WIDE": max(16, power_of_two(sizes.head_dim)),
                "CHUNK": self._chunk,
                "SCALE": self._scale,
                "EXACT": self._is_exact,
            },
        )

    def _add_product(
        self, inputs: Tensor, matrix: Matrix, bias: Tensor | None, buffers: Buffers
    ) -> Call:
        columns = columns_for(matrix.outputs)
        tiles = -(-matrix.outputs // columns)
        block = block_of(matrix, columns)
        splits = splits_for(tiles, matrix.inputs // block)
        return Call(
            kernel=kernels.add_product,
            grid=(tiles, splits),
            arguments=(
                inputs,
                *_parts(matrix),
                _or(bias, buffers.x),
                buffers.positions,
                buffers.x,
                buffers.partial,
                buffers.counters,
            ),
            sizes={
                "WIDTH": matrix.inputs,
                "OUTPUTS": matrix.outputs,
                "COLUMNS": columns,
                "BLOCK": block,
                "SPLITS": splits,
                "HAS_BIAS": bias is not None,
                "KIND": matrix.kind,
                "EXACT": self._is_exact,
            },
        )

    def _gate_and_up(self, layer: Layer, buffers: Buffers) -> Call:
        columns = columns_for(layer.gate_and_up.outputs)
        outputs = self._sizes.inner
        return Call(
            kernel=kernels.gate_and_up,
            grid=(-(-2 * outputs // columns),),
            arguments=(
                buffers.x,
                layer.middle_norm,
                *_parts(layer.gate_and_up),
                _or(layer.gate_and_up_bias, layer.middle_norm),
                buffers.positions,
                buffers.activated,
            ),
            sizes={
                "WIDTH": self._sizes.width,
                "OUTPUTS": outputs,
                "HALF": columns // 2,
                "BLOCK": block_of(layer.gate_and_up, columns),
                "EPS": self._epsilon,
                "HAS_BIAS": layer.gate_and_up_bias is not None,
                "KIND": layer.gate_and_up.kind,
                "EXACT": self._is_exact,
            },
        )

    def _output_logits(self, buffers: Buffers) -> Call:
        columns = columns_for(self._head.outputs)
        return Call(
            kernel=kernels.output_logits,
            grid=(-(-self._head.outputs // columns),),
            arguments=(
                buffers.x,
                self._norm,
                *_parts(self._head),
                _or(self._head_bias, self._norm),
                buffers.positions,
                buffers.logits,
            ),
            sizes={
                "WIDTH": self._sizes.width,
                "OUTPUTS": self._head.outputs,
                "COLUMNS": columns,
                "BLOCK": block_of(self._head, columns),
                "EPS": self._epsilon,
                "HAS_BIAS": self._head_bias is not None,
                "KIND": self._head.kind,
                "EXACT": self._is_exact,
            },
        )

    def _rotation(self, capacity: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all positions of a cache: [capacity, head_dim / 2] each."""
        if capacity not in self._rotations:
            positions = torch.arange(capacity, device=self._device).unsqueeze(0)
            cos, sin = self._rotary(self._empty(1), positions)
            half = self._sizes.head_dim // 2
            tables = (cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())
            self._rotations[capacity] = tables
        return self._rotations[capacity]


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which a GPU is the current one, where Triton launches its kernels."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.device(device)


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on tensors of the host."""
    import triton

    return not isinstance(kernels.embed, triton.JITFunction)


def power_of_two(number: int) -> int:
    """The first power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def columns_for(outputs: int) -> int:
    """The outputs of a tile: as many as leave enough programs for all processors of a GPU."""
    for columns in (64, 32):
        if outputs // columns >= PROGRAMS:
            return columns
    return 16


def block_of(matrix: Matrix, columns: int) -> int:
    """The inputs of a step of a product: all of its steps have the same number."""
    max_weights = STEP_WEIGHTS
    if matrix.data.dtype == torch.float32:
        max_weights //= 4
    block = MAX_BLOCK
    while block > MIN_BLOCK and (matrix.inputs % block or block * columns > max_weights):
        block //= 2
    if matrix.inputs % block:
        raise ValueError(
            f"a layer has {matrix.inputs} inputs, which is not a multiple of {MIN_BLOCK}"
        )
    return block


def splits_for(tiles: int, steps: int) -> int:
    """The number of programs that share the inputs of a tile, with at least two steps each."""
    return max(1, min(PROGRAMS // tiles, steps // 2, MAX_SPLITS))


def _layer(layer: Any) -> Layer:
    modules = layer_modules(layer)
    qkv, qkv_bias = _joined_matrix((modules["query"], modules["key"], modules["value"]))
    gate_and_up, gate_and_up_bias = _joined_matrix((modules["gate"], modules["up"]))
    return Layer(
        input_norm=modules["input_norm"].weight,
        qkv=qkv,
        qkv_bias=qkv_bias,
        query_norm=_weight(modules["query_norm"]),
        key_norm=_weight(modules["key_norm"]),
        output=_matrix(modules["out"]),
        output_bias=modules["out"].bias,
        middle_norm=modules["middle_norm"].weight,
        gate_and_up=gate_and_up,
        gate_and_up_bias=gate_and_up_bias,
        down=_matrix(modules["down"]),
        down_bias=modules["down"].bias,
    )


def _weight(norm: Any) -> Tensor | None:
    if norm is None:
        return None
    return norm.weight  # type: ignore[no-any-return]


def _table(embedding: Any, dtype: torch.dtype) -> Tensor:
    """The embeddings, one number for each weight."""
    if hasattr(embedding, "packed_as"):
        return embedding.unpacked().to(dtype)  # type: ignore[no-any-return]
    return embedding.weight.detach()  # type: ignore[no-any-return]


def _matrices(layer: Layer) -> tuple[Matrix, ...]:
    return layer.qkv, layer.output, layer.gate_and_up, layer.down


def _matrix(linear: Any) -> Matrix:
    packed_as = getattr(linear, "packed_as", None)
    if packed_as is None:
        return Matrix.dense(linear.weight.detach())
    return packed_matrix(linear.weight.detach(), packed_as, linear.in_features)


def _joined_matrix(linears: Sequence[Any]) -> tuple[Matrix, Tensor | None]:
    """Linear layers over the same input as one, and their bias."""
    kinds = [getattr(linear, "packed_as", None) for linear in linears]
    packed_as = kinds[0]
    if any(kind != packed_as for kind in kinds):
        raise ValueError("layers of one input are packed in different kinds of blocks")
    if packed_as is None:
        layer = joined(linears)
        return Matrix.dense(layer.weight), layer.bias
    blocks = torch.cat([linear.weight.detach() for linear in linears])
    bias = None
    if linears[0].bias is not None:
        bias = torch.cat([linear.bias.detach() for linear in linears])
    return packed_matrix(blocks, packed_as, linears[0].in_features), bias


def _parts(matrix: Matrix) -> tuple[Tensor, Tensor, Tensor]:
    return matrix.data, matrix.scales, matrix.factors


def _or(tensor: Tensor | None, instead: Tensor) -> Tensor:
    """The tensor, or if there is none, another one: the kernel does not read this argument."""
    if tensor is None:
        return instead
    return tensor


def _capacity(cache_layers: Sequence[StaticLayer]) -> int:
    return int(cache_layers[0].max_cache_len)

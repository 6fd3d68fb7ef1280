"""The weights of a GGUF file by their names in its header, and whether compiled passes can read
them. This module needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import BinaryIO

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from ...base.environment import has_numba
from ...base.errors import PairError
from ...core.llama_layer import LINEARS, NORMS, TYPES
from .header import GgufHeader, GgufTensor
from .keys import FREQUENCIES, rope_of

ARCHITECTURES = TYPES
"""Architectures whose layers compiled passes compute."""

SLOWED = ("llama", "mistral")
"""Architectures whose files may have factors of rotary frequencies."""

PACKED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
"""Kinds that compiled passes read."""

PLAIN = ("F32", "F16", "BF16")
"""Kinds of tensors that are not packed."""

COMPARED = 64  # rows of the embedding table and of the output layer
ALIKE = 0.9  # cosine of the same weights in two kinds: above 0.98 for those of 4 bits
OUTPUTS_OF_TILE = 16
UNIT = 32  # widths of matrices must be multiples of it

LAYER = {part.gguf: part.module for part in (*LINEARS, *NORMS)}
"""Modules of a layer of the Llama family, by the names of their tensors."""

_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"


def can_stay_packed(header: GgufHeader) -> bool:
    """Whether compiled passes can read all tensors of a file."""
    if header.architecture not in ARCHITECTURES or not has_numba():
        return False
    rope = rope_of(header)
    if rope is None or rope.kind == "longrope":
        return False
    known = {name for name, _ in named_tensors(header)}
    if header.architecture in SLOWED:
        known.add(FREQUENCIES)
    if not header.tensors.keys() <= known:
        return False
    return all(map(_is_readable, header.tensors.values()))


def _is_readable(tensor: GgufTensor) -> bool:
    dimensions = len(tensor.shape)
    width = tensor.shape[-1]
    if tensor.kind in PLAIN:
        return dimensions == 1 or width % UNIT == 0
    if tensor.kind not in PACKED or dimensions != 2:
        return False
    block, _ = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.kind]]
    return width % block == 0


def named_tensors(
    header: GgufHeader,
    outside: Mapping[str, str] = _OUTSIDE,
    layer: Mapping[str, str] = LAYER,
    layers: str = "model.layers",
) -> Iterator[tuple[str, str]]:
    """The tensors of a file that transformers' model also has, with the paths of their modules.

    outside, layer: modules outside of layers and inside each layer, by the names of their tensors.
    layers: the path of the layers. The defaults are those of the Llama family.
    """
    for name in header.tensors:
        stem, _, _ = name.rpartition(".")
        if stem in outside:
            yield name, outside[stem]
            continue
        block, _, rest = stem.partition(".")
        index, _, part = rest.partition(".")
        if block == "blk" and index.isdecimal() and part in layer:
            yield name, f"{layers}.{index}.{layer[part]}"


def stores_tied_apart(header: GgufHeader) -> bool:
    """Whether a file stores the embedding table a second time as its output layer, often with more
    bits. Then a few rows of both agree but for rounding. Raises `PairError`."""
    embedding = header.tensors.get(EMBEDDING)
    output = header.tensors.get(OUTPUT)
    if embedding is None or output is None or embedding.shape != output.shape:
        return False
    try:
        with header.path.open("rb") as file:
            embedding_rows = _first_rows(file, header.begin, embedding)
            output_rows = _first_rows(file, header.begin, output)
    except OSError as error:
        raise PairError(f"{header.path.name} cannot be read ({error.strerror}).") from error
    embedding_length = np.linalg.norm(embedding_rows)
    output_length = np.linalg.norm(output_rows)
    lengths = float(embedding_length * output_length)
    product = float((embedding_rows * output_rows).sum())
    return lengths > 0 and product > ALIKE * lengths


def integer_bytes(header: GgufHeader) -> int:
    """Bytes of a file's weights for integer products, where a tied output layer has a copy of the
    embedding table."""
    size = header.stored
    if header.tied:
        size += header.tensors[EMBEDDING].bytes
    return size


def quantized_file_bytes(header: GgufHeader, kind: str, output_kind: str) -> int:
    """Bytes of a file's weights once its matrices are blocks of `kind`, and its output layer
    blocks of `output_kind`. The embedding table stays as it is."""
    size = 0
    for name, tensor in header.tensors.items():
        if len(tensor.shape) == 1 or name == EMBEDDING:
            size += tensor.bytes
        elif name == OUTPUT:
            size += _blocks_bytes(tensor, output_kind)
        else:
            size += _blocks_bytes(tensor, kind)
    if header.tied:
        size += _blocks_bytes(header.tensors[EMBEDDING], output_kind)
    return size


def _blocks_bytes(tensor: GgufTensor, kind: str) -> int:
    """Bytes of a matrix in tiles of sixteen outputs; the last tile may be filled up."""
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    outputs, inputs = tensor.shape
    tiles = ceil(outputs / OUTPUTS_OF_TILE)
    return tiles * OUTPUTS_OF_TILE * inputs // weights * size


def _first_rows(file: BinaryIO, begin: int, tensor: GgufTensor) -> NDArray[np.float32]:
    rows = min(COMPARED, tensor.shape[0])
    row_bytes = tensor.bytes // tensor.shape[0]
    file.seek(begin + tensor.start)
    data = file.read(rows * row_bytes)
    blocks = np.frombuffer(data, np.uint8).reshape(rows, -1)
    kind = GGMLQuantizationType[tensor.kind]
    numbers: NDArray[np.float32] = dequantize(blocks, kind)
    return np.nan_to_num(numbers)

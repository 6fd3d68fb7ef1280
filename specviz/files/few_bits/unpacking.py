"""Conversion between weights as numbers and as blocks of few bits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 32  # weights

DTYPE_KINDS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
"""Names in GGUF files of the dtypes of plain tensors."""

PIECE = 1 << 19  # weights that are unpacked at a time


def unpacked(blocks: Tensor, kind: str, width: int) -> Tensor:
    """Unpack rows of blocks, uint8 [rows, bytes], to fp32 [rows, width], with the values of the
    package `gguf`."""
    from .products import unpack  # imports numba

    # The dtype is named because transformers changes torch's default at times, for all threads.
    weights = torch.empty(len(blocks), width, dtype=torch.float32)
    unpack(kind, blocks.detach().contiguous().numpy(), weights.numpy())
    return weights


def repacked(
    weights: Tensor,
    packed_as: str | None,
    width: int,
    kind: str,
    pool: ThreadPoolExecutor | None = None,
) -> Tensor:
    """Convert rows of weights, numbers or blocks of the kind `packed_as`, to blocks of another
    kind, uint8 [rows, bytes]. width: weights of a row. pool: its threads share the rows."""
    blocks = torch.empty(len(weights), row_bytes(width, kind), dtype=torch.uint8)
    step = max(1, PIECE // width)

    def repack(begin: int) -> None:
        part = weights[begin : begin + step].detach().contiguous()
        written = blocks[begin : begin + step]
        if kind in ("Q4_0", "Q5_0"):
            from .packing import pack

            held_as = packed_as or DTYPE_KINDS[part.dtype]
            pack(held_as, part.view(torch.uint8).numpy(), kind, written.numpy())
        else:
            numbers = part.float() if packed_as is None else unpacked(part, packed_as, width)
            written[:] = packed(numbers, kind)

    begins = range(0, len(weights), step)
    if pool is not None:
        list(pool.map(repack, begins))  # waits, and raises the error of a thread
        return blocks
    for begin in begins:
        repack(begin)
    return blocks


def row_bytes(width: int, kind: str) -> int:
    """Bytes of a row of `width` weights, a multiple of `BLOCK`."""
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return width // weights * size


def packed(weights: Tensor, kind: str) -> Tensor:
    """Pack weights, fp32 [rows, width], as blocks of Q8_0 or Q4_1, uint8 [rows, bytes]. Each code
    is the nearest one to its weight, with the stored fp16 scale."""
    blocks = weights.detach().numpy().reshape(-1, BLOCK)
    parts = _q8_0_parts(blocks) if kind == "Q8_0" else _q4_1_parts(blocks)
    packed_blocks = np.concatenate(parts, 1).reshape(len(weights), -1)
    return torch.from_numpy(packed_blocks)


def _q8_0_parts(blocks: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    """The bytes of scales, and of codes."""
    largest = np.abs(blocks).max(1, keepdims=True)
    scale = (largest / 127).astype(np.float16)
    codes = _codes(blocks, scale, np.float16(0), -127, 127).astype(np.int8)
    return [scale.view(np.uint8), codes.view(np.uint8)]


def _q4_1_parts(blocks: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    """The bytes of scales, of minima, and of codes: the first half of a block in the low bits."""
    lowest = blocks.min(1, keepdims=True)
    highest = blocks.max(1, keepdims=True)
    minimum = lowest.astype(np.float16)
    scale = ((highest - lowest) / 15).astype(np.float16)
    codes = _codes(blocks, scale, minimum, 0, 15).astype(np.uint8)
    halves = codes[:, : BLOCK // 2] | codes[:, BLOCK // 2 :] << 4
    return [scale.view(np.uint8), minimum.view(np.uint8), halves]


def _codes(
    blocks: NDArray[np.float32], scale: Any, minimum: Any, lowest: int, highest: int
) -> NDArray[np.float32]:
    step = scale.astype(np.float32)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    codes: NDArray[np.float32] = np.rint((blocks - np.float32(minimum)) * inverse)
    return codes.clip(lowest, highest)

"""Products of rows with weights. Each kind has a function, which is compiled when a model has such
weights, and which passes call by its address: direct callers would be compiled together with
it."""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import cfunc, njit, types
from numpy.typing import NDArray

from .blocks import BLOCK_BYTES, BLOCK_WEIGHTS, KINDS, LAYOUTS, PACKED, Q5_0, Q8_0
from .ir import VECTOR_LENGTH, compiled_only
from .vector import (
    MAX_ROWS,
    MAX_UNPACKED_ROWS,
    accumulate,
    accumulate_unpacked,
    fold_sums,
    multiply,
    widen,
    widen_as_met,
    widen_codes,
)

# Inputs and outputs that are multiplied together. A chunk of inputs of a few rows stays in the
# first level of a processor's cache. Both are multiples: of the weights of any block, and of the
# outputs that are summed side by side.
CHUNK = 512
LINES = 8

MAX_GROUPED_ROWS = 4
"""Rows that are multiplied together with weights whose scales are packed too. For more rows it
pays to unpack the weights once and write them to memory."""


@compiled_only
def bytes_of(kind, count):
    """Bytes of `count` weights of a kind, a multiple of a block's weights."""
    return count // BLOCK_WEIGHTS[kind] * BLOCK_BYTES[kind]


@cache
def product_code(kind: int) -> int:
    """The address of the code of products with weights of this kind; its arguments are int64.

    It computes y[r, o] = x[r] . w[o] for any number of rows and all outputs. x, y: addresses of
    fp32, x in the order of `rows.in_both_orders` that suits the kind. x_step, y_step: bytes from a
    row to the next. w: the address of the weights, [outputs, inputs].
    """
    packed = kind in PACKED
    together = _rows_together(kind)

    def multiply_rows(rows, x, x_step, w, inputs, outputs, y, y_step):
        w_step = bytes_of(kind, inputs)
        if rows == 1:
            multiply(kind, x, w, w_step, inputs, outputs, y)
            return
        # Chunks of inputs and outputs stay in the first level of a processor's cache. Each lane of
        # a sum adds its products in the order of inputs, as in `multiply`.
        sums = np.empty((LINES, rows, VECTOR_LENGTH), np.float32)
        lines = np.empty((LINES, CHUNK), np.float32)
        for first in range(0, outputs, LINES):
            count = min(LINES, outputs - first)
            # Packed weights are unpacked once for many rows. So are those of fewer than `LINES`
            # outputs: the sums of the missing lines are ignored.
            unpacks = (packed and rows > together) or count < LINES
            limit = MAX_UNPACKED_ROWS if unpacks else together
            each = -(-rows // -(-rows // limit))  # rows that are summed together
            sums[:] = 0
            for begin in range(0, inputs, CHUNK):
                width = min(CHUNK, inputs - begin)
                source = w + first * w_step + bytes_of(kind, begin)
                if unpacks:
                    for o in range(count):
                        line = lines.ctypes.data + o * lines.strides[0]
                        widen_as_met(kind, source + o * w_step, line, width)
                for row in range(0, rows, each):
                    x_here = x + row * x_step + 4 * begin
                    group = min(each, rows - row)
                    totals = sums.ctypes.data + row * sums.strides[1]
                    step = sums.strides[0]
                    if unpacks:
                        written = lines.ctypes.data
                        line_step = lines.strides[0]
                        accumulate_unpacked(
                            group, x_here, x_step, written, line_step, width, LINES, totals, step
                        )
                    else:
                        accumulate(
                            kind, group, x_here, x_step, source, w_step, width, LINES, totals, step
                        )
            for row in range(rows):
                totals = sums.ctypes.data + row * sums.strides[1]
                fold_sums(totals, sums.strides[0], count, y + row * y_step + 4 * first)

    signature = types.void(*[types.int64] * 8)
    address: int = cfunc(signature, cache=True)(multiply_rows).address
    return address


def _rows_together(kind: int) -> int:
    """The number of rows that are multiplied together with weights unpacked on the way."""
    if kind not in PACKED:
        return MAX_UNPACKED_ROWS
    if LAYOUTS[kind].scales is None:
        return MAX_ROWS
    return MAX_GROUPED_ROWS


def unpack(kind: str, blocks: NDArray[np.uint8], weights: NDArray[np.float32]) -> None:
    """Write the weights of rows of blocks, [rows, bytes], to `weights`, [rows, width]."""
    _unpack_rows(KINDS[kind], blocks, weights)


@njit(nogil=True, cache=True)
def _unpack_rows(kind, blocks, weights):
    for row in range(len(blocks)):
        source = blocks.ctypes.data + row * blocks.strides[0]
        target = weights.ctypes.data + row * weights.strides[0]
        widen(kind, source, target, weights.shape[1])


def as_q8_0(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert rows of blocks of Q5_0, [rows, bytes], to blocks of Q8_0 with the same weights,
    which passes read in half the time."""
    count = blocks.size // BLOCK_BYTES[Q5_0]
    repacked = np.empty((count, BLOCK_BYTES[Q8_0]), np.uint8)
    _repack(blocks, repacked)
    return repacked.reshape(len(blocks), -1)


@njit(nogil=True, cache=True)
def _repack(blocks, repacked):
    if len(repacked):
        widen_codes(blocks.ctypes.data, repacked.ctypes.data, len(repacked))

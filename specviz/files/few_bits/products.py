"""Products of rows with weights in the order of their file.

Each kind has a function, which is compiled when a model has such weights. Passes call it by its
address: direct callers would be compiled together with it.
"""

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

# Inputs and outputs that are multiplied together. They stay in the first level of a processor's
# cache.
CHUNK = 512  # inputs, a multiple of the weights of any block
OUTPUTS_AT_ONCE = 8  # a multiple of those that are summed side by side

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
    max_batch = _rows_together(kind)

    def multiply_rows(rows, x, x_step, w, inputs, outputs, y, y_step):
        w_step = bytes_of(kind, inputs)
        if rows == 1:
            multiply(kind, x, w, w_step, inputs, outputs, y)
            return
        # Each lane of a sum adds its products in the order of inputs, as in `multiply`.
        sums = np.empty((OUTPUTS_AT_ONCE, rows, VECTOR_LENGTH), np.float32)
        unpacked = np.empty((OUTPUTS_AT_ONCE, CHUNK), np.float32)
        unpacked_step = unpacked.strides[0]
        for first in range(0, outputs, OUTPUTS_AT_ONCE):
            count = min(OUTPUTS_AT_ONCE, outputs - first)
            # Packed weights are unpacked once for many rows. So are those of the last few outputs:
            # the sums of the missing ones are ignored.
            unpacks = (packed and rows > max_batch) or count < OUTPUTS_AT_ONCE
            limit = MAX_UNPACKED_ROWS if unpacks else max_batch
            batches = -(-rows // limit)
            batch_size = -(-rows // batches)  # rows; the last batch may have fewer
            sums[:] = 0
            for begin in range(0, inputs, CHUNK):
                width = min(CHUNK, inputs - begin)
                source = w + first * w_step + bytes_of(kind, begin)
                if unpacks:
                    for o in range(count):
                        target = unpacked.ctypes.data + o * unpacked_step
                        widen_as_met(kind, source + o * w_step, target, width)
                for row in range(0, rows, batch_size):
                    batch_rows = min(batch_size, rows - row)
                    x_here = x + row * x_step + 4 * begin
                    sums_here = sums.ctypes.data + row * sums.strides[1]
                    if unpacks:
                        accumulate_unpacked(
                            batch_rows,
                            x_here,
                            x_step,
                            unpacked.ctypes.data,
                            unpacked_step,
                            width,
                            OUTPUTS_AT_ONCE,
                            sums_here,
                            sums.strides[0],
                        )
                    else:
                        accumulate(
                            kind,
                            batch_rows,
                            x_here,
                            x_step,
                            source,
                            w_step,
                            width,
                            OUTPUTS_AT_ONCE,
                            sums_here,
                            sums.strides[0],
                        )
            for row in range(rows):
                sums_of_row = sums.ctypes.data + row * sums.strides[1]
                fold_sums(sums_of_row, sums.strides[0], count, y + row * y_step + 4 * first)

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

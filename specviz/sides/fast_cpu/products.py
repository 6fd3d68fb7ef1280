"""Products of rows with weights of any kind: one function, compiled once, that passes call by its
address. Whatever calls it directly would be compiled together with all of it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import cfunc, njit, types
from numpy.typing import NDArray

from .blocks import BLOCK_BYTES, BLOCK_WEIGHTS, KINDS, PLAIN
from .ir import LANES
from .vector import (
    LINES,
    MOST_ROWS,
    accumulate,
    fold_sums,
    multiply,
    multiply_row,
    widen,
    widen_as_met,
)

# Inputs of which weights are unpacked at a time: `LINES` lines of so many, and as many of all rows,
# stay in the first level of a processor's cache. A multiple of the weights of any block.
CHUNK = 512

_MOST_PLAIN = max(PLAIN)


@njit(nogil=True, cache=True)
def bytes_of(kind, count):
    """Bytes of so many weights of a kind, a multiple of what a block holds."""
    return count // BLOCK_WEIGHTS[kind] * BLOCK_BYTES[kind]


@cache
def product_code() -> int:
    """Where the code of `multiply_rows` lies, whose arguments are all int64."""
    signature = types.void(*[types.int64] * 9)
    address: int = cfunc(signature, cache=True)(multiply_rows).address
    return address


def multiply_rows(kind, rows, x, x_step, w, inputs, outputs, y, y_step):
    """y[r, o] = x[r] . w[o] for any number of rows and all outputs.

    x, y: addresses of fp32, x in the order of `rows.in_both_orders` that suits the kind; x_step,
    y_step: from a row to the next, bytes. w: the address of weights of a kind, [outputs, inputs].
    """
    w_step = bytes_of(kind, inputs)
    if rows <= MOST_ROWS and kind <= _MOST_PLAIN:
        multiply(kind, rows, x, x_step, w, w_step, inputs, outputs, y, y_step)
    elif rows == 1:
        multiply_row(kind, x, w, w_step, inputs, outputs, y)
    else:
        _unpack_and_multiply(kind, rows, x, x_step, w, inputs, outputs, y, y_step)


@njit(nogil=True, cache=True)
def _unpack_and_multiply(kind, rows, x, x_step, w, inputs, outputs, y, y_step):
    """`multiply_rows` for several rows: weights are unpacked once for all of them.

    Each lane of a sum adds its products in the order of inputs, as in `multiply`.
    """
    lines = np.empty((LINES, CHUNK), np.float32)
    sums = np.empty((rows, LINES, LANES), np.float32)
    w_step = bytes_of(kind, inputs)
    for first in range(0, outputs, LINES):
        count = min(LINES, outputs - first)
        sums[:] = 0
        for begin in range(0, inputs, CHUNK):
            width = min(CHUNK, inputs - begin)
            for o in range(count):
                source = w + (first + o) * w_step + bytes_of(kind, begin)
                widen_as_met(kind, source, lines.ctypes.data + o * lines.strides[0], width)
            for row in range(0, rows, MOST_ROWS):
                accumulate(
                    min(MOST_ROWS, rows - row),
                    x + row * x_step + 4 * begin,
                    x_step,
                    lines.ctypes.data,
                    lines.strides[0],
                    width,
                    sums.ctypes.data + row * sums.strides[0],
                )
        for r in range(rows):
            totals = sums.ctypes.data + r * sums.strides[0]
            fold_sums(totals, count, y + r * y_step + 4 * first)


def unpack(kind: str, blocks: NDArray[np.uint8], weights: NDArray[np.float32]) -> None:
    """Write the weights of rows of blocks, [rows, bytes], to `weights`, [rows, width]."""
    _unpack_rows(KINDS[kind], blocks, weights)


@njit(nogil=True, cache=True)
def _unpack_rows(kind, blocks, weights):
    for row in range(len(blocks)):
        source = blocks.ctypes.data + row * blocks.strides[0]
        target = weights.ctypes.data + row * weights.strides[0]
        widen(kind, source, target, weights.shape[1])

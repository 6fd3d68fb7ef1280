"""Packing of weights into blocks of Q4_0 or Q5_0, in compiled code: a draft is packed at each
load."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit
from numpy.typing import NDArray

from .blocks import BLOCK_BYTES, KINDS, Q4_0, Q5_0
from .ir import (
    F32,
    I8,
    I16,
    I32,
    INTEGERS,
    VECTOR_LENGTH,
    Loop,
    after,
    call_intrinsic,
    fma,
    fold,
    integers,
    load,
    operation,
    splat,
    spread,
    store,
    vector_at,
)
from .vector import widen

BLOCK = 32
LOWEST = {Q4_0: -8, Q5_0: -16}
"""The lowest code, by kind; the highest is -lowest - 1."""

FACTORS = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Scales to try for a block, as shares of the scale with which its largest weight gets the lowest
code. The first one of the least squared error is taken, so blocks of the kind itself keep their
weights."""


def pack(held_as: str, rows: NDArray[np.uint8], kind: str, blocks: NDArray[np.uint8]) -> None:
    """Write rows of weights of the kind `held_as`, [rows, bytes], as blocks of Q4_0 or Q5_0,
    [rows, bytes]."""
    _pack_rows(KINDS[held_as], rows, KINDS[kind], blocks)


@njit(nogil=True, cache=True)
def _pack_rows(held_as, rows, kind, blocks):
    width = blocks.shape[1] // BLOCK_BYTES[kind] * BLOCK
    numbers = np.empty(width, np.float32)
    for row in range(len(rows)):
        source = rows.ctypes.data + row * rows.strides[0]
        widen(held_as, source, numbers.ctypes.data, width)
        target = blocks.ctypes.data + row * blocks.strides[0]
        pack_blocks(kind, numbers.ctypes.data, width // BLOCK, target)


@operation(kind=tuple(LOWEST))
def pack_blocks(b, kind, weights, count, target):
    """Write `count` blocks, one or more, of fp32 weights."""
    lowest = LOWEST[kind]
    loop = Loop(b, count, 1, [weights, target])
    here, block = loop.carried
    numbers = [load(b, here), load(b, vector_at(b, here, 1))]
    extreme = _extreme(b, numbers)
    best_scale = None
    for factor in FACTORS:
        scale = b.fptrunc(b.fmul(extreme, F32(factor / lowest)), ir.HalfType())
        error = _squared_error(b, numbers, _codes(b, numbers, scale, lowest), scale)
        if best_scale is None:
            best_scale = scale
            min_error = error
        else:
            is_better = b.fcmp_ordered("<", error, min_error)
            best_scale = b.select(is_better, scale, best_scale)
            min_error = b.select(is_better, error, min_error)
    store(b, best_scale, block, align=2)
    codes = [
        b.add(b.fptosi(vector, INTEGERS), integers(-lowest))
        for vector in _codes(b, numbers, best_scale, lowest)
    ]
    nibbles_at = 2
    if kind == Q5_0:
        store(b, _fifth_bits(b, codes), after(b, block, 2), align=2)
        codes = [b.and_(vector, integers(15)) for vector in codes]
        nibbles_at = 6
    nibbles = b.or_(codes[0], b.shl(codes[1], integers(4)))
    nibble_bytes = b.trunc(nibbles, ir.VectorType(I8, VECTOR_LENGTH))
    store(b, nibble_bytes, after(b, block, nibbles_at), align=2)
    loop.end([after(b, here, 4 * BLOCK), after(b, block, BLOCK_BYTES[kind])])


def _fifth_bits(b, codes):
    """The fifth bits of two vectors of codes, as an integer of 32 bits."""
    fifths = [b.icmp_signed(">=", vector, integers(16)) for vector in codes]
    bits = [b.zext(b.bitcast(vector, I16), I32) for vector in fifths]
    return b.or_(bits[0], b.shl(bits[1], ir.Constant(I32, 16)))


def _extreme(b, numbers):
    """The number furthest from 0."""
    highest = call_intrinsic(b, "maxnum", *numbers)
    highest = fold(b, highest, lambda x, y: _chosen(b, ">", x, y))
    lowest = call_intrinsic(b, "minnum", *numbers)
    lowest = fold(b, lowest, lambda x, y: _chosen(b, "<", x, y))
    return b.select(b.fcmp_ordered(">=", b.fneg(lowest), highest), lowest, highest)


def _codes(b, numbers, scale, lowest):
    """The nearest code of each number, as fp32."""
    step = b.fpext(scale, F32)
    is_zero = b.fcmp_ordered("==", step, F32(0))
    inverse = spread(b, b.select(is_zero, F32(0), b.fdiv(F32(1), step)))
    codes = []
    for vector in numbers:
        nearest = call_intrinsic(b, "roundeven", b.fmul(vector, inverse))
        bounded = call_intrinsic(b, "maxnum", nearest, splat(float(lowest)))
        codes.append(call_intrinsic(b, "minnum", bounded, splat(float(-lowest - 1))))
    return codes


def _squared_error(b, numbers, codes, scale):
    steps = spread(b, b.fpext(scale, F32))
    total = splat(0.0)
    for vector, code in zip(numbers, codes, strict=True):
        error = fma(b, b.fneg(steps), code, vector)
        total = fma(b, error, error, total)
    return fold(b, total, b.fadd)


def _chosen(b, comparison, first, second):
    return b.select(b.fcmp_ordered(comparison, first, second), first, second)

"""Weights of a draft in five bits, and their products with inputs that are rounded to 16 bits.

A draft may be inexact, since its target judges what it drafts. Here its codes are multiplied as
integers, and a block's sum becomes one fp32: a fraction of the work of making each weight fp32, so
that a pass waits for memory only.

A row of weights lies in blocks of 32 that share a scale, as in the kind Q5_0 of GGUF files: a
weight is scale * code, with codes from -16 to 15. Three blocks lie together in 32 integers of 16
bits, a code in bits 0 to 4, 5 to 9 and 11 to 15 of each; behind all of them come the scales, fp16.
Both are filled up with zeros.
"""

from __future__ import annotations

from functools import cache, partial

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numpy.typing import NDArray

from . import kind
from .blocks import BLOCK_BYTES, BLOCK_WEIGHTS, KINDS
from .ir import (
    F32,
    I16,
    I32,
    INTEGERS,
    LANES,
    VECTOR,
    Loop,
    broadcast,
    call_intrinsic,
    cut,
    fma,
    fold,
    i64,
    load,
    operation,
    splat,
    spread,
    store,
)
from .vector import AHEAD, prefetch, widen

BLOCK = 32
"""Weights, and inputs, that share a scale."""

TOGETHER = 3
"""Blocks in a group of words."""

GROUP_BYTES = 2 * BLOCK
SHIFTS = (11, 6, 0)
"""By which a word is shifted to the left, so that its upper five bits are a block's code."""

CODE_SHIFT = 11
MOST_TOGETHER = 4
"""Rows of inputs that are multiplied together: more of them leave no registers for weights."""

LINES = 16
"""Outputs of many rows of inputs whose weights stay in the processor's cache for all rows."""

LARGEST = 32767.0  # code of an input
TINY = 1e-30  # inputs below it are rounded to 0

PAIRS = LANES // 2
SHORTS = ir.VectorType(I16, LANES)
PAIR_SUMS = ir.VectorType(I32, PAIRS)
SUMS = ir.VectorType(F32, PAIRS)
HALFS = ir.VectorType(ir.HalfType(), LANES)


groups_of = njit(kind.groups_of)
scales_of = njit(kind.scales_of)
row_bytes = njit(kind.row_bytes)


@operation()
def round_inputs(b, x, count, codes, scales):
    """Round `count` fp32 numbers, a multiple of `BLOCK`, to codes, int16, and a scale, fp32, of
    each block; it is NaN where a number is NaN or infinite."""
    loop = Loop(b, count, BLOCK, [codes, scales])
    codes_here, scale_here = loop.carried
    here = b.add(x, b.mul(loop.index, i64(4)))
    numbers = [load(b, here), load(b, b.add(here, i64(4 * LANES)))]
    sizes = [call_intrinsic(b, "fabs", vector) for vector in numbers]
    larger = call_intrinsic(b, "maxnum", *sizes)
    size = _chosen(b, ">", fold(b, larger, partial(_chosen, b, ">")), F32(TINY))
    factors = spread(b, b.fdiv(F32(LARGEST), size))
    for index, vector in enumerate(numbers):
        nearest = call_intrinsic(b, "roundeven", b.fmul(vector, factors))
        integers = b.trunc(b.fptosi(nearest, INTEGERS), SHORTS)
        store(b, integers, b.add(codes_here, i64(2 * LANES * index)))
    nan_or_zero = fold(b, b.fmul(b.fadd(*numbers), splat(0.0)), b.fadd)
    scale = b.fadd(b.fdiv(size, F32(LARGEST)), nan_or_zero)
    store(b, scale, scale_here)
    loop.end([b.add(codes_here, i64(2 * BLOCK)), b.add(scale_here, i64(4))])


@operation(rows=range(1, MOST_TOGETHER + 1))
def multiply_codes(
    b, rows, x, x_step, scales, scales_step, w, groups, scale_count, outputs, y, y_step, factors
):
    """y[r, o] = x[r] . w[o] for these rows and all outputs, one or more.

    One output comes after the other: two at a time are two streams of short rows, which took 1.45
    times as long to arrive from memory as one.
    x, scales: as `round_inputs` gives them, filled up like the scales of a row of weights.
    groups, scale_count: of a row of weights. factors: memory for as many fp32 numbers as it has
    scales, for each row.
    """
    words = b.mul(groups, i64(GROUP_BYTES))
    w_step = b.add(words, b.mul(scale_count, i64(2)))
    xs = [b.add(x, b.mul(x_step, i64(r))) for r in range(rows)]
    of_rows = [b.add(factors, b.mul(scale_count, i64(4 * r))) for r in range(rows)]
    loop = Loop(b, outputs, 1, [w])
    weights = loop.carried[0]
    for r, address in enumerate(of_rows):
        of_inputs = b.add(scales, b.mul(scales_step, i64(r)))
        _multiply_scales(b, b.add(weights, words), of_inputs, scale_count, address)
    totals = _sums_of_codes(b, xs, weights, groups, of_rows)
    out = b.add(y, b.mul(loop.index, i64(4)))
    for r, total in enumerate(totals):
        store(b, fold(b, total, b.fadd), b.add(out, b.mul(y_step, i64(r))))
    loop.end([b.add(weights, w_step)])


def _multiply_scales(b, of_weights, of_inputs, count, products):
    """Scales of weights, fp16, times those of inputs, fp32."""
    loop = Loop(b, count, LANES, [])
    halfs = b.load(b.inttoptr(b.add(of_weights, b.mul(loop.index, i64(2))), HALFS.as_pointer()))
    halfs.align = 2
    offset = b.mul(loop.index, i64(4))
    product = b.fmul(b.fpext(halfs, VECTOR), load(b, b.add(of_inputs, offset)))
    store(b, product, b.add(products, offset))
    loop.end([])


def _sums_of_codes(b, xs, weights, groups, factors):
    """For each row of inputs the `SUMS` that make its product with a row of weights.

    factors: addresses of the products of their scales.
    """
    zeros = [ir.Constant(SUMS, [0.0] * PAIRS)] * len(xs)
    loop = Loop(b, groups, 1, zeros)
    sums = list(loop.carried)
    begin = b.mul(loop.index, i64(GROUP_BYTES))
    here = b.add(weights, begin)
    prefetch(b, b.add(here, i64(AHEAD)))
    halves = [_load_shorts(b, b.add(here, i64(offset))) for offset in (0, BLOCK)]
    first_factor = b.mul(loop.index, i64(4 * TOGETHER))
    for block, left in enumerate(SHIFTS):
        codes = [_codes(b, words, left) for words in halves]
        at = b.add(b.mul(begin, i64(TOGETHER)), i64(GROUP_BYTES * block))
        for r, x in enumerate(xs):
            inputs = [_load_shorts(b, b.add(b.add(x, at), i64(offset))) for offset in (0, BLOCK)]
            total = b.add(*map(partial(_pair_sums, b), codes, inputs))
            factor_at = b.add(b.add(factors[r], first_factor), i64(4 * block))
            factor = cut(b, broadcast(b, factor_at), PAIRS, 0)
            sums[r] = fma(b, b.sitofp(total, SUMS), factor, sums[r])
    loop.end(sums)
    return loop.carried_out


def _codes(b, words, left):
    shifted = b.shl(words, _shorts(left)) if left else words
    return b.ashr(shifted, _shorts(CODE_SHIFT))


def _pair_sums(b, first, second):
    """first[2 i] * second[2 i] + first[2 i + 1] * second[2 i + 1]."""
    if llvm.get_host_cpu_features().get("avx2"):
        multiply = ir.FunctionType(PAIR_SUMS, [SHORTS, SHORTS])
        name = "llvm.x86.avx2.pmadd.wd"
        return b.call(cgutils.get_or_insert_function(b.module, multiply, name), [first, second])
    products = b.mul(b.sext(first, INTEGERS), b.sext(second, INTEGERS))
    even, odd = (
        b.shuffle_vector(products, products, ir.Constant(PAIR_SUMS, list(range(begin, LANES, 2))))
        for begin in (0, 1)
    )
    return b.add(even, odd)


def _load_shorts(b, address):
    loaded = b.load(b.inttoptr(address, SHORTS.as_pointer()))
    loaded.align = 2
    return loaded


def _shorts(value):
    return ir.Constant(SHORTS, [value] * LANES)


@cache
def five_bit_product_code() -> int:
    """As `products.product_code`, for weights in five bits."""
    signature = types.void(*[types.int64] * 8)
    address: int = cfunc(signature, cache=True)(_multiply_rows).address
    return address


def _multiply_rows(rows, x, x_step, w, width, outputs, y, y_step):
    groups = groups_of(width)
    scale_count = scales_of(width)
    codes = np.zeros((rows, groups * TOGETHER * BLOCK), np.int16)
    scales = np.zeros((rows, scale_count), np.float32)
    factors = np.empty(MOST_TOGETHER * scale_count, np.float32)
    for row in range(rows):
        codes_at = codes.ctypes.data + row * codes.strides[0]
        scales_at = scales.ctypes.data + row * scales.strides[0]
        round_inputs(x + row * x_step, width, codes_at, scales_at)
    each = outputs if rows <= MOST_TOGETHER else LINES
    for first in range(0, outputs, each):
        for row in range(0, rows, MOST_TOGETHER):
            multiply_codes(
                min(MOST_TOGETHER, rows - row),
                codes.ctypes.data + row * codes.strides[0],
                codes.strides[0],
                scales.ctypes.data + row * scales.strides[0],
                scales.strides[0],
                w + first * row_bytes(width),
                groups,
                scale_count,
                min(each, outputs - first),
                y + row * y_step + 4 * first,
                y_step,
                factors.ctypes.data,
            )


def pack(kind: str, rows: NDArray[np.uint8], packed: NDArray[np.uint8]) -> None:
    """Write rows of weights of a kind, [rows, bytes], in five bits to `packed`, [rows, bytes]. A
    scale is the largest weight of its block divided by -16, as in Q5_0, whose blocks thus keep
    their weights."""
    _pack_rows(KINDS[kind], rows, packed)


@njit(nogil=True, cache=True)
def _pack_rows(kind, rows, packed):
    width = rows.shape[1] // BLOCK_BYTES[kind] * BLOCK_WEIGHTS[kind]
    blocks = width // BLOCK
    numbers = np.empty(width, np.float32)
    packed[:] = 0
    for row in range(len(rows)):
        widen(kind, rows.ctypes.data + row * rows.strides[0], numbers.ctypes.data, width)
        words = packed.ctypes.data + row * packed.strides[0]
        scales = words + groups_of(width) * GROUP_BYTES
        for place in range(min(TOGETHER, blocks)):
            pack_blocks(place, numbers.ctypes.data, blocks, words, scales)


@operation(place=range(TOGETHER))
def pack_blocks(b, place, weights, blocks, words, scales):
    """Write the codes and the scale of every third block of a row, from `place` on. The bits of the
    codes must be 0."""
    loop = Loop(b, b.sub(blocks, i64(place)), TOGETHER, [words])
    block = b.add(loop.index, i64(place))
    here = b.add(weights, b.mul(block, i64(4 * BLOCK)))
    numbers = [load(b, here), load(b, b.add(here, i64(4 * LANES)))]
    highest = fold(b, call_intrinsic(b, "maxnum", *numbers), partial(_chosen, b, ">"))
    lowest = fold(b, call_intrinsic(b, "minnum", *numbers), partial(_chosen, b, "<"))
    is_low = b.fcmp_ordered(">=", b.fneg(lowest), highest)
    scale = b.fptrunc(b.fmul(b.select(is_low, lowest, highest), F32(-1 / 16)), ir.HalfType())
    store(b, scale, b.add(scales, b.mul(block, i64(2))), align=2)
    step = b.fpext(scale, F32)
    is_zero = b.fcmp_ordered("==", step, F32(0))
    inverse = spread(b, b.select(is_zero, F32(0), b.fdiv(F32(1), step)))
    for index, vector in enumerate(numbers):
        nearest = call_intrinsic(b, "roundeven", b.fmul(vector, inverse))
        code = b.fptosi(call_intrinsic(b, "minnum", nearest, splat(15.0)), INTEGERS)
        bits = b.and_(b.trunc(code, SHORTS), _shorts(31))
        address = b.add(loop.carried[0], i64(2 * LANES * index))
        moved = b.shl(bits, _shorts(CODE_SHIFT - SHIFTS[place]))
        store(b, b.or_(_load_shorts(b, address), moved), address)
    loop.end([b.add(loop.carried[0], i64(GROUP_BYTES))])


def _chosen(b, comparison, first, second):
    return b.select(b.fcmp_ordered(comparison, first, second), first, second)


def unpack(rows: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    """The weights of rows in five bits: [rows, width]."""
    words = groups_of(width) * GROUP_BYTES
    scales = rows[:, words:].view(np.float16)[:, : width // BLOCK].astype(np.float32)
    groups = rows[:, :words].view(np.int16).reshape(len(rows), -1, 1, BLOCK)
    shifts = np.array(SHIFTS, np.int16)[:, None]
    codes = (groups << shifts >> CODE_SHIFT).reshape(len(rows), -1, BLOCK)[:, : width // BLOCK]
    weights: NDArray[np.float32] = (codes * scales[..., None]).reshape(len(rows), width)
    return weights

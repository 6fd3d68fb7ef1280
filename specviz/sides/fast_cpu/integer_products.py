"""Products of weights of few bits with inputs that are rounded to 8 bits, as integers.

Each 32 inputs of a row share a scale, the largest of them divided by 127, and become integers from
-127 to 127. Products of weights' codes with such inputs are summed as integers, exactly, and the
sum of a block becomes one fp32:

    y = sum over blocks of  input_scale * (scale * sum(code * input) + minimum * sum(input))

Blocks are added in their order, so an output has the same bits for any number of rows or threads
and on any processor. Weights keep the values of their file; only inputs are rounded. llama.cpp
does the same (https://github.com/ggml-org/ggml/blob/master/src/ggml-cpu/quants.c, `vec_dot`), in K
kinds with one scale for each 256 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, types

from ...files.few_bits.blocks import (
    BLOCK_BYTES,
    BLOCK_WEIGHTS,
    HALVES,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
)
from ...files.few_bits.ir import (
    F32,
    I8,
    I32,
    INTEGERS,
    VECTOR,
    VECTOR_LENGTH,
    Loop,
    after,
    broadcast,
    call_intrinsic,
    fma,
    fold,
    i64,
    integers,
    larger,
    load_as,
    memory_of,
    number_at,
    operation,
    part_at,
    pointer,
    row_at,
    splat,
    spread,
    store,
    vector_at,
)
from ...files.few_bits.ir import VECTOR_LENGTH as OUTPUTS
from ...files.few_bits.ir import load as load_floats
from ...files.few_bits.vector import LINE, prefetch
from .integer_sums import FORMS, LARGEST_INPUT, SIGNED_BITS, IntegerSums, fastest_form, spread_word

BLOCK = 32  # inputs that share a scale
WORDS = 8  # of a block, four inputs each
MAX_TOGETHER = 8
"""Rows of inputs that are multiplied together."""

AHEAD = 8192  # prefetch distance in bytes
TINY = 1e-30  # inputs below it are rounded to 0

SCALE_VECTORS = 16

RECORD = 48
"""Bytes of a block of rounded inputs: 32 codes, then fp32 scale and sum of the codes, and for each
half of the block the integer with which its sums begin."""

SCALE_AT = 32
SUM_AT = 36
STARTS_AT = 40

FORM_NAMES = tuple(FORMS)


@dataclass
class Group:
    """The codes of 32 inputs and sixteen outputs.

    codes: makes the vector of each of the `WORDS`. scales: fp32 vectors, one for the group, or one
    for each half. minimum: fp32 vector, or None.
    """

    codes: Callable[[int], Any]
    scales: list[Any]
    minimum: Any = None


@dataclass(frozen=True)
class Kind:
    """The layout of a kind's block in a tile.

    bits: of a code. groups: (builder, address of the block, address of its scales, index of the
    part, int64) -> the groups of 32 inputs of a part, in their order. bias: the codes minus the
    integers that they stand for. parts: of a block, of equal size, so that the code of one part
    serves all. scales: (builder, address of the block, address of memory for `SCALE_VECTORS`) ->
    None, writes the scales of all parts; None if scales are not packed.
    """

    bits: int
    groups: Callable[[ir.IRBuilder, Any, Any, Any], Iterator[Group]]
    bias: int = 0
    parts: int = 1
    scales: Callable[[ir.IRBuilder, Any, Any], None] | None = None


def _element(b: ir.IRBuilder, tile: Any, offset: int) -> Any:
    """The word of four bytes at `offset` bytes from the start of a row's block."""
    return load_as(b, INTEGERS, after(b, tile, OUTPUTS * offset), align=2)


def _half_floats(b: ir.IRBuilder, tile: Any, offset: int) -> Any:
    """The fp16 at this offset, as fp32."""
    halves = load_as(b, HALVES, after(b, tile, OUTPUTS * offset), align=2)
    return b.fpext(halves, VECTOR)


def _bits(b: ir.IRBuilder, words: Any, right: Any, mask: int) -> Any:
    """The bits of `mask` in each byte of the words, after a shift. right: a number of bits, to the
    left if below 0, or a vector of them."""
    if not isinstance(right, int):
        words = b.lshr(words, right)
    elif right > 0:
        words = b.lshr(words, integers(right))
    elif right < 0:
        words = b.shl(words, integers(-right))
    return b.and_(words, integers(mask * 0x01010101))


def _nibble(b: ir.IRBuilder, tile: Any, begin: int, word: int) -> Any:
    """The codes of four inputs in kinds whose 16 bytes hold 32 codes: the first 16 in their low
    halves, the others in their high halves."""
    words = _element(b, tile, begin + 4 * (word % 4))
    return _bits(b, words, 4 * (word // 4), 15)


def _fifth_bits(b: ir.IRBuilder, tile: Any, begin: int, word: int) -> Any:
    return _bits(b, _element(b, tile, begin), word - 4, 16)


def _q4_0(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    yield Group(lambda word: _nibble(b, tile, 2, word), [_half_floats(b, tile, 0)])


def _q4_1(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    minimum = _half_floats(b, tile, 2)
    yield Group(lambda word: _nibble(b, tile, 4, word), [_half_floats(b, tile, 0)], minimum)


def _q5_0(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    def codes(word: int) -> Any:
        return b.or_(_nibble(b, tile, 6, word), _fifth_bits(b, tile, 2, word))

    yield Group(codes, [_half_floats(b, tile, 0)])


def _q5_1(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    def codes(word: int) -> Any:
        return b.or_(_nibble(b, tile, 8, word), _fifth_bits(b, tile, 4, word))

    yield Group(codes, [_half_floats(b, tile, 0)], _half_floats(b, tile, 2))


def _q8_0(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    yield Group(lambda word: _element(b, tile, 2 + 4 * word), [_half_floats(b, tile, 0)])


def _q4_k(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    """32 bytes of a part hold the codes of one group in their low halves, and those of the next
    group in their high halves."""
    words = part_at(b, tile, part, OUTPUTS * 32)
    for group in range(2):

        def codes(word: int, group: int = group) -> Any:
            return _bits(b, _element(b, words, 16 + 4 * word), 4 * group, 15)

        scale, minimum = _scale_vectors(b, scales, part, group)
        yield Group(codes, [scale], minimum)


def _q5_k(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    """As Q4_K, with fifth bits before the codes: bit g of 32 bytes belongs to group g."""
    words = part_at(b, tile, part, OUTPUTS * 32)
    skipped = _spread_index(b, b.mul(part, i64(2)))
    for group in range(2):

        def codes(word: int, group: int = group) -> Any:
            low = _bits(b, _element(b, words, 48 + 4 * word), 4 * group, 15)
            fifth = _bits(b, _element(b, tile, 16 + 4 * word), skipped, 1 << group)
            return b.or_(low, b.shl(fifth, integers(4 - group)))

        scale, minimum = _scale_vectors(b, scales, part, group)
        yield Group(codes, [scale], minimum)


def _q6_k(b: ir.IRBuilder, tile: Any, scales: Any, part: Any) -> Iterator[Group]:
    """Two halves of 128 codes: in each, 64 bytes hold the low 4 bits of codes and 32 bytes the
    high 2. A part is half of a half."""
    half = b.lshr(part, i64(1))
    low_words = part_at(b, tile, half, OUTPUTS * 64)
    high_words = part_at(b, tile, half, OUTPUTS * 32)
    skipped = _spread_index(b, b.mul(b.and_(part, i64(1)), i64(4)))
    for group in range(2):

        def codes(word: int, group: int = group) -> Any:
            low = _bits(b, _element(b, low_words, 32 * group + 4 * word), skipped, 15)
            high = _bits(b, _element(b, high_words, 128 + 4 * word), skipped, 3 << 2 * group)
            return b.or_(low, b.shl(high, integers(4 - 2 * group)))

        yield Group(codes, _scale_vectors(b, scales, part, group))


def _spread_index(b: ir.IRBuilder, index: Any) -> Any:
    return spread_word(b, b.trunc(index, I32), VECTOR_LENGTH)


def _scale_vectors(b: ir.IRBuilder, scales: Any, part: Any, group: int) -> list[Any]:
    """The two vectors of a group from memory that `Kind.scales` has written."""
    of_part = part_at(b, scales, part, 4 * 4 * VECTOR_LENGTH)
    first = load_floats(b, vector_at(b, of_part, 2 * group))
    second = load_floats(b, vector_at(b, of_part, 2 * group + 1))
    return [first, second]


def _group_scales(b: ir.IRBuilder, tile: Any, scales: Any) -> None:
    """Write the scale and the minimum with the sign reversed for each of the 8 groups of a block.

    A block begins with a scale and a minimum, fp16, and three words with 8 codes of 6 bits for
    each of them. The first four codes of both are the low bits of the bytes of two words, whose
    other bits are the top bits of the last four codes; their low bits are the halves of the third
    word.
    """
    factors = [_half_floats(b, tile, 0), b.fneg(_half_floats(b, tile, 2))]
    words = [_element(b, tile, 4), _element(b, tile, 8)]
    low_bits = _element(b, tile, 12)
    for i, (factor, word) in enumerate(zip(factors, words, strict=True)):
        low = _bits(b, low_bits, 4 * i, 15)
        first = _bits(b, word, 0, 63)
        last = b.or_(low, _bits(b, word, 2, 48))
        for group in range(8):
            codes = first if group < 4 else last
            code = _byte(b, codes, group % 4)
            vector = b.fmul(factor, b.uitofp(code, VECTOR))
            store(b, vector, vector_at(b, scales, 2 * group + i))


def _q6_k_scales(b: ir.IRBuilder, tile: Any, scales: Any) -> None:
    """Write the scales of 16 inputs each: after the codes come 16 of them, int8, and the common
    scale, fp16."""
    whole = _half_floats(b, tile, 208)
    for index in range(16):
        four = _element(b, tile, 192 + index // 4 * 4)
        code = b.ashr(b.shl(four, integers(24 - 8 * (index % 4))), integers(24))
        vector = b.fmul(whole, b.sitofp(code, VECTOR))
        store(b, vector, vector_at(b, scales, index))


def _byte(b: ir.IRBuilder, words: Any, index: int) -> Any:
    """One byte of each word, as an unsigned integer."""
    return b.and_(b.lshr(words, integers(8 * index)), integers(255))


TILED = {
    Q4_0: Kind(4, _q4_0, bias=8),
    Q4_1: Kind(4, _q4_1),
    Q5_0: Kind(5, _q5_0, bias=16),
    Q5_1: Kind(5, _q5_1),
    Q8_0: Kind(8, _q8_0),
    Q4_K: Kind(4, _q4_k, parts=4, scales=_group_scales),
    Q5_K: Kind(5, _q5_k, parts=4, scales=_group_scales),
    Q6_K: Kind(6, _q6_k, bias=32, parts=4, scales=_q6_k_scales),
}
"""The kinds of weights that integer products read."""


@operation()
def round_inputs(b, x, count, bias, records, step):
    """Round `count` fp32 numbers, a multiple of `BLOCK`, to codes and a scale for each block.

    records: the address for the first block's `RECORD`. step: bytes from a record to the next.
    bias: of the weights' codes, to be corrected in the sums. The scale is NaN if a number is NaN
    or infinite.
    """
    loop = Loop(b, count, BLOCK, [records])
    record = loop.carried[0]
    here = number_at(b, x, loop.index)
    numbers = [load_floats(b, here), load_floats(b, vector_at(b, here, 1))]
    sizes = [call_intrinsic(b, "fabs", vector) for vector in numbers]
    largest_sizes = call_intrinsic(b, "maxnum", *sizes)
    largest = fold(b, largest_sizes, partial(larger, b))
    size = larger(b, largest, F32(TINY))
    factors = spread(b, b.fdiv(F32(LARGEST_INPUT), size))
    total = integers(0)
    start_factor = b.neg(b.trunc(bias, I32))
    for half, vector in enumerate(numbers):
        nearest = call_intrinsic(b, "roundeven", b.fmul(vector, factors))
        # NaN becomes the lowest code; the scale makes it NaN again.
        bounded = call_intrinsic(b, "maxnum", nearest, splat(-LARGEST_INPUT))
        bounded = call_intrinsic(b, "minnum", bounded, splat(LARGEST_INPUT))
        codes = b.fptosi(bounded, INTEGERS)
        code_bytes = b.trunc(codes, ir.VectorType(I8, VECTOR_LENGTH))
        store(b, code_bytes, after(b, record, VECTOR_LENGTH * half))
        of_half = fold(b, codes, b.add)
        start = b.mul(of_half, start_factor)
        store(b, start, after(b, record, STARTS_AT + 4 * half))
        total = b.add(total, codes)
    whole_sum = b.sitofp(fold(b, total, b.add), F32)
    store(b, whole_sum, after(b, record, SUM_AT))
    nan_or_zero = fold(b, b.fmul(b.fadd(*numbers), splat(0.0)), b.fadd)
    scale = b.fadd(b.fdiv(size, F32(LARGEST_INPUT)), nan_or_zero)
    store(b, scale, after(b, record, SCALE_AT))
    loop.end([b.add(record, step)])


@operation(
    kind=tuple(TILED),
    form=range(len(FORM_NAMES)),
    rows=range(1, MAX_TOGETHER + 1),
)
def multiply_tiles(b, kind, form, rows, records, tiles, blocks, count, y, y_step):
    """Write the products of these rows with `count` tiles, one or more.

    records: rounded inputs, [inputs / 32, rows] of `RECORD` bytes. tiles: [count, blocks] blocks
    of sixteen outputs. y: the address for the first row's outputs, fp32. y_step: bytes between
    rows.
    """
    layout = TILED[kind]
    form_of_sums = FORMS[FORM_NAMES[form]]
    groups = BLOCK_WEIGHTS[kind] // BLOCK // layout.parts
    block_bytes = OUTPUTS * BLOCK_BYTES[kind]
    scales = memory_of(b, SCALE_VECTORS * VECTOR_LENGTH)
    tile_loop = Loop(b, count, 1, [tiles, y])
    tile, out = tile_loop.carried
    loop = Loop(b, blocks, 1, [tile, records, *[splat(0.0)] * rows])
    block, inputs, *totals = loop.carried
    for offset in range(0, block_bytes, LINE):
        prefetch(b, after(b, block, offset + AHEAD))
    if layout.scales is not None:
        layout.scales(b, block, scales)
    parts = Loop(b, i64(layout.parts), 1, [inputs, *totals])
    inputs, *totals = parts.carried
    for index, group in enumerate(layout.groups(b, block, scales, parts.index)):
        of_rows = [after(b, inputs, RECORD * (index * rows + row)) for row in range(rows)]
        totals = _add_group(b, partial(form_of_sums, b, layout.bits), group, of_rows, totals)
    next_inputs = after(b, inputs, RECORD * rows * groups)
    parts.end([next_inputs, *totals])
    next_block = after(b, block, block_bytes)
    loop.end([next_block, *parts.carried_out])
    next_tile, _, *totals = loop.carried_out
    for row, total in enumerate(totals):
        store(b, total, row_at(b, out, y_step, row))
    tile_loop.end([next_tile, vector_at(b, out, 1)])


def _add_group(
    b: ir.IRBuilder,
    form: Callable[[Any], IntegerSums],
    group: Group,
    records: list[Any],
    totals: list[Any],
) -> list[Any]:
    """Add the products of a group to the running totals of each row, fp32."""
    parts = len(group.scales)
    sums: list[list[IntegerSums]] = [[] for _ in records]
    for word in range(WORDS):
        if word % (WORDS // parts) == 0:
            part = word * parts // WORDS
            for of_row, record in zip(sums, records, strict=True):
                of_row.append(form(_start(b, record, part, parts)))
        codes = sums[0][-1].prepared(group.codes(word))
        for of_row, record in zip(sums, records, strict=True):
            of_row[-1].add(codes, _word(b, record, 4 * word))
    added = []
    for of_row, record, total in zip(sums, records, totals, strict=True):
        numbers = [b.sitofp(part_sums.total(), VECTOR) for part_sums in of_row]
        product = b.fmul(group.scales[0], numbers[0])
        for scale, number in zip(group.scales[1:], numbers[1:], strict=True):
            product = fma(b, scale, number, product)
        if group.minimum is not None:
            input_sum = broadcast(b, after(b, record, SUM_AT))
            product = fma(b, group.minimum, input_sum, product)
        input_scale = broadcast(b, after(b, record, SCALE_AT))
        added.append(fma(b, input_scale, product, total))
    return added


def _start(b: ir.IRBuilder, record: Any, part: int, parts: int) -> Any:
    """The integer with which the sums of a part of a group begin, in all lanes."""
    start = _word(b, record, STARTS_AT + 4 * part)
    if parts == 1:
        start = b.add(start, _word(b, record, STARTS_AT + 4))
    return spread_word(b, start, VECTOR_LENGTH)


def _word(b: ir.IRBuilder, record: Any, offset: int) -> Any:
    return load_as(b, I32, after(b, record, offset), align=4)


def code_bias(kind: int, form: str) -> int:
    """The bias of a kind's codes in the form that multiplies them."""
    layout = TILED[kind]
    if layout.bits == SIGNED_BITS:
        return FORMS[form].offset
    return layout.bias


@cache
def integer_product_code(kind: int) -> int:
    """`products.product_code` for weights in tiles, in the fastest form of this processor."""
    form = fastest_form()
    form_index = FORM_NAMES.index(form)
    offset = code_bias(kind, form)
    weights = BLOCK_WEIGHTS[kind]
    block_bytes = OUTPUTS * BLOCK_BYTES[kind]

    def multiply_rows(rows, x, x_step, w, width, outputs, y, y_step):
        groups = -(-rows // MAX_TOGETHER)
        together = -(-rows // groups)
        records = np.empty((groups, width // BLOCK * together * RECORD), np.uint8)
        for row in range(rows):
            group = row // together
            in_group = min(together, rows - group * together)
            target = records.ctypes.data + group * records.strides[0]
            target += (row - group * together) * RECORD
            round_inputs(x + row * x_step, width, offset, target, in_group * RECORD)
        blocks = width // weights
        tile_bytes = blocks * block_bytes
        whole = outputs // OUTPUTS
        # The weights of a tile stay in the processor's cache for all groups of rows.
        each = whole if groups == 1 else 1
        for first in range(0, whole, max(each, 1)):
            for group in range(groups):
                in_group = min(together, rows - group * together)
                multiply_tiles(
                    kind,
                    form_index,
                    in_group,
                    records.ctypes.data + group * records.strides[0],
                    w + first * tile_bytes,
                    blocks,
                    each,
                    y + group * together * y_step + 4 * OUTPUTS * first,
                    y_step,
                )
        rest = outputs - whole * OUTPUTS
        if rest > 0:
            last = np.empty((together, OUTPUTS), np.float32)
            for group in range(groups):
                in_group = min(together, rows - group * together)
                multiply_tiles(
                    kind,
                    form_index,
                    in_group,
                    records.ctypes.data + group * records.strides[0],
                    w + whole * tile_bytes,
                    blocks,
                    1,
                    last.ctypes.data,
                    last.strides[0],
                )
                for row in range(in_group):
                    at = y + (group * together + row) * y_step + 4 * OUTPUTS * whole
                    line = carray(pointer(at), rest, np.float32)
                    for i in range(rest):
                        line[i] = last[row, i]

    signature = types.void(*[types.int64] * 8)
    address: int = cfunc(signature, cache=True)(multiply_rows).address
    return address

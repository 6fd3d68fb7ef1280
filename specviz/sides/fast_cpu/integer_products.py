"""Products of weights of few bits with inputs that are rounded to 8 bits, as integers.

Each 32 inputs of a row share a scale, the largest of them divided by 127, and become integers from
-127 to 127. Products of weights' codes with such inputs are summed as integers, exactly, and the
sum of a block becomes one fp32:

    y = sum over blocks of  input_scale * (scale * sum(code * input) + minimum * sum(input))

Blocks are added in their order, so an output has the same bits for any number of rows or threads
and on any processor. Weights keep the values of their file; only inputs are rounded. llama.cpp
does the same (https://github.com/ggml-org/ggml/blob/master/src/ggml-cpu/quants.c, `vec_dot`), in K
kinds with one scale for each 256 inputs.

    integer_product_code -> round_inputs     rows of inputs -> records of 32 rounded inputs
                         -> multiply_tiles   records and tiles -> outputs
                            tile_layouts.py  -> the codes and scales of a block
                            integer_sums.py  -> sum(code * input), with each instruction set
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, types

from ...files.few_bits.blocks import BLOCK_BYTES, BLOCK_WEIGHTS
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
    load,
    load_as,
    memory_of,
    number_at,
    operation,
    pointer,
    row_at,
    splat,
    spread,
    store,
    vector_at,
)
from ...files.few_bits.tiles import OUTPUTS
from ...files.few_bits.vector import CACHE_LINE, prefetch
from .integer_sums import FORMS, LARGEST_INPUT, SIGNED_BITS, IntegerSums, fastest_form
from .tile_layouts import SCALE_VECTORS, TILED, WORDS, Group

BLOCK = 32  # inputs that share a scale
MAX_TOGETHER = 8  # rows of inputs that are multiplied together
AHEAD = 8192  # prefetch distance in bytes
TINY = 1e-30  # inputs below it are rounded to 0

# A record is a block of rounded inputs: 32 int8, then their scale and their sum as fp32. For each
# half of the block follows an int32 with which its sums begin: it removes the bias of the weights'
# codes.
RECORD = 48  # bytes
SCALE_AT = 32
SUM_AT = 36
STARTS_AT = 40

FORM_NAMES = tuple(FORMS)


@cache
def integer_product_code(kind: int) -> int:
    """`products.product_code` for weights in tiles, in the fastest form of this processor."""
    form = fastest_form()
    form_index = FORM_NAMES.index(form)
    bias = code_bias(kind, form)
    block_weights = BLOCK_WEIGHTS[kind]
    block_bytes = OUTPUTS * BLOCK_BYTES[kind]

    def multiply_rows(rows, x, x_step, w, width, outputs, y, y_step):
        batches = -(-rows // MAX_TOGETHER)
        batch_size = -(-rows // batches)  # rows; the last batch may have fewer
        records = np.empty((batches, width // BLOCK * batch_size * RECORD), np.uint8)
        for row in range(rows):
            batch = row // batch_size
            batch_rows = min(batch_size, rows - batch * batch_size)
            first_record = records.ctypes.data + batch * records.strides[0]
            first_record += (row - batch * batch_size) * RECORD
            round_inputs(x + row * x_step, width, bias, first_record, batch_rows * RECORD)
        blocks = width // block_weights
        tile_bytes = blocks * block_bytes
        whole_tiles = outputs // OUTPUTS
        # With several batches one tile at a time, whose weights stay in the processor's cache.
        tiles_at_once = whole_tiles if batches == 1 else 1
        for tile in range(0, whole_tiles, max(tiles_at_once, 1)):
            for batch in range(batches):
                batch_rows = min(batch_size, rows - batch * batch_size)
                multiply_tiles(
                    kind,
                    form_index,
                    batch_rows,
                    records.ctypes.data + batch * records.strides[0],
                    w + tile * tile_bytes,
                    blocks,
                    tiles_at_once,
                    y + batch * batch_size * y_step + 4 * OUTPUTS * tile,
                    y_step,
                )
        rest = outputs - whole_tiles * OUTPUTS
        if rest > 0:  # the last tile has more outputs than y
            tile_outputs = np.empty((batch_size, OUTPUTS), np.float32)
            for batch in range(batches):
                batch_rows = min(batch_size, rows - batch * batch_size)
                multiply_tiles(
                    kind,
                    form_index,
                    batch_rows,
                    records.ctypes.data + batch * records.strides[0],
                    w + whole_tiles * tile_bytes,
                    blocks,
                    1,
                    tile_outputs.ctypes.data,
                    tile_outputs.strides[0],
                )
                for row in range(batch_rows):
                    at = y + (batch * batch_size + row) * y_step + 4 * OUTPUTS * whole_tiles
                    line = carray(pointer(at), rest, np.float32)
                    for i in range(rest):
                        line[i] = tile_outputs[row, i]

    signature = types.void(*[types.int64] * 8)
    address: int = cfunc(signature, cache=True)(multiply_rows).address
    return address


def code_bias(kind: int, form: str) -> int:
    """The bias of a kind's codes in the form that multiplies them."""
    layout = TILED[kind]
    if layout.bits == SIGNED_BITS:
        return FORMS[form].offset
    return layout.bias


@operation()
def round_inputs(b, x, count, bias, records, step):
    """Round `count` fp32 inputs, a multiple of `BLOCK`, to a record for each block.

    records: the address of the first block's record. step: bytes from a record to the next. bias:
    of the weights' codes. The scale is NaN if an input is NaN or infinite.
    """
    loop = Loop(b, count, BLOCK, [records])
    record = loop.carried[0]
    here = number_at(b, x, loop.index)
    halves = [load(b, here), load(b, vector_at(b, here, 1))]
    sizes = [call_intrinsic(b, "fabs", half) for half in halves]
    largest_sizes = call_intrinsic(b, "maxnum", *sizes)
    largest = fold(b, largest_sizes, partial(larger, b))
    size = larger(b, largest, F32(TINY))
    factors = spread(b, b.fdiv(F32(LARGEST_INPUT), size))
    total = integers(0)
    negative_bias = b.neg(b.trunc(bias, I32))
    for index, half in enumerate(halves):
        rounded = _rounded(b, b.fmul(half, factors))
        as_bytes = b.trunc(rounded, ir.VectorType(I8, VECTOR_LENGTH))
        store(b, as_bytes, after(b, record, VECTOR_LENGTH * index))
        sum_of_half = fold(b, rounded, b.add)
        start = b.mul(sum_of_half, negative_bias)
        store(b, start, after(b, record, STARTS_AT + 4 * index))
        total = b.add(total, rounded)
    whole_sum = b.sitofp(fold(b, total, b.add), F32)
    store(b, whole_sum, after(b, record, SUM_AT))
    nan_or_zero = fold(b, b.fmul(b.fadd(*halves), splat(0.0)), b.fadd)
    scale = b.fadd(b.fdiv(size, F32(LARGEST_INPUT)), nan_or_zero)
    store(b, scale, after(b, record, SCALE_AT))
    loop.end([b.add(record, step)])


def _rounded(b: ir.IRBuilder, numbers: Any) -> Any:
    """The nearest integers, from -127 to 127."""
    nearest = call_intrinsic(b, "roundeven", numbers)
    # NaN becomes the lowest one; the scale makes it NaN again.
    bounded = call_intrinsic(b, "maxnum", nearest, splat(-LARGEST_INPUT))
    bounded = call_intrinsic(b, "minnum", bounded, splat(LARGEST_INPUT))
    return b.fptosi(bounded, INTEGERS)


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
    block_bytes = OUTPUTS * BLOCK_BYTES[kind]
    groups_of_part = BLOCK_WEIGHTS[kind] // BLOCK // layout.parts
    make_sums = partial(FORMS[FORM_NAMES[form]], b, layout.bits)
    scales = memory_of(b, SCALE_VECTORS * VECTOR_LENGTH)

    each_tile = Loop(b, count, 1, [tiles, y])
    tile, out = each_tile.carried
    each_block = Loop(b, blocks, 1, [tile, records, *[splat(0.0)] * rows])
    block, inputs, *totals = each_block.carried
    for offset in range(0, block_bytes, CACHE_LINE):
        prefetch(b, after(b, block, offset + AHEAD))
    if layout.scales is not None:
        layout.scales(b, block, scales)

    each_part = Loop(b, i64(layout.parts), 1, [inputs, *totals])
    inputs, *totals = each_part.carried
    for index, group in enumerate(layout.groups(b, block, scales, each_part.index)):
        of_rows = [after(b, inputs, RECORD * (index * rows + row)) for row in range(rows)]
        totals = _add_group(b, make_sums, group, of_rows, totals)
    next_inputs = after(b, inputs, RECORD * rows * groups_of_part)
    each_part.end([next_inputs, *totals])

    next_block = after(b, block, block_bytes)
    each_block.end([next_block, *each_part.carried_out])
    next_tile, _, *totals = each_block.carried_out
    for row, total in enumerate(totals):
        store(b, total, row_at(b, out, y_step, row))
    each_tile.end([next_tile, vector_at(b, out, 1)])


def _add_group(
    b: ir.IRBuilder,
    make_sums: Callable[[Any], IntegerSums],
    group: Group,
    records: list[Any],
    totals: list[Any],
) -> list[Any]:
    """Add the products of a group to the running totals of each row, fp32."""
    sums_of_rows = _integer_sums(b, make_sums, group, records)
    added = []
    for record, sums, total in zip(records, sums_of_rows, totals, strict=True):
        numbers = [b.sitofp(half.total(), VECTOR) for half in sums]
        product = b.fmul(group.scales[0], numbers[0])
        for scale, number in zip(group.scales[1:], numbers[1:], strict=True):
            product = fma(b, scale, number, product)
        if group.minimum is not None:
            input_sum = broadcast(b, after(b, record, SUM_AT))
            product = fma(b, group.minimum, input_sum, product)
        input_scale = broadcast(b, after(b, record, SCALE_AT))
        added.append(fma(b, input_scale, product, total))
    return added


def _integer_sums(
    b: ir.IRBuilder,
    make_sums: Callable[[Any], IntegerSums],
    group: Group,
    records: list[Any],
) -> list[list[IntegerSums]]:
    """Multiply the codes of a group with the inputs of each row: for each row, one sum for each of
    the group's scales."""
    sums_of_rows: list[list[IntegerSums]] = [[] for _ in records]
    count = len(group.scales)
    words = WORDS // count
    for index in range(count):
        sums = [make_sums(_start(b, record, index, count)) for record in records]
        for word in range(index * words, (index + 1) * words):
            codes = sums[0].prepared(group.codes(word))  # the same for all rows
            for of_row, record in zip(sums, records, strict=True):
                of_row.add(codes, _word(b, record, 4 * word))
        for of_row, found in zip(sums_of_rows, sums, strict=True):
            of_row.append(found)
    return sums_of_rows


def _start(b: ir.IRBuilder, record: Any, index: int, count: int) -> Any:
    """The integer with which a sum begins, in all lanes. count: of the sums of a group."""
    start = _word(b, record, STARTS_AT + 4 * index)
    if count == 1:
        start = b.add(start, _word(b, record, STARTS_AT + 4))
    return spread(b, start)


def _word(b: ir.IRBuilder, record: Any, offset: int) -> Any:
    return load_as(b, I32, after(b, record, offset), align=4)

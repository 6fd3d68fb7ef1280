"""Operations on vectors and matrices that numba cannot express, in LLVM's intermediate language.

All arguments are addresses (int64) and counts; matrices are given by the address of their first
entry and the distance of their rows in bytes. Sums have one fixed order, whatever the number of
rows: 16 running sums, then a tree of additions. So a row's results do not depend on the other
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from .blocks import (
    BFLOAT16,
    BLOCK_BYTES,
    FLOAT32,
    KINDS,
    LAYOUTS,
    PACKED,
    PLAIN,
    Q5_0,
    Q8_0,
    Layout,
    q5_0_codes,
)
from .ir import (
    I8,
    I16,
    I32,
    INTEGERS,
    VECTOR_LENGTH,
    Loop,
    after,
    broadcast,
    call_intrinsic,
    cut,
    exp,
    fma,
    fold,
    i64,
    joined,
    larger,
    load,
    load_as,
    memory_of,
    number_at,
    operation,
    row_at,
    splat,
    spread,
    store,
    vector_at,
)

CACHE_LINE = 64  # bytes
AHEAD = 8192  # prefetch distance in bytes: more than arrive during one memory access


MAX_COMBINED = 6
"""Rows that `combine` takes."""


@operation(kind=tuple(KINDS.values()))
def widen(b, kind, source, target, count):
    """Copy `count` weights of `kind`, a multiple of its step, as fp32 in their order."""
    _widen(b, kind, source, target, count, in_order=True)


@operation(kind=PLAIN)
def widen_numbers(b, kind, source, target, count):
    """Copy norms or biases as fp32: `widen` for few kinds, which is compiled quickly."""
    _widen(b, kind, source, target, count, in_order=True)


@operation(kind=tuple(KINDS.values()))
def widen_as_met(b, kind, source, target, count):
    """Copy weights as fp32 in the order in which `multiply` meets them."""
    _widen(b, kind, source, target, count, in_order=False)


def _widen(b, kind, source, target, count, *, in_order):
    layout = LAYOUTS[kind]
    scales = memory_of(b, VECTOR_LENGTH)
    loop = Loop(b, count, layout.weights, [source])
    step = loop.carried[0]
    _prefetch_step(b, layout, step, AHEAD)
    if layout.scales is not None:
        layout.scales(b, step, scales)
    parts = Loop(b, i64(layout.parts), 1, [])
    vectors = layout.unpack(b, step, scales, parts.index)
    if kind == BFLOAT16 and in_order:
        even, odd = vectors
        vectors = _interleaved(b, even, odd)
    done = b.add(loop.index, b.mul(parts.index, i64(layout.weights // layout.parts)))
    here = number_at(b, target, done)
    for index, vector in enumerate(vectors):
        store(b, vector, vector_at(b, here, index))
    parts.end([])
    loop.end([after(b, step, layout.bytes)])


def _interleaved(b, even, odd):
    """Two vectors with alternating numbers of `even` and `odd`."""
    order = []
    for lane in range(VECTOR_LENGTH):
        order += [lane, VECTOR_LENGTH + lane]
    for half in (order[:VECTOR_LENGTH], order[VECTOR_LENGTH:]):
        yield b.shuffle_vector(even, odd, ir.Constant(INTEGERS, half))


@operation()
def widen_codes(b, source, target, count):
    """Write `count` blocks of Q5_0, one or more, as blocks of Q8_0 with the same weights."""
    loop = Loop(b, count, 1, [source, target])
    block, written = loop.carried
    scale = load_as(b, I16, block, align=2)
    store(b, scale, written, align=2)
    store(b, q5_0_codes(b, block), after(b, written, 2), align=1)
    loop.end([after(b, block, BLOCK_BYTES[Q5_0]), after(b, written, BLOCK_BYTES[Q8_0])])


@operation()
def softmax(b, scores, count):
    """Softmax of `count` fp32 numbers in place, a multiple of `VECTOR_LENGTH`; -inf gives 0."""
    loop = Loop(b, count, VECTOR_LENGTH, [splat(-3e38)])
    here = number_at(b, scores, loop.index)
    highest = call_intrinsic(b, "maxnum", loop.carried[0], load(b, here))
    loop.end([highest])
    top = fold(b, highest, partial(larger, b))
    tops = spread(b, top)

    loop = Loop(b, count, VECTOR_LENGTH, [splat(0.0)])
    here = number_at(b, scores, loop.index)
    weight = exp(b, b.fsub(load(b, here), tops))
    store(b, weight, here)
    sums = b.fadd(loop.carried[0], weight)
    loop.end([sums])
    total = fold(b, sums, b.fadd)
    totals = spread(b, total)

    loop = Loop(b, count, VECTOR_LENGTH, [])
    here = number_at(b, scores, loop.index)
    store(b, b.fdiv(load(b, here), totals), here)
    loop.end([])


@operation()
def gate_by_silu(b, gate, up, count):
    """gate = silu(gate) * up in place, `count` fp32 numbers, a multiple of `VECTOR_LENGTH`."""
    loop = Loop(b, count, VECTOR_LENGTH, [])
    offset = b.mul(loop.index, i64(4))
    g = load(b, b.add(gate, offset))
    # e^-g, within the range of `exp`; outside of it silu is 0 or g to the last bit.
    bounded = call_intrinsic(b, "maxnum", b.fneg(g), splat(-86.0))
    bounded = call_intrinsic(b, "minnum", bounded, splat(88.0))
    silu = b.fdiv(g, b.fadd(splat(1.0), exp(b, bounded)))
    gated = b.fmul(silu, load(b, b.add(up, offset)))
    store(b, gated, b.add(gate, offset))
    loop.end([])


def _outputs_at_once(kind: int, rows: int) -> int:
    """The number of outputs that can be summed side by side in the vector registers."""
    if rows == 1:  # such a product waits for memory only, so few streams of weights are best
        return 2
    lanes, registers = _registers()
    sums = VECTOR_LENGTH // lanes  # registers for the sums of a row and an output
    # Unpacking needs registers of its own; a vector of inputs takes one.
    unpacking = sums if kind in PACKED else 1
    for outputs in (8, 4, 2):
        if sums * rows * outputs + unpacking * outputs + 1 <= registers:
            return outputs
    return 1


def _registers() -> tuple[int, int]:
    """The number of fp32 numbers in a vector register of this processor, and of such registers."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 32
    if features.get("avx"):
        return 8, 16
    return 4, 32


MAX_ROWS = 6
"""Rows that `accumulate` takes: more rows would leave no registers for weights."""

MAX_UNPACKED_ROWS = 6 if _registers()[1] == 32 else 3
"""Rows for which it can sum two outputs side by side, if weights need no unpacking."""


@operation(kind=tuple(KINDS.values()))
def multiply(b, kind, x, w, w_step, inputs, outputs, y):
    """y[o] = x . w[o] for one row and all outputs.

    x, y: fp32, x in the order of `rows.in_both_orders` that suits the kind. w: of `kind`. inputs:
    a multiple of a step's weights.
    """
    width = _outputs_at_once(kind, 1)
    whole = b.and_(outputs, i64(-width))
    _multiply_by(b, kind, width, x, w, w_step, inputs, whole, y)
    rest = b.sub(outputs, whole)
    w_rest = b.add(w, b.mul(w_step, whole))
    y_rest = number_at(b, y, whole)
    _multiply_by(b, kind, 1, x, w_rest, w_step, inputs, rest, y_rest)


def _multiply_by(b, kind, width, x, w, w_step, inputs, outputs, y):
    """`multiply` for a number of outputs that is a multiple of `width`, `width` of them side by
    side."""
    with b.if_then(b.icmp_signed(">", outputs, i64(0))):
        loop = Loop(b, outputs, width, [w])
        first_row = loop.carried[0]
        ws = [row_at(b, first_row, w_step, o) for o in range(width)]
        zeros = [splat(0.0)] * width
        sums = _dot_products(b, kind, [x], ws, inputs, zeros, AHEAD)
        out = number_at(b, y, loop.index)
        for o, total in enumerate(sums):
            output = fold(b, total, b.fadd)
            store(b, output, after(b, out, 4 * o))
        next_row = row_at(b, first_row, w_step, width)
        loop.end([next_row])


@operation(kind=tuple(KINDS.values()), rows=range(1, MAX_ROWS + 1))
def accumulate(b, kind, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step):
    """Add the products of rows with all outputs to their running sums, as `multiply` sums them.

    sums: fp32 [outputs, rows, VECTOR_LENGTH]. sums_step: bytes from an output to the next.
    outputs: a multiple of those that are summed side by side.
    """
    # Of several rows more bytes arrive during an access than of one.
    ahead = 3 * AHEAD
    _accumulate(b, kind, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step, ahead)


@operation(rows=range(1, MAX_UNPACKED_ROWS + 1))
def accumulate_unpacked(b, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step):
    """`accumulate` for weights in fp32 that are in the processor's cache already."""
    _accumulate(b, FLOAT32, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step, ahead=0)


def _accumulate(b, kind, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step, ahead):
    width = _outputs_at_once(kind, rows)
    xs = [row_at(b, x, x_step, r) for r in range(rows)]
    loop = Loop(b, outputs, width, [w, sums])
    first_row, first_sums = loop.carried
    ws = [row_at(b, first_row, w_step, o) for o in range(width)]
    addresses = []
    for r in range(rows):
        for o in range(width):
            sums_of_output = row_at(b, first_sums, sums_step, o)
            addresses.append(vector_at(b, sums_of_output, r))
    start = [load(b, address) for address in addresses]
    totals = _dot_products(b, kind, xs, ws, inputs, start, ahead)
    for address, total in zip(addresses, totals, strict=True):
        store(b, total, address)
    next_row = row_at(b, first_row, w_step, width)
    next_sums = row_at(b, first_sums, sums_step, width)
    loop.end([next_row, next_sums])


@operation()
def fold_sums(b, sums, sums_step, count, y):
    """y[i] = the total of the running sums i, for `count` of them. sums_step: bytes between
    them."""
    loop = Loop(b, count, 1, [])
    running = load(b, b.add(sums, b.mul(loop.index, sums_step)))
    total = fold(b, running, b.fadd)
    store(b, total, number_at(b, y, loop.index))
    loop.end([])


def _dot_products(b, kind, xs, ws, inputs, start, ahead):
    """Add the products of each row of inputs and each row of weights to `start`, its running sums,
    which are folded later. xs, ws: addresses of the rows. ahead: the prefetch distance in bytes; 0
    for none."""
    layout = LAYOUTS[kind]
    lanes, _ = _registers()
    pieces = VECTOR_LENGTH // lanes
    scales = [memory_of(b, VECTOR_LENGTH) for _ in ws]
    sums = [cut(b, vector, lanes, piece) for vector in start for piece in range(pieces)]
    each_step = Loop(b, inputs, layout.weights, [i64(0), *sums])
    steps = [b.add(address, each_step.carried[0]) for address in ws]
    for step, memory in zip(steps, scales, strict=True):
        if ahead:
            _prefetch_step(b, layout, step, ahead)
        if layout.scales is not None:
            layout.scales(b, step, memory)

    each_part = Loop(b, i64(layout.parts), 1, each_step.carried[1:])
    sums = list(each_part.carried)
    part_begin = b.mul(each_part.index, i64(layout.weights // layout.parts))
    x_offset = b.mul(b.add(each_step.index, part_begin), i64(4))
    unpacked = [
        layout.unpack(b, step, memory, each_part.index)
        for step, memory in zip(steps, scales, strict=True)
    ]
    for index, weights in enumerate(zip(*unpacked, strict=True)):
        _add_products(b, xs, x_offset, index, weights, lanes, sums)
    each_part.end(sums)

    next_step = after(b, each_step.carried[0], layout.bytes)
    each_step.end([next_step, *each_part.carried_out])
    return [joined(b, vector) for vector in batched(each_step.carried_out[1:], pieces)]


def _add_products(b, xs, x_offset, index, weights, lanes, sums):
    """Add the products of each row's vector of inputs at an index, from `x_offset` on, with that
    vector of weights of each output. sums: in pieces of `lanes` lanes, [rows, outputs, pieces]."""
    pieces = VECTOR_LENGTH // lanes
    for piece in range(pieces):
        w_pieces = [cut(b, vector, lanes, piece) for vector in weights]
        offset = i64(4 * (VECTOR_LENGTH * index + lanes * piece))
        for r, address in enumerate(xs):
            x_piece = load(b, b.add(b.add(address, x_offset), offset), lanes)
            for o, w_piece in enumerate(w_pieces):
                i = (r * len(weights) + o) * pieces + piece
                sums[i] = fma(b, x_piece, w_piece, sums[i])


def batched(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The values in groups of `size`."""
    return [values[i : i + size] for i in range(0, len(values), size)]


def _prefetch_step(b: ir.IRBuilder, layout: Layout, address: Any, ahead: int) -> None:
    """Prefetch the weights `ahead` bytes after those of one step."""
    for line in range(0, layout.bytes, CACHE_LINE):
        prefetch(b, after(b, address, line + ahead))


def prefetch(b: ir.IRBuilder, address: Any) -> None:
    # Outputs side by side are separate streams, which the processor's own prefetcher misses. The
    # target is the second level of cache: the first has too few open accesses for the memory's
    # bandwidth.
    kinds = [I8.as_pointer(), I32, I32, I32]
    function_type = ir.FunctionType(ir.VoidType(), kinds)
    prefetch = cgutils.get_or_insert_function(b.module, function_type, "llvm.prefetch.p0")
    hints = [ir.Constant(I32, value) for value in (0, 2, 1)]
    b.call(prefetch, [b.inttoptr(address, I8.as_pointer()), *hints])


@operation(rows=range(1, MAX_COMBINED + 1))
def combine(b, rows, a, a_step, m, m_step, count, y, y_step, width):
    """y[r] = sum over i of a[r, i] * m[i], over the first `count` lines of m; all fp32.

    rows: 1 to `MAX_COMBINED`. width: columns of m, a multiple of `VECTOR_LENGTH`.
    """
    for vectors in (4, 1):
        size = vectors * VECTOR_LENGTH
        whole = b.and_(width, i64(-size))
        with b.if_then(b.icmp_signed(">", whole, i64(0))):
            _combine_columns(b, rows, vectors, a, a_step, m, m_step, count, y, y_step, whole)
        width = b.sub(width, whole)
        m = number_at(b, m, whole)
        y = number_at(b, y, whole)


def _combine_columns(b, rows, vectors, a, a_step, m, m_step, count, y, y_step, width):
    columns = Loop(b, width, vectors * VECTOR_LENGTH, [])
    offset = b.mul(columns.index, i64(4))
    zeros = [splat(0.0)] * (rows * vectors)
    loop = Loop(b, count, 1, [b.add(m, offset), *zeros])
    line = loop.carried[0]
    sums = loop.carried[1:]
    parts = [load(b, vector_at(b, line, v)) for v in range(vectors)]
    for r in range(rows):
        entry = b.add(b.mul(a_step, i64(r)), b.mul(loop.index, i64(4)))
        factor = broadcast(b, b.add(a, entry))
        for v, part in enumerate(parts):
            i = r * vectors + v
            sums[i] = fma(b, factor, part, sums[i])
    loop.end([b.add(line, m_step), *sums])
    for r in range(rows):
        out = b.add(row_at(b, y, y_step, r), offset)
        for v in range(vectors):
            store(b, sums[r * vectors + v], vector_at(b, out, v))
    columns.end([])

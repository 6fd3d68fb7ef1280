"""Operations on vectors and matrices that numba cannot express, in LLVM's intermediate language.

All arguments are addresses (int64) and counts; matrices are given by the address of their first
entry and the distance of their rows in bytes. Sums have one fixed order, whatever the number of
rows: 16 running sums, then a tree of additions. So a row's results do not depend on the rows
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    LANES,
    Loop,
    broadcast,
    call_intrinsic,
    cut,
    exp,
    fma,
    fold,
    i64,
    joined,
    load,
    memory_of,
    operation,
    splat,
    spread,
    store,
)

LINE = 64  # bytes of a cache line
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
    scales = memory_of(b, LANES)
    loop = Loop(b, count, layout.weights, [source])
    step = loop.carried[0]
    _prefetch_step(b, layout, step, AHEAD)
    if layout.scales is not None:
        layout.scales(b, step, scales)
    parts = Loop(b, i64(layout.parts), 1, [])
    vectors = layout.unpack(b, step, scales, parts.index)
    if kind == BFLOAT16 and in_order:
        order = [lane for i in range(LANES) for lane in (i, LANES + i)]
        even, odd = vectors
        vectors = (
            b.shuffle_vector(even, odd, ir.Constant(INTEGERS, half))
            for half in (order[:LANES], order[LANES:])
        )
    done = b.add(loop.index, b.mul(parts.index, i64(layout.weights // layout.parts)))
    here = b.add(target, b.mul(done, i64(4)))
    for index, vector in enumerate(vectors):
        store(b, vector, b.add(here, i64(4 * LANES * index)))
    parts.end([])
    loop.end([b.add(step, i64(layout.bytes))])


@operation()
def widen_codes(b, source, target, count):
    """Write `count` blocks of Q5_0, one or more, as blocks of Q8_0 with the same weights."""
    loop = Loop(b, count, 1, [source, target])
    block, written = loop.carried
    scale = b.load(b.inttoptr(block, I16.as_pointer()))
    scale.align = 2
    b.store(scale, b.inttoptr(written, I16.as_pointer())).align = 2
    codes = q5_0_codes(b, block)
    b.store(codes, b.inttoptr(b.add(written, i64(2)), codes.type.as_pointer())).align = 1
    loop.end([b.add(block, i64(BLOCK_BYTES[Q5_0])), b.add(written, i64(BLOCK_BYTES[Q8_0]))])


@operation()
def softmax(b, scores, count):
    """Softmax of `count` fp32 numbers in place, a multiple of `LANES`; -inf gives 0."""
    loop = Loop(b, count, LANES, [splat(-3e38)])
    here = b.add(scores, b.mul(loop.index, i64(4)))
    highest = call_intrinsic(b, "maxnum", loop.carried[0], load(b, here))
    loop.end([highest])

    tops = spread(b, fold(b, highest, lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y)))
    loop = Loop(b, count, LANES, [splat(0.0)])
    here = b.add(scores, b.mul(loop.index, i64(4)))
    weight = exp(b, b.fsub(load(b, here), tops))
    store(b, weight, here)
    sums = b.fadd(loop.carried[0], weight)
    loop.end([sums])
    totals = spread(b, fold(b, sums, b.fadd))
    loop = Loop(b, count, LANES, [])
    here = b.add(scores, b.mul(loop.index, i64(4)))
    store(b, b.fdiv(load(b, here), totals), here)
    loop.end([])


@operation()
def gate_by_silu(b, gate, up, count):
    """gate = silu(gate) * up in place, `count` fp32 numbers, a multiple of `LANES`."""
    loop = Loop(b, count, LANES, [])
    offset = b.mul(loop.index, i64(4))
    g = load(b, b.add(gate, offset))
    # e^-g, within the range of `exp`; outside of it silu is 0 or g to the last bit.
    bounded = call_intrinsic(
        b, "minnum", call_intrinsic(b, "maxnum", b.fneg(g), splat(-86.0)), splat(88.0)
    )
    silu = b.fdiv(g, b.fadd(splat(1.0), exp(b, bounded)))
    store(b, b.fmul(silu, load(b, b.add(up, offset))), b.add(gate, offset))
    loop.end([])


def _outputs(kind: int, rows: int) -> int:
    """The number of outputs that can be summed side by side in the vector registers."""
    if rows == 1:  # such a product waits for memory only, so few streams of weights are best
        return 2
    lanes, registers = _registers()
    sums = LANES // lanes  # registers for the sums of a row and an output
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
    width = _outputs(kind, 1)
    whole = b.and_(outputs, i64(-width))
    _tiles(b, kind, width, x, w, w_step, inputs, whole, y)
    rest = b.sub(outputs, whole)
    w_rest = b.add(w, b.mul(w_step, whole))
    _tiles(b, kind, 1, x, w_rest, w_step, inputs, rest, b.add(y, b.mul(whole, i64(4))))


def _tiles(b, kind, width, x, w, w_step, inputs, outputs, y):
    """Compute all outputs, a multiple of `width`, `width` of them side by side."""
    with b.if_then(b.icmp_signed(">", outputs, i64(0))):
        loop = Loop(b, outputs, width, [w])
        ws = [b.add(loop.carried[0], b.mul(w_step, i64(o))) for o in range(width)]
        sums = _dot_products(b, kind, [x], ws, inputs, [splat(0.0)] * width, AHEAD)
        out = b.add(y, b.mul(loop.index, i64(4)))
        for o, total in enumerate(sums):
            store(b, fold(b, total, b.fadd), b.add(out, i64(4 * o)))
        loop.end([b.add(loop.carried[0], b.mul(w_step, i64(width)))])


@operation(kind=tuple(KINDS.values()), rows=range(1, MAX_ROWS + 1))
def accumulate(b, kind, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step):
    """Add the products of rows with all outputs to their running sums, as `multiply` sums them.

    sums: fp32 [outputs, rows, LANES]. sums_step: bytes from an output to the next. outputs: a
    multiple of those that are summed side by side.
    """
    # Of several rows more bytes arrive during an access than of one.
    ahead = 3 * AHEAD
    _accumulate(b, kind, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step, ahead)


@operation(rows=range(1, MAX_UNPACKED_ROWS + 1))
def accumulate_unpacked(b, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step):
    """`accumulate` for weights in fp32 that are in the processor's cache already."""
    _accumulate(b, FLOAT32, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step, ahead=0)


def _accumulate(b, kind, rows, x, x_step, w, w_step, inputs, outputs, sums, sums_step, ahead):
    width = _outputs(kind, rows)
    xs = [b.add(x, b.mul(x_step, i64(r))) for r in range(rows)]
    loop = Loop(b, outputs, width, [w, sums])
    ws = [b.add(loop.carried[0], b.mul(w_step, i64(o))) for o in range(width)]
    addresses = [
        b.add(b.add(loop.carried[1], b.mul(sums_step, i64(o))), i64(4 * LANES * r))
        for r in range(rows)
        for o in range(width)
    ]
    start = [load(b, address) for address in addresses]
    totals = _dot_products(b, kind, xs, ws, inputs, start, ahead)
    for address, total in zip(addresses, totals, strict=True):
        store(b, total, address)
    following = b.add(loop.carried[0], b.mul(w_step, i64(width)))
    loop.end([following, b.add(loop.carried[1], b.mul(sums_step, i64(width)))])


@operation()
def fold_sums(b, sums, sums_step, count, y):
    """y[i] = the total of the running sums i, for `count` of them. sums_step: bytes between
    them."""
    loop = Loop(b, count, 1, [])
    total = fold(b, load(b, b.add(sums, b.mul(loop.index, sums_step))), b.fadd)
    store(b, total, b.add(y, b.mul(loop.index, i64(4))))
    loop.end([])


def _dot_products(b, kind, xs, ws, inputs, start, ahead):
    """Add the products of each row of inputs and each row of weights to `start`, its running sums,
    which are folded later. xs, ws: addresses of the rows. ahead: the prefetch distance in bytes; 0
    for none."""
    layout = LAYOUTS[kind]
    lanes, _ = _registers()
    pieces = LANES // lanes
    scales = [memory_of(b, LANES) for _ in ws]
    sums = [cut(b, vector, lanes, piece) for vector in start for piece in range(pieces)]
    loop = Loop(b, inputs, layout.weights, [i64(0), *sums])
    steps = [b.add(address, loop.carried[0]) for address in ws]
    for step, memory in zip(steps, scales, strict=True):
        if ahead:
            _prefetch_step(b, layout, step, ahead)
        if layout.scales is not None:
            layout.scales(b, step, memory)
    parts = Loop(b, i64(layout.parts), 1, loop.carried[1:])
    sums = list(parts.carried)
    done = b.add(loop.index, b.mul(parts.index, i64(layout.weights // layout.parts)))
    x_offset = b.mul(done, i64(4))
    streams = [
        layout.unpack(b, step, memory, parts.index)
        for step, memory in zip(steps, scales, strict=True)
    ]
    for index, weights in enumerate(zip(*streams, strict=True)):
        for piece in range(pieces):
            pieces_of_weights = [cut(b, vector, lanes, piece) for vector in weights]
            offset = i64(4 * (LANES * index + lanes * piece))
            for r, address in enumerate(xs):
                x_piece = load(b, b.add(b.add(address, x_offset), offset), lanes)
                for o, w_piece in enumerate(pieces_of_weights):
                    i = (r * len(ws) + o) * pieces + piece
                    sums[i] = fma(b, x_piece, w_piece, sums[i])
    parts.end(sums)
    sums = list(parts.carried_out)
    loop.end([b.add(loop.carried[0], i64(layout.bytes)), *sums])
    return [joined(b, group) for group in batched(loop.carried_out[1:], pieces)]


def batched(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The values in groups of `size`."""
    return [values[i : i + size] for i in range(0, len(values), size)]


def _prefetch_step(b: ir.IRBuilder, layout: Layout, address: Any, ahead: int) -> None:
    """Prefetch the weights that lie `ahead` bytes after those of one step."""
    for line in range(0, layout.bytes, LINE):
        prefetch(b, b.add(address, i64(line + ahead)))


def prefetch(b: ir.IRBuilder, address: Any) -> None:
    # The outputs of a tile are separate streams, which the processor's own prefetcher misses. The
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

    rows: 1 to `MAX_COMBINED`. width: columns of m, a multiple of `LANES`.
    """
    for vectors in (4, 1):
        size = vectors * LANES
        whole = b.and_(width, i64(-size))
        with b.if_then(b.icmp_signed(">", whole, i64(0))):
            _combine_columns(b, rows, vectors, a, a_step, m, m_step, count, y, y_step, whole)
        width = b.sub(width, whole)
        m, y = (b.add(address, b.mul(whole, i64(4))) for address in (m, y))


def _combine_columns(b, rows, vectors, a, a_step, m, m_step, count, y, y_step, width):
    columns = Loop(b, width, vectors * LANES, [])
    offset = b.mul(columns.index, i64(4))
    zeros = [splat(0.0)] * (rows * vectors)
    loop = Loop(b, count, 1, [b.add(m, offset), *zeros])
    line = loop.carried[0]
    carried = loop.carried[1:]
    parts = [load(b, b.add(line, i64(4 * LANES * v))) for v in range(vectors)]
    sums = []
    for r in range(rows):
        entry = b.add(b.mul(a_step, i64(r)), b.mul(loop.index, i64(4)))
        factor = broadcast(b, b.add(a, entry))
        sums += [fma(b, factor, part, carried[r * vectors + v]) for v, part in enumerate(parts)]
    loop.end([b.add(line, m_step), *sums])
    for r in range(rows):
        out = b.add(b.add(y, b.mul(y_step, i64(r))), offset)
        for v in range(vectors):
            store(b, sums[r * vectors + v], b.add(out, i64(4 * LANES * v)))
    columns.end([])

"""Operations on vectors and matrices that numba cannot express, in LLVM's intermediate language.

All arguments are addresses (int64) and counts; matrices are given by the address of their first
entry and the distance of their rows in bytes. Sums are made in one fixed order, whatever the
number of rows, so that a row's results do not depend on the rows beside it: 16 running sums, then
a tree of additions.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from .ir import (
    I8,
    I32,
    INTEGERS,
    LANES,
    VECTOR,
    Loop,
    broadcast,
    call_intrinsic,
    exp,
    fma,
    fold,
    i64,
    load,
    operation,
    splat,
    spread,
    store,
)

STEP = 32  # numbers that an operation over weights takes at a time
FLOAT32, BFLOAT16, FLOAT16 = range(3)
KINDS = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
"""Dtypes of weights by name, as the numbers that the functions below take."""
BYTES = (4, 2, 2)  # of a weight, by kind
MOST_ROWS = 6  # that one call multiplies: a verify pass of gamma = 5


def widened(b: ir.IRBuilder, address: Any, kind: int) -> tuple[Any, Any]:
    """`STEP` weights as two vectors of fp32: the first and second half, or, of bf16, those at even
    and at odd places."""
    if kind == FLOAT32:
        return load(b, address), load(b, b.add(address, i64(4 * LANES)))
    if kind == BFLOAT16:  # each is the upper half of an fp32
        pairs = b.load(b.inttoptr(address, INTEGERS.as_pointer()))
        pairs.align = 2
        even = b.shl(pairs, ir.Constant(INTEGERS, [16] * LANES))
        odd = b.and_(pairs, ir.Constant(INTEGERS, [0xFFFF0000] * LANES))
        return b.bitcast(even, VECTOR), b.bitcast(odd, VECTOR)
    halves = []
    for place in (address, b.add(address, i64(2 * LANES))):
        raw = b.load(b.inttoptr(place, ir.VectorType(ir.HalfType(), LANES).as_pointer()))
        raw.align = 2
        halves.append(b.fpext(raw, VECTOR))
    return halves[0], halves[1]


@operation(kind=tuple(KINDS.values()))
def widen(b, kind, source, target, count):
    """Copy `count` numbers of `kind`, a multiple of `STEP`, as fp32."""
    loop = Loop(b, count, STEP, [])
    first, second = widened(b, b.add(source, b.mul(loop.index, i64(BYTES[kind]))), kind)
    if kind == BFLOAT16:
        order = [p for i in range(LANES) for p in (i, LANES + i)]
        first, second = (
            b.shuffle_vector(first, second, ir.Constant(INTEGERS, part))
            for part in (order[:LANES], order[LANES:])
        )
    here = b.add(target, b.mul(loop.index, i64(4)))
    store(b, first, here)
    store(b, second, b.add(here, i64(4 * LANES)))
    loop.end([])


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
    place = b.mul(loop.index, i64(4))
    g = load(b, b.add(gate, place))
    # e^-g, within the range of `exp`; outside of it silu is 0 or g to the last bit.
    bounded = call_intrinsic(
        b, "minnum", call_intrinsic(b, "maxnum", b.fneg(g), splat(-86.0)), splat(88.0)
    )
    silu = b.fdiv(g, b.fadd(splat(1.0), exp(b, bounded)))
    store(b, b.fmul(silu, load(b, b.add(up, place))), b.add(gate, place))
    loop.end([])


def _outputs(rows: int) -> int:
    """How many outputs are summed side by side without running out of vector registers."""
    if rows == 1:  # few streams of weights at a time: such a product waits for memory only
        return 2
    features = llvm.get_host_cpu_features()
    registers, each = 32, 4  # how many there are, and how many hold `LANES` numbers
    if features.get("avx512f"):
        registers, each = 32, 1
    elif features.get("avx"):
        registers, each = 16, 2
    fitting = [n for n in (8, 4, 2) if each * (rows * n + n + 1) <= registers]
    return fitting[0] if fitting else 1


@operation(kind=tuple(KINDS.values()), rows=range(1, MOST_ROWS + 1))
def multiply(b, kind, rows, x, x_step, w, w_step, inputs, outputs, y, y_step):
    """y[r, o] = x[r] . w[o] for `rows` rows (1 to `MOST_ROWS`) and all outputs.

    x, y: fp32, x in the order of `rows.arranged_rows`. w: of `kind`. inputs: a multiple of `STEP`.
    """
    width = _outputs(rows)
    whole = b.and_(outputs, i64(-width))
    _tiles(b, kind, rows, width, x, x_step, w, w_step, inputs, whole, y, y_step)
    if width > 1:
        rest = b.sub(outputs, whole)
        w_rest = b.add(w, b.mul(w_step, whole))
        y_rest = b.add(y, b.mul(whole, i64(4)))
        _tiles(b, kind, rows, 1, x, x_step, w_rest, w_step, inputs, rest, y_rest, y_step)


def _tiles(b, kind, rows, width, x, x_step, w, w_step, inputs, outputs, y, y_step):
    """`rows` times `width` dot products at a time, for all of a multiple of `width` outputs."""
    with b.if_then(b.icmp_signed(">", outputs, i64(0))):
        xs = [b.add(x, b.mul(x_step, i64(r))) for r in range(rows)]
        ys = [b.add(y, b.mul(y_step, i64(r))) for r in range(rows)]
        tile = Loop(b, outputs, width, [w])
        ws = [b.add(tile.carried[0], b.mul(w_step, i64(o))) for o in range(width)]
        ahead = b.mul(w_step, i64(width))
        loop = Loop(b, inputs, STEP, [splat(0.0)] * (rows * width))
        w_place, x_place = b.mul(loop.index, i64(BYTES[kind])), b.mul(loop.index, i64(4))
        sums = list(loop.carried)
        weights = []
        for address in ws:
            here = b.add(address, w_place)
            weights.append(widened(b, here, kind))
            # More bytes than arrive during a memory access.
            _prefetch(b, b.add(here, i64(8192 if rows == 1 else 24576)))
        for half in (0, 1):
            for r, address in enumerate(xs):
                part = b.add(b.add(address, x_place), i64(4 * LANES * half))
                x_part = load(b, part)
                for o in range(width):
                    at = r * width + o
                    sums[at] = fma(b, x_part, weights[o][half], sums[at])
        loop.end(sums)
        out = b.mul(tile.index, i64(4))
        for r, address in enumerate(ys):
            for o in range(width):
                total = fold(b, sums[r * width + o], b.fadd)
                store(b, total, b.add(b.add(address, out), i64(4 * o)))
        tile.end([b.add(tile.carried[0], ahead)])


def _prefetch(b: ir.IRBuilder, address: Any) -> None:
    # The outputs of a tile are separate streams, which the processor's own prefetcher misses. Into
    # the second level of cache: the first has too few open accesses for the memory's bandwidth.
    kinds = [I8.as_pointer(), I32, I32, I32]
    function_type = ir.FunctionType(ir.VoidType(), kinds)
    prefetch = cgutils.get_or_insert_function(b.module, function_type, "llvm.prefetch.p0")
    hints = [ir.Constant(I32, value) for value in (0, 2, 1)]
    b.call(prefetch, [b.inttoptr(address, I8.as_pointer()), *hints])


@operation(rows=range(1, MOST_ROWS + 1))
def combine(b, rows, a, a_step, m, m_step, count, y, y_step, width):
    """y[r] = sum over i of a[r, i] * m[i], of the first `count` lines of m; all fp32.

    rows: 1 to `MOST_ROWS`. width: columns of m, a multiple of `LANES`.
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
    place = b.mul(columns.index, i64(4))
    loop = Loop(b, count, 1, [b.add(m, place), *[splat(0.0)] * (rows * vectors)])
    line, carried = loop.carried[0], loop.carried[1:]
    parts = [load(b, b.add(line, i64(4 * LANES * v))) for v in range(vectors)]
    sums = []
    for r in range(rows):
        entry = b.add(b.mul(a_step, i64(r)), b.mul(loop.index, i64(4)))
        factor = broadcast(b, b.add(a, entry))
        sums += [fma(b, factor, part, carried[r * vectors + v]) for v, part in enumerate(parts)]
    loop.end([b.add(line, m_step), *sums])
    for r in range(rows):
        out = b.add(b.add(y, b.mul(y_step, i64(r))), place)
        for v in range(vectors):
            store(b, sums[r * vectors + v], b.add(out, i64(4 * LANES * v)))
    columns.end([])

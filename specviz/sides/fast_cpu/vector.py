"""Operations on vectors and matrices that numba cannot express, in LLVM's intermediate language.

All arguments are addresses (int64) and counts; matrices are given by the address of their first
entry and the distance of their rows in bytes. Sums are made in one fixed order, whatever the
number of rows, so that a row's results do not depend on the rows beside it: 16 running sums, then
a tree of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from .blocks import (
    BFLOAT16,
    FLOAT32,
    KINDS,
    PACKED,
    PLAIN,
    step_bytes,
    step_weights,
    unpacked,
)
from .ir import (
    I8,
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
    operation,
    splat,
    spread,
    store,
)

LINE = 64  # bytes that a processor brings from memory at a time
AHEAD = 8192  # bytes that weights are fetched ahead: more than arrive during an access
LINES = 8  # of weights that are unpacked together
MOST_ROWS = 6  # that one call multiplies: a verify pass of gamma = 5


@operation(kind=tuple(KINDS.values()))
def widen(b, kind, source, target, count):
    """Copy `count` weights of `kind`, a multiple of its step, as fp32 in their order."""
    _widen(b, kind, source, target, count, in_order=True)


@operation(kind=tuple(KINDS.values()))
def widen_as_met(b, kind, source, target, count):
    """The same in the order in which `multiply` meets the weights."""
    _widen(b, kind, source, target, count, in_order=False)


def _widen(b, kind, source, target, count, *, in_order):
    loop = Loop(b, count, step_weights(kind), [source])
    address = loop.carried[0]
    _prefetch_step(b, kind, address, AHEAD)
    vectors = unpacked(b, kind, address)
    if kind == BFLOAT16 and in_order:
        order = [p for i in range(LANES) for p in (i, LANES + i)]
        even, odd = vectors
        vectors = (
            b.shuffle_vector(even, odd, ir.Constant(INTEGERS, part))
            for part in (order[:LANES], order[LANES:])
        )
    here = b.add(target, b.mul(loop.index, i64(4)))
    for index, vector in enumerate(vectors):
        store(b, vector, b.add(here, i64(4 * LANES * index)))
    loop.end([b.add(address, i64(step_bytes(kind)))])


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


class Tile(NamedTuple):
    """What one loop over inputs sums. groups: the rows, in groups that go through the loop one
    after the other. outputs: side by side. lanes: of a vector that fits a register."""

    groups: tuple[range, ...]
    outputs: int
    lanes: int


def _tile(rows: int) -> Tile:
    """A tile whose sums stay in the vector registers of this processor, with one vector of weights
    for each output and one of inputs."""
    features = llvm.get_host_cpu_features()
    registers, lanes = 16, 4
    if features.get("avx512f"):
        registers, lanes = 32, 16
    elif features.get("avx"):
        registers, lanes = 16, 8
    sums = LANES // lanes  # vectors for the sums of a row and an output
    if rows == 1:  # few streams of weights at a time: such a product waits for memory only
        return Tile((range(1),), 2, lanes)
    # A vector of inputs is loaded once for all outputs, so two outputs halve what is loaded.
    most = max(1, (registers - 3) // (2 * sums))
    count = -(-rows // most)
    each = -(-rows // count)
    groups = tuple(range(first, min(first + each, rows)) for first in range(0, rows, each))
    fitting = [n for n in (8, 4, 2) if sums * each * n + n + 1 <= registers]
    return Tile(groups, fitting[0] if fitting else 1, lanes)


@operation(kind=PLAIN, rows=range(1, MOST_ROWS + 1))
def multiply(b, kind, rows, x, x_step, w, w_step, inputs, outputs, y, y_step):
    """y[r, o] = x[r] . w[o] for `rows` rows (1 to `MOST_ROWS`) and all outputs.

    x, y: fp32, x in the order of `rows.arranged_rows`. w: of a `kind` that is not packed. inputs: a
    multiple of `STEP`.
    """
    tile = _tile(rows)
    whole = b.and_(outputs, i64(-tile.outputs))
    _tiles(b, kind, tile, x, x_step, w, w_step, inputs, whole, y, y_step)
    if tile.outputs > 1:
        rest = b.sub(outputs, whole)
        w_rest = b.add(w, b.mul(w_step, whole))
        y_rest = b.add(y, b.mul(whole, i64(4)))
        single = tile._replace(outputs=1)
        _tiles(b, kind, single, x, x_step, w_rest, w_step, inputs, rest, y_rest, y_step)


@operation(kind=PACKED)
def multiply_row(b, kind, x, w, w_step, inputs, outputs, y):
    """The same for one row and packed weights; inputs: a multiple of what a block holds."""
    tile = _tile(1)
    whole = b.and_(outputs, i64(-tile.outputs))
    step = i64(0)
    _tiles(b, kind, tile, x, step, w, w_step, inputs, whole, y, step)
    rest = b.sub(outputs, whole)
    w_rest = b.add(w, b.mul(w_step, whole))
    y_rest = b.add(y, b.mul(whole, i64(4)))
    _tiles(b, kind, tile._replace(outputs=1), x, step, w_rest, w_step, inputs, rest, y_rest, step)


def _tiles(b, kind, tile, x, x_step, w, w_step, inputs, outputs, y, y_step):
    """All outputs, a multiple of those of a tile."""
    with b.if_then(b.icmp_signed(">", outputs, i64(0))):
        loop = Loop(b, outputs, tile.outputs, [w])
        ws = [b.add(loop.carried[0], b.mul(w_step, i64(o))) for o in range(tile.outputs)]
        out = b.add(y, b.mul(loop.index, i64(4)))
        for rows in tile.groups:
            xs = [b.add(x, b.mul(x_step, i64(r))) for r in rows]
            ahead = 0
            if rows.start == 0:  # later groups find the weights in the cache
                ahead = AHEAD if rows.stop == 1 else 3 * AHEAD
            start = [splat(0.0)] * (len(xs) * len(ws))
            sums = _dot_products(b, kind, tile.lanes, xs, ws, inputs, start, ahead)
            for r, totals in zip(rows, batched(sums, len(ws)), strict=True):
                line = b.add(out, b.mul(y_step, i64(r)))
                for o, total in enumerate(totals):
                    store(b, fold(b, total, b.fadd), b.add(line, i64(4 * o)))
        loop.end([b.add(loop.carried[0], b.mul(w_step, i64(tile.outputs)))])


@operation(rows=range(1, MOST_ROWS + 1))
def accumulate(b, rows, x, x_step, w, w_step, inputs, sums):
    """Add products of `rows` rows with `LINES` lines of weights, all fp32, to their running sums.

    sums: fp32 [rows, LINES, LANES]. inputs: a multiple of `STEP`.
    """
    tile = _tile(rows)
    loop = Loop(b, i64(LINES), tile.outputs, [])
    ws = [b.add(w, b.mul(w_step, b.add(loop.index, i64(o)))) for o in range(tile.outputs)]
    for group in tile.groups:
        xs = [b.add(x, b.mul(x_step, i64(r))) for r in group]
        places = [
            b.add(sums, b.mul(b.add(loop.index, i64(r * LINES + o)), i64(4 * LANES)))
            for r in group
            for o in range(tile.outputs)
        ]
        start = [load(b, place) for place in places]
        for place, total in zip(
            places, _dot_products(b, FLOAT32, tile.lanes, xs, ws, inputs, start, 0), strict=True
        ):
            store(b, total, place)
    loop.end([])


@operation()
def fold_sums(b, sums, count, y):
    """y[i] = the total of the running sums i, of `count`."""
    loop = Loop(b, count, 1, [])
    total = fold(b, load(b, b.add(sums, b.mul(loop.index, i64(4 * LANES)))), b.fadd)
    store(b, total, b.add(y, b.mul(loop.index, i64(4))))
    loop.end([])


def _dot_products(b, kind, lanes, xs, ws, inputs, start, ahead):
    """`start`, a vector for each row of inputs and row of weights, plus their products: running
    sums, to be folded.

    xs, ws: addresses of the rows. lanes: of the vectors to compute with. ahead: how many bytes
    further on weights are fetched from memory: more than arrive during an access; 0 if they are
    not.
    """
    pieces = LANES // lanes
    sums = [cut(b, vector, lanes, piece) for vector in start for piece in range(pieces)]
    loop = Loop(b, inputs, step_weights(kind), [i64(0), *sums])
    w_place = loop.carried[0]
    x_place = b.mul(loop.index, i64(4))
    sums = list(loop.carried[1:])
    streams = []
    for address in ws:
        here = b.add(address, w_place)
        streams.append(unpacked(b, kind, here))
        if ahead:
            _prefetch_step(b, kind, here, ahead)
    for part, weights in enumerate(zip(*streams, strict=True)):
        for piece in range(pieces):
            pieces_of_weights = [cut(b, vector, lanes, piece) for vector in weights]
            offset = i64(4 * (LANES * part + lanes * piece))
            for r, address in enumerate(xs):
                x_piece = load(b, b.add(b.add(address, x_place), offset), lanes)
                for o, w_piece in enumerate(pieces_of_weights):
                    at = (r * len(ws) + o) * pieces + piece
                    sums[at] = fma(b, x_piece, w_piece, sums[at])
    loop.end([b.add(w_place, i64(step_bytes(kind))), *sums])
    return [joined(b, each) for each in batched(sums, pieces)]


def batched(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The values in groups of this size."""
    return [values[i : i + size] for i in range(0, len(values), size)]


def _prefetch_step(b: ir.IRBuilder, kind: int, address: Any, ahead: int) -> None:
    """Fetch what lies so many bytes behind the weights of one step."""
    for line in range(0, step_bytes(kind), LINE):
        _prefetch(b, b.add(address, i64(line + ahead)))


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

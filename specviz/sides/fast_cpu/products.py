"""Products of rows with a matrix: like the operations of `vector`, functions of LLVM's intermediate
language over addresses and counts, whose sums are made in one fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .ir import (
    I8,
    I32,
    LANES,
    Body,
    Loop,
    broadcast,
    call_case,
    define,
    fma,
    fold,
    i64,
    load,
    splat,
    store,
)
from .vector import BYTES, KINDS, STEP, widened

MOST_ROWS = 6  # that one call multiplies: a verify pass of gamma = 5


def _registers() -> tuple[int, int]:
    """How many vector registers this processor has, and how many hold `LANES` numbers."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 32, 1
    if features.get("avx"):
        return 16, 2
    return 32, 4


def _outputs(rows: int) -> int:
    """How many outputs are summed side by side without running out of registers."""
    if rows == 1:  # few streams of weights at a time: such a product waits for memory only
        return 2
    registers, each = _registers()
    fitting = [n for n in (8, 4, 2) if each * (rows * n + n + 1) <= registers]
    return fitting[0] if fitting else 1


def _product_body(kind: int, rows: int) -> Body:
    def body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
        x, x_step, w, w_step, inputs, outputs, y, y_step = args
        width = _outputs(rows)
        whole = b.and_(outputs, i64(-width))
        _tiles(b, kind, rows, width, (x, x_step, w, w_step, inputs, whole, y, y_step))
        if width > 1:
            rest = b.sub(outputs, whole)
            w_rest = b.add(w, b.mul(w_step, whole))
            y_rest = b.add(y, b.mul(whole, i64(4)))
            _tiles(b, kind, rows, 1, (x, x_step, w_rest, w_step, inputs, rest, y_rest, y_step))

    return body


def _tiles(b: ir.IRBuilder, kind: int, rows: int, width: int, args: Sequence[Any]) -> None:
    """`rows` times `width` dot products at a time, for all of a multiple of `width` outputs."""
    x, x_step, w, w_step, inputs, outputs, y, y_step = args
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


@intrinsic
def multiply(typing, kind, rows, x, x_step, w, w_step, inputs, outputs, y, y_step):
    """y[r, o] = x[r] . w[o] for `rows` rows (1 to `MOST_ROWS`) and all outputs.

    x, y: fp32, x in the order of `arrange`. w: of `kind`. inputs: a multiple of `STEP`.
    """

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        cases = {
            k * 8 + r: define(b.module, f"product.{k}.{r}", 8, _product_body(k, r))
            for k in KINDS.values()
            for r in range(1, MOST_ROWS + 1)
        }
        case = b.add(b.mul(args[0], i64(8)), args[1])
        call_case(b, case, cases, args[2:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10), codegen


def _combine_body(rows: int) -> Body:
    def body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
        a, a_step, m, m_step, count, y, y_step, width = args
        for vectors in (4, 1):
            size = vectors * LANES
            whole = b.and_(width, i64(-size))
            with b.if_then(b.icmp_signed(">", whole, i64(0))):
                _combine_columns(b, rows, vectors, (a, a_step, m, m_step, count, y, y_step, whole))
            width = b.sub(width, whole)
            m, y = (b.add(address, b.mul(whole, i64(4))) for address in (m, y))

    return body


def _combine_columns(b: ir.IRBuilder, rows: int, vectors: int, args: Sequence[Any]) -> None:
    a, a_step, m, m_step, count, y, y_step, width = args
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


@intrinsic
def combine(typing, rows, a, a_step, m, m_step, count, y, y_step, width):
    """y[r] = sum over i of a[r, i] * m[i], of the first `count` lines of m; all fp32.

    rows: 1 to `MOST_ROWS`. width: columns of m, a multiple of `LANES`.
    """

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        cases = {
            r: define(b.module, f"combine.{r}", 8, _combine_body(r))
            for r in range(1, MOST_ROWS + 1)
        }
        call_case(b, args[0], cases, args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), codegen

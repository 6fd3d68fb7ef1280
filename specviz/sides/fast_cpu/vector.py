"""Vector operations that numba cannot express, as functions of LLVM's intermediate language.
Products with a matrix are in `products`.

All arguments are addresses (int64) and counts; matrices are given by the address of their first
entry and the distance of their rows in bytes. Sums are made in one fixed order, whatever the
number of rows, so that a row's results do not depend on the rows beside it: 16 running sums, then
a tree of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .ir import (
    INTEGERS,
    LANES,
    VECTOR,
    Body,
    Loop,
    call_case,
    call_intrinsic,
    define,
    exp,
    fma,
    fold,
    i64,
    load,
    splat,
    spread,
    store,
)

STEP = 32  # numbers that an operation over weights takes at a time
FLOAT32, BFLOAT16, FLOAT16 = range(3)
KINDS = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
"""Dtypes of weights by name, as the numbers that the functions below take."""
BYTES = (4, 2, 2)  # of a weight, by kind


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


def _interleaved(b: ir.IRBuilder, first: Any, second: Any, places: Sequence[int]) -> Any:
    return b.shuffle_vector(first, second, ir.Constant(INTEGERS, list(places)))


def _widen_body(kind: int) -> Body:
    def body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
        source, target, count = args
        loop = Loop(b, count, STEP, [])
        first, second = widened(b, b.add(source, b.mul(loop.index, i64(BYTES[kind]))), kind)
        if kind == BFLOAT16:
            order = [p for i in range(LANES) for p in (i, LANES + i)]
            first, second = (
                _interleaved(b, first, second, part) for part in (order[:LANES], order[LANES:])
            )
        here = b.add(target, b.mul(loop.index, i64(4)))
        store(b, first, here)
        store(b, second, b.add(here, i64(4 * LANES)))
        loop.end([])

    return body


@intrinsic
def widen(typing, kind, source, target, count):
    """Copy `count` numbers of `kind`, a multiple of `STEP`, as fp32."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        cases = {k: define(b.module, f"widen.{k}", 3, _widen_body(k)) for k in KINDS.values()}
        call_case(b, args[0], cases, args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def _arrange_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    source, target, count = args
    loop = Loop(b, count, STEP, [])
    place = b.mul(loop.index, i64(4))
    here = b.add(source, place)
    first, second = load(b, here), load(b, b.add(here, i64(4 * LANES)))
    for half in (0, 1):
        value = _interleaved(b, first, second, range(half, STEP, 2))
        store(b, value, b.add(b.add(target, place), i64(4 * LANES * half)))
    loop.end([])


@intrinsic
def arrange(typing, source, target, count):
    """Copy `count` fp32 numbers, a multiple of `STEP`, in the order in which `multiply` meets
    bf16 weights: of each `STEP`, those at even places first."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(define(b.module, "arrange", 3, _arrange_body), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _softmax_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    scores, count = args
    loop = Loop(b, count, LANES, [splat(-3e38)])
    here = b.add(scores, b.mul(loop.index, i64(4)))
    highest = call_intrinsic(b, "maxnum", loop.carried[0], load(b, here))
    loop.end([highest])

    def larger(x: Any, y: Any) -> Any:
        return b.select(b.fcmp_ordered(">", x, y), x, y)

    top = fold(b, highest, larger)
    tops = spread(b, top)
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


@intrinsic
def softmax(typing, scores, count):
    """Softmax of `count` fp32 numbers in place, a multiple of `LANES`; -inf gives 0."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(define(b.module, "softmax", 2, _softmax_body), args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _gate_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    gate, up, count = args
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


@intrinsic
def gate_by_silu(typing, gate, up, count):
    """gate = silu(gate) * up in place, `count` fp32 numbers, a multiple of `LANES`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(define(b.module, "gate", 3, _gate_body), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _dot_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    x, count, target = args
    loop = Loop(b, count, LANES, [splat(0.0)])
    part = load(b, b.add(x, b.mul(loop.index, i64(4))))
    sums = fma(b, part, part, loop.carried[0])
    loop.end([sums])
    store(b, fold(b, sums, b.fadd), target)


@intrinsic
def sum_squares(typing, x, count, target):
    """Write the sum of squares of `count` fp32 numbers, a multiple of `LANES`, to `target`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(define(b.module, "squares", 3, _dot_body), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen

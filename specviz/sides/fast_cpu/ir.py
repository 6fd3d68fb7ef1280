"""Building blocks of functions in LLVM's intermediate language: vectors, loops, cases, and memory
that several threads share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
"""Numbers of a vector, on every processor: so sums have the same order on all of them."""

I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)
INTEGERS = ir.VectorType(I32, LANES)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def splat(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * LANES)


def call_intrinsic(b: ir.IRBuilder, name: str, *operands: Any) -> Any:
    kinds = [one.type for one in operands]
    function_type = ir.FunctionType(kinds[0], kinds)
    full = f"llvm.{name}.v{LANES}f32"
    return b.call(cgutils.get_or_insert_function(b.module, function_type, full), operands)


def fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return call_intrinsic(b, "fma", x, y, z)


def load(b: ir.IRBuilder, address: Any) -> Any:
    loaded = b.load(b.inttoptr(address, VECTOR.as_pointer()))
    loaded.align = 4
    return loaded


def store(b: ir.IRBuilder, value: Any, address: Any) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer())).align = 4


def broadcast(b: ir.IRBuilder, address: Any) -> Any:
    value = b.load(b.inttoptr(address, F32.as_pointer()))
    value.align = 4
    return spread(b, value)


def spread(b: ir.IRBuilder, value: Any) -> Any:
    """A vector whose lanes all hold one number."""
    single = b.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.Constant(I32, 0))
    return b.shuffle_vector(single, single, ir.Constant(INTEGERS, [0] * LANES))


def fold(b: ir.IRBuilder, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The lanes of a vector combined by a tree of fixed shape."""
    count = LANES
    while count > 1:
        count //= 2
        halves = (list(range(count)), list(range(count, 2 * count)))
        low, high = (
            b.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(I32, count), places))
            for places in halves
        )
        vector = combine(low, high)
    return b.extract_element(vector, ir.Constant(I32, 0))


def exp(b: ir.IRBuilder, x: Any) -> Any:
    """e^x for -87 <= x <= 88 with an error of about 1 ulp; 0 below (Cephes' expf)."""
    low = b.fcmp_ordered("<", x, splat(-87.0))
    n = call_intrinsic(b, "roundeven", b.fmul(x, splat(1.44269504088896341)))
    r = fma(b, n, splat(-0.693359375), x)
    r = fma(b, n, splat(2.12194440e-4), r)
    p = splat(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(b, p, r, splat(c))
    p = fma(b, p, b.fmul(r, r), b.fadd(r, splat(1.0)))
    bias, shift = (ir.Constant(INTEGERS, [value] * LANES) for value in (127, 23))
    power = b.bitcast(b.shl(b.add(b.fptosi(n, INTEGERS), bias), shift), VECTOR)
    return b.select(low, splat(0.0), b.fmul(p, power))


class Loop:
    """A counted loop of at least one turn; values carried from turn to turn by `carried`."""

    def __init__(self, b: ir.IRBuilder, count: Any, step: int, start: Sequence[Any]) -> None:
        self._b, self._count, self._step = b, count, step
        before = b.block
        self._body, self._after = b.append_basic_block("turn"), b.append_basic_block("after")
        b.branch(self._body)
        b.position_at_end(self._body)
        self.index = b.phi(I64)
        self.index.add_incoming(i64(0), before)
        self.carried = [b.phi(value.type) for value in start]
        for phi, value in zip(self.carried, start, strict=True):
            phi.add_incoming(value, before)

    def end(self, values: Sequence[Any]) -> None:
        b, last = self._b, self._b.block
        following = b.add(self.index, i64(self._step))
        self.index.add_incoming(following, last)
        for phi, value in zip(self.carried, values, strict=True):
            phi.add_incoming(value, last)
        b.cbranch(b.icmp_signed("<", following, self._count), self._body, self._after)
        b.position_at_end(self._after)


Body = Callable[[ir.IRBuilder, Sequence[Any]], None]


def define(module: Any, name: str, count: int, body: Body) -> Any:
    """A function of `count` int64 arguments, defined in `module` once."""
    function_type = ir.FunctionType(ir.VoidType(), [I64] * count)
    function = cgutils.get_or_insert_function(module, function_type, f"specviz.{name}")
    if function.is_declaration:
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        body(builder, function.args)
        builder.ret_void()
    return function


def call_case(b: ir.IRBuilder, value: Any, cases: dict[int, Any], arguments: Sequence[Any]) -> None:
    """Call the function of the case that `value` is."""
    end = b.append_basic_block("end")
    switch = b.switch(value, end)
    for number, function in cases.items():
        block = b.append_basic_block("case")
        switch.add_case(i64(number), block)
        b.position_at_end(block)
        b.call(function, arguments)
        b.branch(end)
    b.position_at_end(end)


@intrinsic
def float_pointer(typing, address):
    """An address as a pointer to fp32 numbers, for `numba.carray`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return b.inttoptr(args[0], F32.as_pointer())

    return types.CPointer(types.float32)(types.int64), codegen


@intrinsic
def int_pointer(typing, address):
    """An address as a pointer to int64 numbers, for `numba.carray`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return b.inttoptr(args[0], I64.as_pointer())

    return types.CPointer(types.int64)(types.int64), codegen


@intrinsic
def arrive(typing, counter):
    """Add 1 to the int64 at this address, seen by all threads."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        place = b.inttoptr(args[0], I64.as_pointer())
        b.atomic_rmw("add", place, i64(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def yield_processor(typing):
    """Let another thread run, where the system has the call."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        if sys.platform != "win32":
            call = ir.FunctionType(I32, [])
            b.call(cgutils.get_or_insert_function(b.module, call, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def read_shared(typing, counter):
    """The int64 at this address, as the other threads left it."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        place = b.inttoptr(args[0], I64.as_pointer())
        return b.load_atomic(place, "acquire", 8)

    return types.int64(types.int64), codegen

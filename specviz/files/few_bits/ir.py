"""Building blocks of functions in LLVM's intermediate language: vectors, loops, operations that
compiled code calls, and memory that several threads share."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR_LENGTH = 16
"""Numbers in a vector (its lanes), the same on every processor, so that sums have the same order
everywhere."""

I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
VECTOR = ir.VectorType(F32, VECTOR_LENGTH)
INTEGERS = ir.VectorType(I32, VECTOR_LENGTH)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def splat(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * VECTOR_LENGTH)


def integers(value: int) -> ir.Constant:
    """A vector whose lanes all hold one integer of 32 bits."""
    return ir.Constant(INTEGERS, [value & 0xFFFFFFFF] * VECTOR_LENGTH)


def cut(b: ir.IRBuilder, vector: Any, lanes: int, index: int) -> Any:
    """One of a vector's equal pieces of `lanes` lanes."""
    if lanes == vector.type.count:
        return vector
    indices = range(lanes * index, lanes * (index + 1))
    order = ir.Constant(ir.VectorType(I32, lanes), list(indices))
    return b.shuffle_vector(vector, vector, order)


def joined(b: ir.IRBuilder, pieces: Sequence[Any]) -> Any:
    """The vector that consists of these pieces."""
    parts = list(pieces)
    while len(parts) > 1:
        lanes = 2 * parts[0].type.count
        order = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
        parts = [
            b.shuffle_vector(first, second, order)
            for first, second in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def lane(b: ir.IRBuilder, vector: Any, index: int) -> Any:
    """The number in one lane of a vector."""
    return b.extract_element(vector, ir.Constant(I32, index))


def call_named(b: ir.IRBuilder, name: str, result: Any, *operands: Any) -> Any:
    """Call a function of LLVM by its full name. result: its return type."""
    function_type = ir.FunctionType(result, [operand.type for operand in operands])
    return b.call(cgutils.get_or_insert_function(b.module, function_type, name), operands)


def call_intrinsic(b: ir.IRBuilder, name: str, *operands: Any) -> Any:
    """Call an operation on vectors of fp32 that returns a vector of the same length."""
    kind = operands[0].type
    return call_named(b, f"llvm.{name}.v{kind.count}f32", kind, *operands)


def fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return call_intrinsic(b, "fma", x, y, z)


def after(b: ir.IRBuilder, address: Any, count: int) -> Any:
    """The address `count` bytes after another."""
    return b.add(address, i64(count))


def part_at(b: ir.IRBuilder, parts: Any, index: Any, size: int) -> Any:
    """The address of the part at an index, int64. size: bytes of a part."""
    return b.add(parts, b.mul(index, i64(size)))


def number_at(b: ir.IRBuilder, numbers: Any, index: Any) -> Any:
    """The address of the fp32 number at an index, int64."""
    return part_at(b, numbers, index, 4)


def vector_at(b: ir.IRBuilder, vectors: Any, index: int) -> Any:
    """The address of the vector of fp32 at an index."""
    return after(b, vectors, 4 * VECTOR_LENGTH * index)


def row_at(b: ir.IRBuilder, rows: Any, step: Any, index: int) -> Any:
    """The address of the row at an index. step: bytes from a row to the next, int64."""
    return b.add(rows, b.mul(step, i64(index)))


def load_as(b: ir.IRBuilder, kind: ir.Type, address: Any, align: int) -> Any:
    """The value of a type at an address. align: a number of bytes that divides the address."""
    loaded = b.load(b.inttoptr(address, kind.as_pointer()))
    loaded.align = align
    return loaded


def load(b: ir.IRBuilder, address: Any, lanes: int = VECTOR_LENGTH) -> Any:
    return load_as(b, ir.VectorType(F32, lanes), address, align=4)


def store(b: ir.IRBuilder, value: Any, address: Any, align: int = 4) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer())).align = align


def broadcast(b: ir.IRBuilder, address: Any) -> Any:
    return spread(b, load_as(b, F32, address, align=4))


def spread(b: ir.IRBuilder, value: Any) -> Any:
    """A vector whose lanes all hold one number."""
    lanes = ir.VectorType(value.type, VECTOR_LENGTH)
    single = b.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.Constant(I32, 0))
    return b.shuffle_vector(single, single, ir.Constant(INTEGERS, [0] * VECTOR_LENGTH))


def larger(b: ir.IRBuilder, first: Any, second: Any) -> Any:
    """The larger of two numbers; the second one if one is NaN."""
    return b.select(b.fcmp_ordered(">", first, second), first, second)


def fold(b: ir.IRBuilder, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The lanes of a vector, combined by a tree of fixed shape."""
    count = vector.type.count
    while count > 1:
        count //= 2
        low = cut(b, vector, count, 0)
        high = cut(b, vector, count, 1)
        vector = combine(low, high)
    return lane(b, vector, 0)


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
    # 2^n, by its exponent in the bits of an fp32.
    exponent = b.add(b.fptosi(n, INTEGERS), integers(127))
    power = b.bitcast(b.shl(exponent, integers(23)), VECTOR)
    return b.select(low, splat(0.0), b.fmul(p, power))


def memory_of(b: ir.IRBuilder, count: int) -> Any:
    """The address of memory for `count` fp32 numbers on the stack of the function that is
    built."""
    with b.goto_entry_block():
        memory = b.alloca(ir.ArrayType(F32, count))
        memory.align = 4 * VECTOR_LENGTH
        return b.ptrtoint(memory, I64)


class Loop:
    """A counted loop of at least one turn. Code that is built before `end` is its body.

    loop = Loop(b, count, step, [total])  # runs while loop.index < count
    total = loop.carried[0]  # in this turn
    loop.end([b.add(total, loop.index)])  # for the next turn
    total = loop.carried_out[0]  # after the last turn
    """

    def __init__(self, b: ir.IRBuilder, count: Any, step: int, start: Sequence[Any]) -> None:
        self._b = b
        self._count = count
        self._step = step
        self.carried_out: list[Any] = []
        before = b.block
        self._body = b.append_basic_block("turn")
        self._after = b.append_basic_block("after")
        b.branch(self._body)
        b.position_at_end(self._body)
        self.index = b.phi(I64)
        self.index.add_incoming(i64(0), before)
        self.carried = [b.phi(value.type) for value in start]
        for phi, value in zip(self.carried, start, strict=True):
            phi.add_incoming(value, before)

    def end(self, values: Sequence[Any]) -> None:
        b = self._b
        last = b.block
        self.carried_out = list(values)
        following = b.add(self.index, i64(self._step))
        self.index.add_incoming(following, last)
        for phi, value in zip(self.carried, values, strict=True):
            phi.add_incoming(value, last)
        b.cbranch(b.icmp_signed("<", following, self._count), self._body, self._after)
        b.position_at_end(self._after)


compiled_only = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Compile a function for calls from compiled code only. The wrappers for calls from Python would
take as long to compile as the function itself."""

inlined = njit(inline="always")
"""Compile a function as part of its only caller. Other functions are compiled by themselves first,
and again with each caller."""


def operation(**cases: Sequence[int]) -> Callable[[Callable[..., None]], Any]:
    """Turn a function that builds a body into one that compiled code can call.

    The builder function takes an IR builder, the named cases as plain numbers, and then int64
    arguments. A module gets one body for each combination of cases, and a call goes to the body of
    its combination. If a case's number is a literal in the call, only that case is built.
    """

    def intrinsic_of(build: Callable[..., None]) -> Any:
        count = len(inspect.signature(build).parameters) - 1

        def typed(typing, *arguments):
            numbers: list[Sequence[int]] = []
            for argument, possible in zip(arguments, cases.values(), strict=False):
                if isinstance(argument, types.Literal):
                    numbers.append([argument.literal_value])
                else:
                    numbers.append(possible)

            def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
                chosen = args[: len(cases)]
                rest = args[len(cases) :]
                functions = {
                    case: _function(b.module, build, case, len(rest))
                    for case in itertools.product(*numbers)
                }
                _call_case(b, chosen, functions, rest)
                return context.get_dummy_value()

            return types.void(*[types.int64] * count), codegen

        return intrinsic(prefer_literal=True)(functools.wraps(build)(typed))

    return intrinsic_of


def _function(module: Any, build: Callable[..., None], case: Sequence[int], count: int) -> Any:
    """A function of `count` int64 arguments, defined in `module` once."""
    name = ".".join(["specviz", build.__name__, *map(str, case)])
    function_type = ir.FunctionType(ir.VoidType(), [I64] * count)
    function = cgutils.get_or_insert_function(module, function_type, name)
    if function.is_declaration:
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        build(builder, *case, *function.args)
        builder.ret_void()
    return function


def _call_case(
    b: ir.IRBuilder,
    chosen: Sequence[Any],
    functions: dict[tuple[int, ...], Any],
    rest: Sequence[Any],
) -> None:
    """Call the function for the case with the values `chosen`."""
    # Each number of a case is below 16, so four bits hold it.
    value: Any = i64(0)
    for number in chosen:
        value = b.add(b.shl(value, i64(4)), number)
    end = b.append_basic_block("end")
    switch = b.switch(value, end)
    for case, function in functions.items():
        case_value = 0
        for literal in case:
            case_value = 16 * case_value + literal
        block = b.append_basic_block("case")
        switch.add_case(i64(case_value), block)
        b.position_at_end(block)
        b.call(function, rest)
        b.branch(end)
    b.position_at_end(end)


@intrinsic
def pointer(typing, address):
    """An address as a pointer, for `numba.carray`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return b.inttoptr(args[0], I8.as_pointer())

    return types.voidptr(types.int64), codegen


@intrinsic
def call_at(typing, code, first, second):
    """Call the function at an address, with two int64."""
    return types.void(*[types.int64] * 3), _call_code


@intrinsic
def call_product(typing, code, rows, x, x_step, w, inputs, outputs, y, y_step):
    """Call the function of `products.product_code` at an address."""
    return types.void(*[types.int64] * 9), _call_code


def _call_code(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
    code = args[0]
    arguments = args[1:]
    function_type = ir.FunctionType(ir.VoidType(), [I64] * len(arguments))
    b.call(b.inttoptr(code, function_type.as_pointer()), arguments)
    return context.get_dummy_value()


@operation()
def add_one(b, counter):
    """Add 1 to the int64 at this address, atomically."""
    b.atomic_rmw("add", b.inttoptr(counter, I64.as_pointer()), i64(1), "acq_rel")


@operation()
def yield_processor(b):
    """Let another thread run, where the system has the call."""
    if sys.platform != "win32":
        call = ir.FunctionType(I32, [])
        b.call(cgutils.get_or_insert_function(b.module, call, "sched_yield"), [])


@intrinsic
def read_shared(typing, counter):
    """Load the int64 at this address atomically, as the other threads left it."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        address = b.inttoptr(args[0], I64.as_pointer())
        return b.load_atomic(address, "acquire", 8)

    return types.int64(types.int64), codegen

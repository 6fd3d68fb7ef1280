"""Vector operations that numba cannot express, as functions of LLVM's intermediate language.

All arguments are addresses (int64) and counts; matrices are given by the address of their first
entry and the distance of their rows in bytes. Sums are made in one fixed order, whatever the
number of rows, so that a row's results do not depend on the rows beside it: 16 running sums, then
a tree of additions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
STEP = 32  # inputs that a product takes at a time
MOST_ROWS = 6  # that one call multiplies: a verify pass of gamma = 5
FLOAT32, BFLOAT16, FLOAT16 = range(3)
KINDS = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
"""Dtypes of weights by name, as the numbers that the functions below take."""
BYTES = (4, 2, 2)  # of a weight, by kind

I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)
INTEGERS = ir.VectorType(I32, LANES)


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


def _ahead(rows: int) -> int:
    """How many bytes ahead weights are fetched: more than arrive during a memory access."""
    return 8192 if rows == 1 else 24576


def _i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def _splat(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * LANES)


def _intrinsic(b: ir.IRBuilder, name: str, *operands: Any) -> Any:
    kinds = [one.type for one in operands]
    function_type = ir.FunctionType(kinds[0], kinds)
    full = f"llvm.{name}.v{LANES}f32"
    return b.call(cgutils.get_or_insert_function(b.module, function_type, full), operands)


def _fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return _intrinsic(b, "fma", x, y, z)


def _load(b: ir.IRBuilder, address: Any) -> Any:
    loaded = b.load(b.inttoptr(address, VECTOR.as_pointer()))
    loaded.align = 4
    return loaded


def _store(b: ir.IRBuilder, value: Any, address: Any) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer())).align = 4


def _widened(b: ir.IRBuilder, address: Any, kind: int) -> tuple[Any, Any]:
    """`STEP` weights as two vectors of fp32: the first and second half, or, of bf16, those at even
    and at odd places."""
    if kind == FLOAT32:
        return _load(b, address), _load(b, b.add(address, _i64(4 * LANES)))
    if kind == BFLOAT16:  # each is the upper half of an fp32
        pairs = b.load(b.inttoptr(address, INTEGERS.as_pointer()))
        pairs.align = 2
        even = b.shl(pairs, ir.Constant(INTEGERS, [16] * LANES))
        odd = b.and_(pairs, ir.Constant(INTEGERS, [0xFFFF0000] * LANES))
        return b.bitcast(even, VECTOR), b.bitcast(odd, VECTOR)
    halves = []
    for place in (address, b.add(address, _i64(2 * LANES))):
        raw = b.load(b.inttoptr(place, ir.VectorType(ir.HalfType(), LANES).as_pointer()))
        raw.align = 2
        halves.append(b.fpext(raw, VECTOR))
    return halves[0], halves[1]


def _broadcast(b: ir.IRBuilder, address: Any) -> Any:
    value = b.load(b.inttoptr(address, F32.as_pointer()))
    value.align = 4
    single = b.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.Constant(I32, 0))
    return b.shuffle_vector(single, single, ir.Constant(INTEGERS, [0] * LANES))


def _folded(b: ir.IRBuilder, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
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


def _exp(b: ir.IRBuilder, x: Any) -> Any:
    """e^x for -87 <= x <= 88 with an error of about 1 ulp; 0 below (Cephes' expf)."""
    low = b.fcmp_ordered("<", x, _splat(-87.0))
    n = _intrinsic(b, "roundeven", b.fmul(x, _splat(1.44269504088896341)))
    r = _fma(b, n, _splat(-0.693359375), x)
    r = _fma(b, n, _splat(2.12194440e-4), r)
    p = _splat(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = _fma(b, p, r, _splat(c))
    p = _fma(b, p, b.fmul(r, r), b.fadd(r, _splat(1.0)))
    bias, shift = (ir.Constant(INTEGERS, [value] * LANES) for value in (127, 23))
    power = b.bitcast(b.shl(b.add(b.fptosi(n, INTEGERS), bias), shift), VECTOR)
    return b.select(low, _splat(0.0), b.fmul(p, power))


class _Loop:
    """A counted loop of at least one turn; values carried from turn to turn by `carried`."""

    def __init__(self, b: ir.IRBuilder, count: Any, step: int, start: Sequence[Any]) -> None:
        self._b, self._count, self._step = b, count, step
        before = b.block
        self._body, self._after = b.append_basic_block("turn"), b.append_basic_block("after")
        b.branch(self._body)
        b.position_at_end(self._body)
        self.index = b.phi(I64)
        self.index.add_incoming(_i64(0), before)
        self.carried = [b.phi(value.type) for value in start]
        for phi, value in zip(self.carried, start, strict=True):
            phi.add_incoming(value, before)

    def end(self, values: Sequence[Any]) -> None:
        b, last = self._b, self._b.block
        following = b.add(self.index, _i64(self._step))
        self.index.add_incoming(following, last)
        for phi, value in zip(self.carried, values, strict=True):
            phi.add_incoming(value, last)
        b.cbranch(b.icmp_signed("<", following, self._count), self._body, self._after)
        b.position_at_end(self._after)


Body = Callable[[ir.IRBuilder, Sequence[Any]], None]


def _function(module: Any, name: str, count: int, body: Body) -> Any:
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


def _switched(b: ir.IRBuilder, value: Any, cases: dict[int, Any], arguments: Sequence[Any]) -> None:
    """Call the function of the case that `value` is."""
    end = b.append_basic_block("end")
    switch = b.switch(value, end)
    for number, function in cases.items():
        block = b.append_basic_block("case")
        switch.add_case(_i64(number), block)
        b.position_at_end(block)
        b.call(function, arguments)
        b.branch(end)
    b.position_at_end(end)


def _product_body(kind: int, rows: int) -> Body:
    def body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
        x, x_step, w, w_step, inputs, outputs, y, y_step = args
        width = _outputs(rows)
        whole = b.and_(outputs, _i64(-width))
        _tiles(b, kind, rows, width, (x, x_step, w, w_step, inputs, whole, y, y_step))
        if width > 1:
            rest = b.sub(outputs, whole)
            w_rest = b.add(w, b.mul(w_step, whole))
            y_rest = b.add(y, b.mul(whole, _i64(4)))
            _tiles(b, kind, rows, 1, (x, x_step, w_rest, w_step, inputs, rest, y_rest, y_step))

    return body


def _tiles(b: ir.IRBuilder, kind: int, rows: int, width: int, args: Sequence[Any]) -> None:
    """`rows` times `width` dot products at a time, for all of a multiple of `width` outputs."""
    x, x_step, w, w_step, inputs, outputs, y, y_step = args
    with b.if_then(b.icmp_signed(">", outputs, _i64(0))):
        xs = [b.add(x, b.mul(x_step, _i64(r))) for r in range(rows)]
        ys = [b.add(y, b.mul(y_step, _i64(r))) for r in range(rows)]
        tile = _Loop(b, outputs, width, [w])
        ws = [b.add(tile.carried[0], b.mul(w_step, _i64(o))) for o in range(width)]
        ahead = b.mul(w_step, _i64(width))
        loop = _Loop(b, inputs, STEP, [_splat(0.0)] * (rows * width))
        w_place, x_place = b.mul(loop.index, _i64(BYTES[kind])), b.mul(loop.index, _i64(4))
        sums = list(loop.carried)
        weights = []
        for address in ws:
            here = b.add(address, w_place)
            weights.append(_widened(b, here, kind))
            _prefetch(b, b.add(here, _i64(_ahead(rows))))
        for half in (0, 1):
            for r, address in enumerate(xs):
                part = b.add(b.add(address, x_place), _i64(4 * LANES * half))
                x_part = _load(b, part)
                for o in range(width):
                    at = r * width + o
                    sums[at] = _fma(b, x_part, weights[o][half], sums[at])
        loop.end(sums)
        out = b.mul(tile.index, _i64(4))
        for r, address in enumerate(ys):
            for o in range(width):
                total = _folded(b, sums[r * width + o], b.fadd)
                _store(b, total, b.add(b.add(address, out), _i64(4 * o)))
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
            k * 8 + r: _function(b.module, f"product.{k}.{r}", 8, _product_body(k, r))
            for k in KINDS.values()
            for r in range(1, MOST_ROWS + 1)
        }
        case = b.add(b.mul(args[0], _i64(8)), args[1])
        _switched(b, case, cases, args[2:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10), codegen


def _combine_body(rows: int) -> Body:
    def body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
        a, a_step, m, m_step, count, y, y_step, width = args
        for vectors in (4, 1):
            size = vectors * LANES
            whole = b.and_(width, _i64(-size))
            with b.if_then(b.icmp_signed(">", whole, _i64(0))):
                _combine_columns(b, rows, vectors, (a, a_step, m, m_step, count, y, y_step, whole))
            width = b.sub(width, whole)
            m, y = (b.add(address, b.mul(whole, _i64(4))) for address in (m, y))

    return body


def _combine_columns(b: ir.IRBuilder, rows: int, vectors: int, args: Sequence[Any]) -> None:
    a, a_step, m, m_step, count, y, y_step, width = args
    columns = _Loop(b, width, vectors * LANES, [])
    place = b.mul(columns.index, _i64(4))
    loop = _Loop(b, count, 1, [b.add(m, place), *[_splat(0.0)] * (rows * vectors)])
    line, carried = loop.carried[0], loop.carried[1:]
    parts = [_load(b, b.add(line, _i64(4 * LANES * v))) for v in range(vectors)]
    sums = []
    for r in range(rows):
        entry = b.add(b.mul(a_step, _i64(r)), b.mul(loop.index, _i64(4)))
        factor = _broadcast(b, b.add(a, entry))
        sums += [_fma(b, factor, part, carried[r * vectors + v]) for v, part in enumerate(parts)]
    loop.end([b.add(line, m_step), *sums])
    for r in range(rows):
        out = b.add(b.add(y, b.mul(y_step, _i64(r))), place)
        for v in range(vectors):
            _store(b, sums[r * vectors + v], b.add(out, _i64(4 * LANES * v)))
    columns.end([])


@intrinsic
def combine(typing, rows, a, a_step, m, m_step, count, y, y_step, width):
    """y[r] = sum over i of a[r, i] * m[i], of the first `count` lines of m; all fp32.

    rows: 1 to `MOST_ROWS`. width: columns of m, a multiple of `LANES`.
    """

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        cases = {
            r: _function(b.module, f"combine.{r}", 8, _combine_body(r))
            for r in range(1, MOST_ROWS + 1)
        }
        _switched(b, args[0], cases, args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), codegen


def _interleaved(b: ir.IRBuilder, first: Any, second: Any, places: Sequence[int]) -> Any:
    return b.shuffle_vector(first, second, ir.Constant(INTEGERS, list(places)))


def _widen_body(kind: int) -> Body:
    def body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
        source, target, count = args
        loop = _Loop(b, count, STEP, [])
        first, second = _widened(b, b.add(source, b.mul(loop.index, _i64(BYTES[kind]))), kind)
        if kind == BFLOAT16:
            order = [p for i in range(LANES) for p in (i, LANES + i)]
            first, second = (
                _interleaved(b, first, second, part) for part in (order[:LANES], order[LANES:])
            )
        here = b.add(target, b.mul(loop.index, _i64(4)))
        _store(b, first, here)
        _store(b, second, b.add(here, _i64(4 * LANES)))
        loop.end([])

    return body


@intrinsic
def widen(typing, kind, source, target, count):
    """Copy `count` numbers of `kind`, a multiple of `STEP`, as fp32."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        cases = {k: _function(b.module, f"widen.{k}", 3, _widen_body(k)) for k in KINDS.values()}
        _switched(b, args[0], cases, args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def _arrange_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    source, target, count = args
    loop = _Loop(b, count, STEP, [])
    place = b.mul(loop.index, _i64(4))
    here = b.add(source, place)
    first, second = _load(b, here), _load(b, b.add(here, _i64(4 * LANES)))
    for half in (0, 1):
        value = _interleaved(b, first, second, range(half, STEP, 2))
        _store(b, value, b.add(b.add(target, place), _i64(4 * LANES * half)))
    loop.end([])


@intrinsic
def arrange(typing, source, target, count):
    """Copy `count` fp32 numbers, a multiple of `STEP`, in the order in which `multiply` meets
    bf16 weights: of each `STEP`, those at even places first."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(_function(b.module, "arrange", 3, _arrange_body), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _softmax_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    scores, count = args
    loop = _Loop(b, count, LANES, [_splat(-3e38)])
    here = b.add(scores, b.mul(loop.index, _i64(4)))
    highest = _intrinsic(b, "maxnum", loop.carried[0], _load(b, here))
    loop.end([highest])

    def larger(x: Any, y: Any) -> Any:
        return b.select(b.fcmp_ordered(">", x, y), x, y)

    top = _folded(b, highest, larger)
    single = b.insert_element(ir.Constant(VECTOR, ir.Undefined), top, ir.Constant(I32, 0))
    tops = b.shuffle_vector(single, single, ir.Constant(INTEGERS, [0] * LANES))
    loop = _Loop(b, count, LANES, [_splat(0.0)])
    here = b.add(scores, b.mul(loop.index, _i64(4)))
    weight = _exp(b, b.fsub(_load(b, here), tops))
    _store(b, weight, here)
    sums = b.fadd(loop.carried[0], weight)
    loop.end([sums])
    total = _folded(b, sums, b.fadd)
    single = b.insert_element(ir.Constant(VECTOR, ir.Undefined), total, ir.Constant(I32, 0))
    totals = b.shuffle_vector(single, single, ir.Constant(INTEGERS, [0] * LANES))
    loop = _Loop(b, count, LANES, [])
    here = b.add(scores, b.mul(loop.index, _i64(4)))
    _store(b, b.fdiv(_load(b, here), totals), here)
    loop.end([])


@intrinsic
def softmax(typing, scores, count):
    """Softmax of `count` fp32 numbers in place, a multiple of `LANES`; -inf gives 0."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(_function(b.module, "softmax", 2, _softmax_body), args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _gate_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    gate, up, count = args
    loop = _Loop(b, count, LANES, [])
    place = b.mul(loop.index, _i64(4))
    g = _load(b, b.add(gate, place))
    # e^-g, within the range of `_exp`; outside of it silu is 0 or g to the last bit.
    bounded = _intrinsic(
        b, "minnum", _intrinsic(b, "maxnum", b.fneg(g), _splat(-86.0)), _splat(88.0)
    )
    silu = b.fdiv(g, b.fadd(_splat(1.0), _exp(b, bounded)))
    _store(b, b.fmul(silu, _load(b, b.add(up, place))), b.add(gate, place))
    loop.end([])


@intrinsic
def gate_by_silu(typing, gate, up, count):
    """gate = silu(gate) * up in place, `count` fp32 numbers, a multiple of `LANES`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(_function(b.module, "gate", 3, _gate_body), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _dot_body(b: ir.IRBuilder, args: Sequence[Any]) -> None:
    x, count, target = args
    loop = _Loop(b, count, LANES, [_splat(0.0)])
    part = _load(b, b.add(x, b.mul(loop.index, _i64(4))))
    sums = _fma(b, part, part, loop.carried[0])
    loop.end([sums])
    _store(b, _folded(b, sums, b.fadd), target)


@intrinsic
def sum_squares(typing, x, count, target):
    """Write the sum of squares of `count` fp32 numbers, a multiple of `LANES`, to `target`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        b.call(_function(b.module, "squares", 3, _dot_body), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


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
        b.atomic_rmw("add", place, _i64(1), "acq_rel")
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

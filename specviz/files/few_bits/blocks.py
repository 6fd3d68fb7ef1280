"""Kinds of weights, and code in LLVM's language that turns a block of each into vectors of fp32.

The layouts are those of GGUF files
(https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h). Every weight has the value that
the package `gguf` computes for it in fp32. A product of a scale and a code is exact in fp32, so a
weight with a minimum is rounded once, as a fused multiplication and addition rounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from .ir import (
    I8,
    I16,
    I32,
    INTEGERS,
    VECTOR,
    VECTOR_LENGTH,
    after,
    broadcast,
    fma,
    i64,
    integers,
    load,
    load_as,
    part_at,
    spread,
    store,
    vector_at,
)

FLOAT32, BFLOAT16, FLOAT16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K = range(11)

KINDS = {
    "F32": FLOAT32,
    "BF16": BFLOAT16,
    "F16": FLOAT16,
    "Q8_0": Q8_0,
    "Q4_0": Q4_0,
    "Q4_1": Q4_1,
    "Q5_0": Q5_0,
    "Q5_1": Q5_1,
    "Q4_K": Q4_K,
    "Q5_K": Q5_K,
    "Q6_K": Q6_K,
}
"""Kinds by their names in GGUF files, as numbers for compiled code."""

PLAIN = (FLOAT32, BFLOAT16, FLOAT16)
"""Kinds whose weights are numbers, as those of norms and biases always are."""

PACKED = tuple(range(Q8_0, Q6_K + 1))
"""Kinds whose weights share a scale with the others of their block."""

BLOCK_WEIGHTS = (1, 1, 1, 32, 32, 32, 32, 32, 256, 256, 256)
"""Weights of a block, by kind."""

BLOCK_BYTES = (4, 2, 2, 34, 18, 20, 22, 24, 144, 176, 210)
"""Bytes of a block, by kind."""

STEP = 32
"""Plain weights that an operation takes at a time; and the unit of outputs that threads share."""


HALVES = ir.VectorType(ir.HalfType(), VECTOR_LENGTH)


class Layout(NamedTuple):
    """The unpacking of one kind: a step of `weights` weights in `bytes` bytes, in `parts` of equal
    size, so that the code of one part serves all.

    scales: (builder, address of the step, address of memory for `VECTOR_LENGTH` numbers) -> None,
    writes the scales that all parts need; None if there are none.

    unpack: (builder, address of the step, address of that memory, index of the part, int64) ->
    vectors of fp32, each made on demand, so that few are in registers at a time. They come in
    their order, except for bf16: its first vector has the weights at even indices, and the second
    those at odd ones.
    """

    weights: int
    bytes: int
    unpack: Callable[[ir.IRBuilder, Any, Any, Any], Iterator[Any]]
    parts: int = 1
    scales: Callable[[ir.IRBuilder, Any, Any], None] | None = None


def _float32(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    yield load(b, step)
    yield load(b, vector_at(b, step, 1))


def _bfloat16(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    pairs = load_as(b, INTEGERS, step, align=2)
    # A bf16 number is the upper half of an fp32.
    yield b.bitcast(b.shl(pairs, integers(16)), VECTOR)
    yield b.bitcast(b.and_(pairs, integers(0xFFFF0000)), VECTOR)


def _float16(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    for address in (step, after(b, step, 2 * VECTOR_LENGTH)):
        yield b.fpext(load_as(b, HALVES, address, align=2), VECTOR)


def _q8_0(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """A scale, fp16, and 32 codes, int8."""
    scale = _half(b, step)
    for offset in (2, 2 + VECTOR_LENGTH):
        codes = b.sext(_bytes(b, step, offset), INTEGERS)
        yield b.fmul(scale, b.sitofp(codes, VECTOR))


def _q4_0(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """A scale, and 16 bytes: codes 0 to 15 are their low halves, 16 to 31 their high ones."""
    scale = _half(b, step)
    for codes in _nibbles(b, step, 2):
        yield b.fmul(scale, b.sitofp(b.sub(codes, integers(8)), VECTOR))


def _q4_1(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """As Q4_0, with a minimum after the scale."""
    scale = _half(b, step)
    minimum = _half(b, step, 2)
    for codes in _nibbles(b, step, 4):
        yield fma(b, scale, b.sitofp(codes, VECTOR), minimum)


def _q5_0(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """As Q4_0, with the codes' fifth bits, 4 bytes, before the codes."""
    scale = _half(b, step)
    for codes in _integers_of(b, q5_0_codes(b, step)):
        yield b.fmul(scale, b.sitofp(codes, VECTOR))


def q5_0_codes(b: ir.IRBuilder, step: Any) -> Any:
    """The codes of a block of Q5_0, less 16, as 32 signed bytes."""
    # A code with its fifth bit stays; without it, 16 is subtracted.
    missing = b.and_(b.not_(_flags(b, step, 2)), _repeated(-16))
    return b.or_(_halves(b, step, 6), missing)


def _q5_1(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """As Q5_0, with a minimum after the scale."""
    scale = _half(b, step)
    minimum = _half(b, step, 2)
    fifth = b.and_(_flags(b, step, 4), _repeated(16))
    for codes in _integers_of(b, b.or_(_halves(b, step, 8), fifth)):
        yield fma(b, scale, b.sitofp(codes, VECTOR), minimum)


def _q4_k(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """Scales of 8 groups of 32 (`_group_scales`), then 128 bytes. Every 32 bytes hold the codes of
    one group in their low halves, and those of the next group in their high halves."""
    begin = part_at(b, step, part, 32)
    raw = [b.zext(_bytes(b, begin, offset), INTEGERS) for offset in (16, 16 + VECTOR_LENGTH)]
    part_scales = part_at(b, scales, part, 16)
    for group in range(2):
        scale, minimum = _group(b, part_scales, group)
        for codes in raw:
            code = _half_of(b, codes, group)
            yield fma(b, scale, b.sitofp(code, VECTOR), minimum)


def _q5_k(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """As Q4_K, with fifth bits before the codes: bit g of 32 bytes belongs to group g."""
    begin = part_at(b, step, part, 32)
    raw = [b.zext(_bytes(b, begin, offset), INTEGERS) for offset in (48, 48 + VECTOR_LENGTH)]
    skipped = spread(b, b.trunc(b.mul(part, i64(2)), I32))
    fifth = []
    for offset in (16, 16 + VECTOR_LENGTH):
        bits_of_groups = b.zext(_bytes(b, step, offset), INTEGERS)
        fifth.append(b.lshr(bits_of_groups, skipped))
    part_scales = part_at(b, scales, part, 16)
    for group in range(2):
        scale, minimum = _group(b, part_scales, group)
        for codes, bits in zip(raw, fifth, strict=True):
            bit = b.and_(b.shl(bits, integers(4 - group)), integers(16))
            code = b.or_(_half_of(b, codes, group), bit)
            yield fma(b, scale, b.sitofp(code, VECTOR), minimum)


def _half_of(b: ir.IRBuilder, codes: Any, group: int) -> Any:
    """The low halves of bytes, as integers, for the first group, the high ones for the second."""
    if group == 0:
        return b.and_(codes, integers(15))
    return b.lshr(codes, integers(4))


def _q6_k(b: ir.IRBuilder, step: Any, scales: Any, part: Any) -> Iterator[Any]:
    """Two halves of 128 codes: in each, 64 bytes hold the low 4 bits of codes and 32 bytes the
    high 2. After both come 16 scales, int8, one for each 16 codes, and the common scale, fp16."""
    begin = part_at(b, step, part, 64)
    low = [_wide(b, begin, offset) for offset in (0, WIDE)]
    high = _wide(b, part_at(b, step, part, 32), 128)
    part_scales = part_at(b, scales, part, 32)
    for group in range(4):  # of 32 codes
        four = low[group % 2]
        if group < 2:
            four = b.and_(four, _repeated(15))
        else:
            four = b.lshr(four, _repeated(4))
        left = 4 - 2 * group
        if left >= 0:
            two = b.shl(high, _repeated(left))
        else:
            two = b.lshr(high, _repeated(-left))
        six = b.or_(four, b.and_(two, _repeated(48)))
        codes = b.sub(six, _repeated(32))
        for half, numbers in enumerate(_integers_of(b, codes)):
            scale = broadcast(b, after(b, part_scales, 4 * (2 * group + half)))
            yield b.fmul(scale, b.sitofp(numbers, VECTOR))


def _group_scales(b: ir.IRBuilder, step: Any, scales: Any) -> None:
    """Write pairs of the 8 groups of a block: their scales, and their minima with the sign
    reversed.

    A block begins with a scale and a minimum, fp16, and 12 bytes with 8 codes of 6 bits for each
    of them. The first four codes of both are the low bits of 8 bytes, whose other bits are the top
    bits of the last four codes; their low bits are the halves of 4 bytes.
    """
    begin = _bytes(b, step, 0)
    # In all vectors here, lanes alternate between the scale of a group and its minimum.
    first_bytes = [4, 8, 5, 9, 6, 10, 7, 11]
    last_bytes = [12, 12, 13, 13, 14, 14, 15, 15]
    low = _bytes_at(b, begin, first_bytes + last_bytes)
    top = _bytes_at(b, begin, first_bytes + first_bytes)
    low_bits = b.and_(low, _each_byte([63] * 8 + [15, 0] * 4))
    high_halves = b.lshr(low, _each_byte([4] * 16))
    high_halves = b.and_(high_halves, _each_byte([0] * 8 + [0, 15] * 4))
    codes = b.or_(low_bits, high_halves)
    top_bits = b.lshr(top, _each_byte([2] * 16))
    top_bits = b.and_(top_bits, _each_byte([0] * 8 + [48] * 8))
    codes = b.or_(codes, top_bits)
    both = b.bitcast(_word(b, step, 0), ir.VectorType(ir.HalfType(), 2))
    in_turn = b.shuffle_vector(both, both, ir.Constant(INTEGERS, [0, 1] * 8))
    signs = ir.Constant(INTEGERS, [0, 1 << 31] * 8)
    bits = b.bitcast(b.fpext(in_turn, VECTOR), INTEGERS)
    factors = b.bitcast(b.xor(bits, signs), VECTOR)
    numbers = b.sitofp(b.zext(codes, INTEGERS), VECTOR)
    store(b, b.fmul(factors, numbers), scales)


def _bytes_at(b: ir.IRBuilder, vector: Any, indices: list[int]) -> Any:
    """The bytes of a vector at 16 indices."""
    return b.shuffle_vector(vector, vector, ir.Constant(INTEGERS, indices))


def _each_byte(values: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I8, VECTOR_LENGTH), values)


def _group(b: ir.IRBuilder, scales: Any, group: int) -> tuple[Any, Any]:
    """One scale and one minimum of `_group_scales`, in all lanes."""
    address = after(b, scales, 8 * group)
    scale = broadcast(b, address)
    minimum = broadcast(b, after(b, address, 4))
    return scale, minimum


def _q6_k_scales(b: ir.IRBuilder, step: Any, scales: Any) -> None:
    codes = b.sext(_bytes(b, step, 192), INTEGERS)
    store(b, b.fmul(_half(b, step, 208), b.sitofp(codes, VECTOR)), scales)


LAYOUTS = (
    Layout(STEP, 128, _float32),
    Layout(STEP, 64, _bfloat16),
    Layout(STEP, 64, _float16),
    Layout(32, 34, _q8_0),
    Layout(32, 18, _q4_0),
    Layout(32, 20, _q4_1),
    Layout(32, 22, _q5_0),
    Layout(32, 24, _q5_1),
    Layout(256, 144, _q4_k, parts=4, scales=_group_scales),
    Layout(256, 176, _q5_k, parts=4, scales=_group_scales),
    Layout(256, 210, _q6_k, parts=2, scales=_q6_k_scales),
)
"""Layouts by kind."""

WIDE = 32  # bytes of a vector of codes


def _half(b: ir.IRBuilder, address: Any, offset: int = 0) -> Any:
    """The fp16 at an address, as fp32 in all lanes.

    It is spread before it is converted: an instruction that loads a single fp16 waits for the one
    before it.
    """
    raw = load_as(b, I16, after(b, address, offset), align=2)
    return b.fpext(b.bitcast(spread(b, raw), HALVES), VECTOR)


def _word(b: ir.IRBuilder, address: Any, offset: int) -> Any:
    return load_as(b, I32, after(b, address, offset), align=2)


def _bytes(b: ir.IRBuilder, address: Any, offset: int, count: int = VECTOR_LENGTH) -> Any:
    return load_as(b, ir.VectorType(I8, count), after(b, address, offset), align=1)


def _wide(b: ir.IRBuilder, address: Any, offset: int) -> Any:
    return _bytes(b, address, offset, WIDE)


def _repeated(value: int) -> ir.Constant:
    """A vector of `WIDE` bytes that all hold one value."""
    return ir.Constant(ir.VectorType(I8, WIDE), [value & 0xFF] * WIDE)


def _nibbles(b: ir.IRBuilder, address: Any, offset: int) -> list[Any]:
    """The low and the high four bits of 16 bytes, as integers."""
    raw = b.zext(_bytes(b, address, offset), INTEGERS)
    return [b.and_(raw, integers(15)), b.lshr(raw, integers(4))]


def _halves(b: ir.IRBuilder, address: Any, offset: int) -> Any:
    """The low four bits of 16 bytes, then the high ones, as 32 bytes."""
    raw = _bytes(b, address, offset)
    sixteen = ir.VectorType(I8, VECTOR_LENGTH)
    low = b.and_(raw, ir.Constant(sixteen, [15] * VECTOR_LENGTH))
    high = b.lshr(raw, ir.Constant(sixteen, [4] * VECTOR_LENGTH))
    order = ir.Constant(ir.VectorType(I32, WIDE), list(range(WIDE)))
    return b.shuffle_vector(low, high, order)


def _flags(b: ir.IRBuilder, address: Any, offset: int) -> Any:
    """32 bits as bytes: a set bit becomes 0xFF."""
    bits = b.bitcast(_word(b, address, offset), ir.VectorType(ir.IntType(1), WIDE))
    return b.sext(bits, ir.VectorType(I8, WIDE))


def _integers_of(b: ir.IRBuilder, codes: Any) -> list[Any]:
    """32 signed bytes as two vectors of integers."""
    halves = []
    for first in (0, VECTOR_LENGTH):
        indices = ir.Constant(INTEGERS, list(range(first, first + VECTOR_LENGTH)))
        halves.append(b.sext(b.shuffle_vector(codes, codes, indices), INTEGERS))
    return halves

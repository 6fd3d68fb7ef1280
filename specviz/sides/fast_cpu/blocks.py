"""Kinds of weights, and how a block of each becomes vectors of fp32, in LLVM's language.

The layouts are those of GGUF files
(https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h). Every weight has the value that
the package `gguf` computes for it in fp32. A product of a scale and a code is exact in fp32, so a
weight with a minimum is rounded once, as a fused multiplication and addition rounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from .ir import (
    I8,
    I16,
    I32,
    INTEGERS,
    LANES,
    VECTOR,
    fma,
    i64,
    integers,
    lane,
    load,
    spread,
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
"""Kinds by the names that GGUF files have for them, as the numbers that compiled code takes."""

PLAIN = (FLOAT32, BFLOAT16, FLOAT16)
"""Kinds whose weights are numbers of their own."""

PACKED = tuple(range(Q8_0, Q6_K + 1))
"""Kinds whose weights share a scale with others of a block."""

BLOCK_WEIGHTS = (1, 1, 1, 32, 32, 32, 32, 32, 256, 256, 256)
"""Weights of a block, by kind."""

BLOCK_BYTES = (4, 2, 2, 34, 18, 20, 22, 24, 144, 176, 210)
"""Bytes of a block, by kind."""

STEP = 32  # weights that an operation takes at a time, unless a block has more


def step_weights(kind: int) -> int:
    """How many weights `unpacked` gives at a time."""
    return max(STEP, BLOCK_WEIGHTS[kind])


def step_bytes(kind: int) -> int:
    """Bytes of as many weights."""
    return step_weights(kind) // BLOCK_WEIGHTS[kind] * BLOCK_BYTES[kind]


def unpacked(b: ir.IRBuilder, kind: int, address: Any) -> Iterator[Any]:
    """`step_weights` weights from this address on, as vectors of `LANES` numbers in fp32, each
    made when it is asked for, so that few of them are in registers at a time.

    They come in their order, but of bf16: there the first vector has the weights at even places,
    and the second those at odd ones.
    """
    return _UNPACK[kind](b, address)


def _float32(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    yield load(b, address)
    yield load(b, b.add(address, i64(4 * LANES)))


def _bfloat16(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    pairs = b.load(b.inttoptr(address, INTEGERS.as_pointer()))
    pairs.align = 2
    # Each is the upper half of an fp32.
    yield b.bitcast(b.shl(pairs, integers(16)), VECTOR)
    yield b.bitcast(b.and_(pairs, integers(0xFFFF0000)), VECTOR)


def _float16(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    for place in (address, b.add(address, i64(2 * LANES))):
        raw = b.load(b.inttoptr(place, ir.VectorType(ir.HalfType(), LANES).as_pointer()))
        raw.align = 2
        yield b.fpext(raw, VECTOR)


def _q8_0(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """A scale, fp16, and 32 codes, int8."""
    scale = _half(b, address)
    for offset in (2, 2 + LANES):
        codes = b.sext(_bytes(b, address, offset), INTEGERS)
        yield b.fmul(scale, b.sitofp(codes, VECTOR))


def _q4_0(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """A scale, and 16 bytes: codes 0 to 15 are their low halves, 16 to 31 their high ones."""
    scale = _half(b, address)
    for codes in _nibbles(b, address, 2):
        yield b.fmul(scale, b.sitofp(b.sub(codes, integers(8)), VECTOR))


def _q4_1(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """As Q4_0, with a minimum behind the scale."""
    scale = _half(b, address)
    minimum = _half(b, address, 2)
    for codes in _nibbles(b, address, 4):
        yield fma(b, scale, b.sitofp(codes, VECTOR), minimum)


def _q5_0(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """As Q4_0; before the codes come their fifth bits, 4 bytes."""
    scale = _half(b, address)
    for codes, set_bits in zip(_nibbles(b, address, 6), _fifth_bits(b, address, 2), strict=True):
        # A code less 16: with its fifth bit the code itself, without it one below 0.
        signed = b.or_(codes, b.select(set_bits, integers(0), integers(-16)))
        yield b.fmul(scale, b.sitofp(signed, VECTOR))


def _q5_1(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """As Q5_0, with a minimum behind the scale."""
    scale = _half(b, address)
    minimum = _half(b, address, 2)
    for codes, set_bits in zip(_nibbles(b, address, 8), _fifth_bits(b, address, 4), strict=True):
        whole = b.or_(codes, b.select(set_bits, integers(16), integers(0)))
        yield fma(b, scale, b.sitofp(whole, VECTOR), minimum)


def _q4_k(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """Scales of 8 groups of 32 (`_group_scales`), then 128 bytes: each 32 of them hold the codes
    of a group in their low halves, and those of the next in their high ones."""
    scales, minima = _group_scales(b, address)
    for pair in range(4):
        first, last = (16 + 32 * pair + offset for offset in (0, LANES))
        raw = [b.zext(_bytes(b, address, offset), INTEGERS) for offset in (first, last)]
        low = [b.and_(codes, integers(15)) for codes in raw]
        high = [b.lshr(codes, integers(4)) for codes in raw]
        for group, parts in ((2 * pair, low), (2 * pair + 1, high)):
            for codes in parts:
                yield fma(b, scales[group], b.sitofp(codes, VECTOR), minima[group])


def _q5_k(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """As Q4_K; before the codes come their fifth bits: bit g of 32 bytes is that of group g."""
    scales, minima = _group_scales(b, address)
    fifth = [b.zext(_bytes(b, address, offset), INTEGERS) for offset in (16, 16 + LANES)]
    for pair in range(4):
        first, last = (48 + 32 * pair + offset for offset in (0, LANES))
        raw = [b.zext(_bytes(b, address, offset), INTEGERS) for offset in (first, last)]
        low = [b.and_(codes, integers(15)) for codes in raw]
        high = [b.lshr(codes, integers(4)) for codes in raw]
        for group, parts in ((2 * pair, low), (2 * pair + 1, high)):
            for codes, bits in zip(parts, fifth, strict=True):
                bit = b.and_(_shifted(b, bits, 4 - group), integers(16))
                whole = b.or_(codes, bit)
                yield fma(b, scales[group], b.sitofp(whole, VECTOR), minima[group])


def _q6_k(b: ir.IRBuilder, address: Any) -> Iterator[Any]:
    """Two halves of 128 codes: of each, 64 bytes have the low 4 bits of codes and 32 the high 2.
    Behind both come 16 scales, int8, one for each 16 codes, and the scale of all, fp16."""
    scale = _half(b, address, 208)
    codes_of_scales = b.sext(_bytes(b, address, 192), INTEGERS)
    scales = b.fmul(scale, b.sitofp(codes_of_scales, VECTOR))
    for half in (0, 1):
        low = [b.zext(_bytes(b, address, 64 * half + LANES * part), INTEGERS) for part in range(4)]
        high = [
            b.zext(_bytes(b, address, 128 + 32 * half + LANES * part), INTEGERS)
            for part in range(2)
        ]
        for group in range(4):  # of 32 codes
            for part in (0, 1):
                raw = low[2 * (group % 2) + part]
                four = b.and_(raw, integers(15)) if group < 2 else b.lshr(raw, integers(4))
                two = b.and_(_shifted(b, high[part], 4 - 2 * group), integers(48))
                codes = b.sub(b.or_(four, two), integers(32))
                own = spread(b, lane(b, scales, 8 * half + 2 * group + part))
                yield b.fmul(own, b.sitofp(codes, VECTOR))


_UNPACK: tuple[Callable[[ir.IRBuilder, Any], Iterator[Any]], ...] = (
    _float32,
    _bfloat16,
    _float16,
    _q8_0,
    _q4_0,
    _q4_1,
    _q5_0,
    _q5_1,
    _q4_k,
    _q5_k,
    _q6_k,
)
"""By kind."""


def _group_scales(b: ir.IRBuilder, address: Any) -> tuple[list[Any], list[Any]]:
    """Scales, and minima below 0, of the 8 groups of a block, spread over vectors.

    A block begins with a scale and a minimum, fp16, and 12 bytes that hold 8 codes of 6 bits for
    each of them: the first four of either lie in the low bits of 4 bytes, the others in two parts.
    """
    first, second, third = (_word(b, address, offset) for offset in (4, 8, 12))
    low_bits = ir.Constant(I32, 0x3F3F3F3F)
    four_bits = ir.Constant(I32, 0x0F0F0F0F)
    top_bits = ir.Constant(I32, 0x30303030)
    two = ir.Constant(I32, 2)
    four = ir.Constant(I32, 4)
    words = (
        b.and_(first, low_bits),
        b.or_(b.and_(third, four_bits), b.and_(b.lshr(first, two), top_bits)),
        b.and_(second, low_bits),
        b.or_(b.and_(b.lshr(third, four), four_bits), b.and_(b.lshr(second, two), top_bits)),
    )
    packed = ir.Constant(ir.VectorType(I32, 4), ir.Undefined)
    for index, word in enumerate(words):
        packed = b.insert_element(packed, word, ir.Constant(I32, index))
    codes = b.zext(b.bitcast(packed, ir.VectorType(I8, LANES)), INTEGERS)
    minimum = b.fneg(_half(b, address, 2))
    first_of_each = [*range(8), *range(LANES, LANES + 8)]
    factors = b.shuffle_vector(_half(b, address), minimum, ir.Constant(INTEGERS, first_of_each))
    products = b.fmul(factors, b.sitofp(codes, VECTOR))
    spreads = [spread(b, lane(b, products, index)) for index in range(LANES)]
    return spreads[:8], spreads[8:]


def _half(b: ir.IRBuilder, address: Any, offset: int = 0) -> Any:
    """The fp16 at an address, as fp32 in all lanes.

    It is spread before it is converted: the instruction that loads a single fp16 would wait for the
    one before it.
    """
    raw = b.load(b.inttoptr(b.add(address, i64(offset)), I16.as_pointer()))
    raw.align = 2
    shorts = ir.VectorType(I16, LANES)
    single = b.insert_element(ir.Constant(shorts, ir.Undefined), raw, ir.Constant(I32, 0))
    spread_out = b.shuffle_vector(single, single, integers(0))
    return b.fpext(b.bitcast(spread_out, ir.VectorType(ir.HalfType(), LANES)), VECTOR)


def _word(b: ir.IRBuilder, address: Any, offset: int) -> Any:
    raw = b.load(b.inttoptr(b.add(address, i64(offset)), I32.as_pointer()))
    raw.align = 2
    return raw


def _bytes(b: ir.IRBuilder, address: Any, offset: int) -> Any:
    raw = b.load(b.inttoptr(b.add(address, i64(offset)), ir.VectorType(I8, LANES).as_pointer()))
    raw.align = 1
    return raw


def _nibbles(b: ir.IRBuilder, address: Any, offset: int) -> list[Any]:
    """Of 16 bytes the low and the high four bits, as integers."""
    raw = b.zext(_bytes(b, address, offset), INTEGERS)
    return [b.and_(raw, integers(15)), b.lshr(raw, integers(4))]


def _fifth_bits(b: ir.IRBuilder, address: Any, offset: int) -> list[Any]:
    """32 bits as two vectors of truth values."""
    flags = ir.VectorType(ir.IntType(1), LANES)
    halves = []
    for place in (offset, offset + 2):
        raw = b.load(b.inttoptr(b.add(address, i64(place)), I16.as_pointer()))
        raw.align = 2
        halves.append(b.bitcast(raw, flags))
    return halves


def _shifted(b: ir.IRBuilder, codes: Any, left: int) -> Any:
    """Integers shifted by so many bits to the left, or to the right if it is below 0."""
    if left >= 0:
        return b.shl(codes, integers(left))
    return b.lshr(codes, integers(-left))

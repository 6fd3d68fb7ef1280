"""Code in LLVM's language that reads a block in a tile, for each kind of weights.

In a tile (`files/few_bits/tiles.py`) the blocks of sixteen outputs are side by side, so each vector
has one element of a block for all of them: a word of four codes, or a scale. Offsets are those in
a block of the file, whose layouts `files/few_bits/blocks.py` has too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ...files.few_bits.blocks import HALVES, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0
from ...files.few_bits.ir import (
    I32,
    INTEGERS,
    VECTOR,
    VECTOR_LENGTH,
    after,
    i64,
    integers,
    load,
    load_as,
    part_at,
    spread,
    store,
    vector_at,
)
from ...files.few_bits.tiles import OUTPUTS

WORDS = 8  # of a group, four codes each
SCALE_VECTORS = 16  # the most that a block has


@dataclass
class Group:
    """The codes of 32 inputs and sixteen outputs.

    codes: makes the vector of each of the `WORDS`. scales: fp32 vectors, one for the group, or one
    for each half. minimum: fp32 vector, or None.
    """

    codes: Callable[[int], Any]
    scales: list[Any]
    minimum: Any = None


@dataclass(frozen=True)
class TileLayout:
    """The layout of a kind's block in a tile.

    bits: of a code. groups: (builder, address of the block, address of its scales, index of the
    part, int64) -> the groups of 32 inputs of a part, in their order. bias: the codes minus the
    integers that they stand for. parts: of a block, of equal size, so that the code of one part
    serves all. scales: (builder, address of the block, address of memory for `SCALE_VECTORS`) ->
    None, writes the scales of all parts; None if scales are not packed.
    """

    bits: int
    groups: Callable[[ir.IRBuilder, Any, Any, Any], Iterator[Group]]
    bias: int = 0
    parts: int = 1
    scales: Callable[[ir.IRBuilder, Any, Any], None] | None = None


def _words(b: ir.IRBuilder, block: Any, offset: int) -> Any:
    """The words of the sixteen outputs at an offset, in bytes, of the file's block."""
    return load_as(b, INTEGERS, after(b, block, OUTPUTS * offset), align=2)


def _half_floats(b: ir.IRBuilder, block: Any, offset: int) -> Any:
    """The fp16 of the sixteen outputs at such an offset, as fp32."""
    halves = load_as(b, HALVES, after(b, block, OUTPUTS * offset), align=2)
    return b.fpext(halves, VECTOR)


def _bits(b: ir.IRBuilder, words: Any, right: Any, mask: int) -> Any:
    """The bits of `mask` in each byte of the words, after a shift. right: a number of bits, to the
    left if below 0, or a vector of them."""
    if not isinstance(right, int):
        words = b.lshr(words, right)
    elif right > 0:
        words = b.lshr(words, integers(right))
    elif right < 0:
        words = b.shl(words, integers(-right))
    return b.and_(words, integers(mask * 0x01010101))


def _nibble(b: ir.IRBuilder, block: Any, begin: int, word: int) -> Any:
    """The codes of four inputs in kinds whose 16 bytes hold 32 codes: the first 16 in their low
    halves, the others in their high halves."""
    words = _words(b, block, begin + 4 * (word % 4))
    return _bits(b, words, 4 * (word // 4), 15)


def _fifth_bits(b: ir.IRBuilder, block: Any, begin: int, word: int) -> Any:
    return _bits(b, _words(b, block, begin), word - 4, 16)


def _q4_0(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    yield Group(lambda word: _nibble(b, block, 2, word), [_half_floats(b, block, 0)])


def _q4_1(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    minimum = _half_floats(b, block, 2)
    yield Group(lambda word: _nibble(b, block, 4, word), [_half_floats(b, block, 0)], minimum)


def _q5_0(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    def codes(word: int) -> Any:
        return b.or_(_nibble(b, block, 6, word), _fifth_bits(b, block, 2, word))

    yield Group(codes, [_half_floats(b, block, 0)])


def _q5_1(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    def codes(word: int) -> Any:
        return b.or_(_nibble(b, block, 8, word), _fifth_bits(b, block, 4, word))

    yield Group(codes, [_half_floats(b, block, 0)], _half_floats(b, block, 2))


def _q8_0(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    yield Group(lambda word: _words(b, block, 2 + 4 * word), [_half_floats(b, block, 0)])


def _q4_k(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    """32 bytes of a part hold the codes of one group in their low halves, and those of the next
    group in their high halves."""
    codes_of_part = part_at(b, block, part, OUTPUTS * 32)
    for group in range(2):

        def codes(word: int, group: int = group) -> Any:
            return _bits(b, _words(b, codes_of_part, 16 + 4 * word), 4 * group, 15)

        scale, minimum = _scale_vectors(b, scales, part, group)
        yield Group(codes, [scale], minimum)


def _q5_k(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    """As Q4_K, with fifth bits before the codes: bit g of 32 bytes belongs to group g."""
    codes_of_part = part_at(b, block, part, OUTPUTS * 32)
    skipped = _spread_index(b, b.mul(part, i64(2)))
    for group in range(2):

        def codes(word: int, group: int = group) -> Any:
            low = _bits(b, _words(b, codes_of_part, 48 + 4 * word), 4 * group, 15)
            fifth = _bits(b, _words(b, block, 16 + 4 * word), skipped, 1 << group)
            return b.or_(low, b.shl(fifth, integers(4 - group)))

        scale, minimum = _scale_vectors(b, scales, part, group)
        yield Group(codes, [scale], minimum)


def _q6_k(b: ir.IRBuilder, block: Any, scales: Any, part: Any) -> Iterator[Group]:
    """Two halves of 128 codes: in each, 64 bytes hold the low 4 bits of codes and 32 bytes the
    high 2. A part is half of a half."""
    half = b.lshr(part, i64(1))
    low_words = part_at(b, block, half, OUTPUTS * 64)
    high_words = part_at(b, block, half, OUTPUTS * 32)
    skipped = _spread_index(b, b.mul(b.and_(part, i64(1)), i64(4)))
    for group in range(2):

        def codes(word: int, group: int = group) -> Any:
            low = _bits(b, _words(b, low_words, 32 * group + 4 * word), skipped, 15)
            high = _bits(b, _words(b, high_words, 128 + 4 * word), skipped, 3 << 2 * group)
            return b.or_(low, b.shl(high, integers(4 - 2 * group)))

        yield Group(codes, _scale_vectors(b, scales, part, group))


def _spread_index(b: ir.IRBuilder, index: Any) -> Any:
    return spread(b, b.trunc(index, I32))


def _scale_vectors(b: ir.IRBuilder, scales: Any, part: Any, group: int) -> list[Any]:
    """The two vectors of a group from memory that `TileLayout.scales` has written."""
    of_part = part_at(b, scales, part, 4 * 4 * VECTOR_LENGTH)
    first = load(b, vector_at(b, of_part, 2 * group))
    second = load(b, vector_at(b, of_part, 2 * group + 1))
    return [first, second]


def _group_scales(b: ir.IRBuilder, block: Any, scales: Any) -> None:
    """Write the scale and the minimum with the sign reversed for each of the 8 groups of a block.

    A block begins with a scale and a minimum, fp16, and three words with 8 codes of 6 bits for
    each of them. The first four codes of both are the low bits of the bytes of two words, whose
    other bits are the top bits of the last four codes; their low bits are the halves of the third
    word.
    """
    factors = [_half_floats(b, block, 0), b.fneg(_half_floats(b, block, 2))]
    words = [_words(b, block, 4), _words(b, block, 8)]
    low_bits = _words(b, block, 12)
    for i, (factor, word) in enumerate(zip(factors, words, strict=True)):
        low = _bits(b, low_bits, 4 * i, 15)
        first = _bits(b, word, 0, 63)
        last = b.or_(low, _bits(b, word, 2, 48))
        for group in range(8):
            codes = first if group < 4 else last
            code = _byte(b, codes, group % 4)
            vector = b.fmul(factor, b.uitofp(code, VECTOR))
            store(b, vector, vector_at(b, scales, 2 * group + i))


def _q6_k_scales(b: ir.IRBuilder, block: Any, scales: Any) -> None:
    """Write the scales of 16 inputs each: after the codes come 16 of them, int8, and the common
    scale, fp16."""
    whole = _half_floats(b, block, 208)
    for index in range(16):
        four = _words(b, block, 192 + index // 4 * 4)
        code = b.ashr(b.shl(four, integers(24 - 8 * (index % 4))), integers(24))
        vector = b.fmul(whole, b.sitofp(code, VECTOR))
        store(b, vector, vector_at(b, scales, index))


def _byte(b: ir.IRBuilder, words: Any, index: int) -> Any:
    """One byte of each word, as an unsigned integer."""
    return b.and_(b.lshr(words, integers(8 * index)), integers(255))


TILED = {
    Q4_0: TileLayout(4, _q4_0, bias=8),
    Q4_1: TileLayout(4, _q4_1),
    Q5_0: TileLayout(5, _q5_0, bias=16),
    Q5_1: TileLayout(5, _q5_1),
    Q8_0: TileLayout(8, _q8_0),
    Q4_K: TileLayout(4, _q4_k, parts=4, scales=_group_scales),
    Q5_K: TileLayout(5, _q5_k, parts=4, scales=_group_scales),
    Q6_K: TileLayout(6, _q6_k, bias=32, parts=4, scales=_q6_k_scales),
}
"""The kinds of weights that integer products read."""

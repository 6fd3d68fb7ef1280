"""Sums of products of weights' codes and inputs of 8 bits, in the instructions of each processor.

All forms compute the same integers: a sum of integers that does not overflow is exact in any
order. A vector of codes holds the codes of four inputs for each of sixteen outputs, one output in
each lane of 32 bits. A word of inputs holds the same four inputs, from -127 to 127.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from ...files.few_bits.ir import I8, I16, I32, VECTOR_LENGTH, call_named, cut, integers, joined

BYTES = 4 * VECTOR_LENGTH
LARGEST_INPUT = 127
LARGEST_SHORT = 2**15 - 1
SIGNED_BITS = 8  # codes of 8 bits are signed, shorter ones are not


class IntegerSums(ABC):
    """The sums of one row of inputs with the codes of sixteen outputs, of `bits` bits each.

    start: <16 x i32>, to which the products are added.
    """

    offset = 0
    """The number that `prepared` adds to signed codes: sums are too large by it times the
    inputs."""

    def __init__(self, b: ir.IRBuilder, bits: int, start: Any) -> None:
        self.b = b
        self.bits = bits
        self.sums = start

    def prepared(self, codes: Any) -> Any:
        """Return codes in the form of `add`, made once for all rows."""
        return codes

    @abstractmethod
    def add(self, codes: Any, inputs: Any) -> None:
        """Add the products of codes from `prepared` with a word of inputs, i32."""

    def total(self) -> Any:
        """Return the sums: <16 x i32>."""
        return self.sums


class DotSums(IntegerSums):
    """`vpdpbusd` of AVX-512 VNNI: four products of an unsigned and a signed byte, added to 32 bits
    without saturation."""

    offset = 128
    lanes = 16
    intrinsic = "llvm.x86.avx512.vpdpbusd.512"

    def prepared(self, codes: Any) -> Any:
        if self.bits == SIGNED_BITS:
            return self.b.xor(codes, integers(0x80808080))  # adds 128 to each byte
        return codes

    def add(self, codes: Any, inputs: Any) -> None:
        b = self.b
        lanes = self.lanes
        same_inputs = spread_word(b, inputs, lanes)
        pieces = []
        for i in range(VECTOR_LENGTH // lanes):
            sums = cut(b, self.sums, lanes, i)
            piece = cut(b, codes, lanes, i)
            pieces.append(call_named(b, self.intrinsic, sums.type, sums, piece, same_inputs))
        self.sums = joined(b, pieces)


class HalfDotSums(DotSums):
    """`vpdpbusd` of AVX-VNNI, in registers of 256 bits."""

    lanes = 8
    intrinsic = "llvm.x86.avx512.vpdpbusd.256"


class PairSums(IntegerSums):
    """`vpmaddubsw` of AVX2: two products added in 16 bits, with saturation.

    The largest sum of two products is 2 * 127 times the largest code. As many words are added in
    16 bits as stay below 2**15, and then in 32 bits by `vpmaddwd`: for codes of 4 bits all 8 words
    of a block (8 * 2 * 127 * 15 = 30,480), for 5 bits 4 words (31,496), for 6 bits 2 (32,004).
    Codes of 8 bits are signed: their sign moves to the input (`vpsignb`), which -127 to 127 allow,
    and their sizes, 128 at most, allow 1 word (32,512).
    """

    lanes = 8
    signs = "llvm.x86.avx2.psign.b"
    pairs = "llvm.x86.avx2.pmadd.ub.sw"
    fours = "llvm.x86.avx2.pmadd.wd"

    def __init__(self, b: ir.IRBuilder, bits: int, start: Any) -> None:
        super().__init__(b, bits, start)
        largest = 128 if bits == SIGNED_BITS else 2**bits - 1
        self._max_words = LARGEST_SHORT // (2 * LARGEST_INPUT * largest)  # words
        self._short: list[Any] = []
        self._words = 0

    def prepared(self, codes: Any) -> Any:
        b = self.b
        pieces = [
            b.bitcast(cut(b, codes, self.lanes, i), ir.VectorType(I8, BYTES // 2)) for i in range(2)
        ]
        if self.bits != SIGNED_BITS:
            return pieces, None
        return [_x86(b, self.signs, I8, piece, piece) for piece in pieces], pieces

    def add(self, codes: Any, inputs: Any) -> None:
        b = self.b
        sizes, signs = codes
        same_inputs = b.bitcast(spread_word(b, inputs, self.lanes), ir.VectorType(I8, BYTES // 2))
        pairs = []
        for i, size in enumerate(sizes):
            signed = same_inputs
            if signs is not None:
                signed = _x86(b, self.signs, I8, same_inputs, signs[i])
            pairs.append(_x86(b, self.pairs, I16, size, signed))
        if self._short:
            pairs = [b.add(pair, short) for pair, short in zip(pairs, self._short, strict=True)]
        self._short = pairs
        self._words += 1
        if self._words == self._max_words:
            self._widen()

    def total(self) -> Any:
        if self._short:
            self._widen()
        return self.sums

    def _widen(self) -> None:
        b = self.b
        ones = ir.Constant(ir.VectorType(I16, VECTOR_LENGTH), [1] * VECTOR_LENGTH)
        fours = [_x86(b, self.fours, I32, short, ones) for short in self._short]
        self.sums = b.add(self.sums, joined(b, fours))
        self._short = []
        self._words = 0


def _x86(b: ir.IRBuilder, name: str, element: Any, x: Any, y: Any) -> Any:
    """Call an instruction of AVX2 on two vectors. element: of the 256 bits that it returns."""
    return call_named(b, name, ir.VectorType(element, 256 // element.width), x, y)


class ArmDotSums(IntegerSums):
    """`sdot` of Arm: four products of signed bytes, added to 32 bits. Codes of fewer than 8 bits
    are positive as signed bytes too."""

    lanes = 4
    intrinsic = "llvm.aarch64.neon.sdot.v4i32.v16i8"

    def add(self, codes: Any, inputs: Any) -> None:
        b = self.b
        lanes = self.lanes
        bytes_type = ir.VectorType(I8, 4 * lanes)
        same_inputs = b.bitcast(spread_word(b, inputs, lanes), bytes_type)
        pieces = []
        for i in range(VECTOR_LENGTH // lanes):
            sums = cut(b, self.sums, lanes, i)
            piece = b.bitcast(cut(b, codes, lanes, i), bytes_type)
            pieces.append(call_named(b, self.intrinsic, sums.type, sums, piece, same_inputs))
        self.sums = joined(b, pieces)


class PlainSums(IntegerSums):
    """Products in 32 bits, on any processor."""

    def add(self, codes: Any, inputs: Any) -> None:
        b = self.b
        for byte in range(4):
            left = 24 - 8 * byte
            code = b.ashr(b.shl(codes, integers(left)), integers(24))
            number = b.ashr(b.shl(inputs, ir.Constant(I32, left)), ir.Constant(I32, 24))
            self.sums = b.add(self.sums, b.mul(code, spread_word(b, number, VECTOR_LENGTH)))


def spread_word(b: ir.IRBuilder, word: Any, lanes: int) -> Any:
    """Return a vector whose lanes all hold one integer of 32 bits."""
    vector = ir.VectorType(I32, lanes)
    single = b.insert_element(ir.Constant(vector, ir.Undefined), word, ir.Constant(I32, 0))
    return b.shuffle_vector(single, single, ir.Constant(vector, [0] * lanes))


FORMS: dict[str, type[IntegerSums]] = {
    "AVX-512 VNNI": DotSums,
    "AVX-VNNI": HalfDotSums,
    "AVX2": PairSums,
    "Arm dot products": ArmDotSums,
    "plain": PlainSums,
}
"""The form of each set of instructions, the fastest first."""

FEATURES = {
    "AVX-512 VNNI": ("avx512vnni", "avx512bw"),
    "AVX-VNNI": ("avxvnni",),
    "AVX2": ("avx2",),
    "Arm dot products": ("dotprod",),
    "plain": (),
}
"""The features that a form needs, by LLVM's names."""


def fastest_form() -> str:
    """Return the name of the fastest form of this processor."""
    features = llvm.get_host_cpu_features()
    for name, needed in FEATURES.items():
        if all(features.get(feature) for feature in needed):
            return name
    return "plain"

"""Weights in five bits: blocks of Q5_0 keep theirs, and products with them are those of their
numbers but for the rounding of inputs, with the same bits for any number of rows, on any
processor."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

import gguf
from numba import cfunc, types

from specviz.sides.fast_cpu import five_bits
from specviz.sides.fast_cpu.five_bits import MOST_TOGETHER, five_bit_product_code, unpack

WIDTHS = (32, 64, 96, 128, 896)
Q5_0 = gguf.GGMLQuantizationType.Q5_0
SIGNATURE = types.void(*[types.int64] * 8)
Function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)


def weights_of(outputs: int, width: int) -> NDArray[np.float32]:
    """Numbers that blocks of Q5_0 hold, some of which have no width."""
    generator = np.random.default_rng(width)
    numbers = generator.standard_normal((outputs, width)).astype(np.float32) * 0.02
    numbers[0] = 0
    numbers[1, :32] = 2.0**-20  # its scale is a subnormal fp16
    numbers[2, :32] = 900.0
    exact: NDArray[np.float32] = gguf.quants.dequantize(gguf.quants.quantize(numbers, Q5_0), Q5_0)
    return exact


def in_five_bits(weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    return packed_rows("F32", weights.view(np.uint8), weights.shape[1])


def packed_rows(kind: str, rows: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    packed = np.full((len(rows) + 1, five_bits.row_bytes(width)), 255, np.uint8)
    five_bits.pack(kind, rows, packed[:-1])
    assert (packed[-1] == 255).all(), "it wrote behind the last row"
    return packed[:-1]


def inputs_of(rows: int, width: int) -> NDArray[np.float32]:
    generator = np.random.default_rng(rows)
    x = generator.standard_normal((rows, width)).astype(np.float32)
    x[:, 3] = 300.0  # beside it others of its block are small
    x[0, :32] = 0
    return x


def multiplied(
    x: NDArray[np.float32], packed: NDArray[np.uint8], address: int | None = None
) -> NDArray[np.float32]:
    y = np.full((len(x), len(packed)), np.nan, np.float32)
    Function(address or five_bit_product_code())(
        len(x),
        x.ctypes.data,
        x.strides[0],
        packed.ctypes.data,
        x.shape[1],
        len(packed),
        y.ctypes.data,
        y.strides[0],
    )
    return y


@pytest.mark.parametrize("width", WIDTHS)
def test_blocks_of_q5_0_keep_their_weights(width: int) -> None:
    weights = weights_of(5, width)
    blocks = gguf.quants.quantize(weights, Q5_0)
    for packed in (in_five_bits(weights), packed_rows("Q5_0", blocks, width)):
        assert np.array_equal(unpack(packed, width), weights)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_1", "Q5_1", "Q8_0"])
def test_weights_of_another_kind_become_the_five_bits_of_their_numbers(kind: str) -> None:
    numbers = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
    rows = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind]).view(np.uint8)
    exact = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(packed_rows(kind, rows, 512), in_five_bits(exact))


def test_other_weights_are_off_by_half_a_step_or_one_at_the_end() -> None:
    weights = np.random.default_rng(0).standard_normal((16, 96)).astype(np.float32)
    off = np.abs(unpack(in_five_bits(weights), 96) - weights).reshape(-1, 32)
    largest = np.abs(weights).reshape(-1, 32).max(1, keepdims=True)
    # The codes go to 15 on one side, and to 16 on that of the largest weight.
    is_end = np.abs(weights).reshape(-1, 32) > largest * 15 / 16
    assert (off <= largest / 16 * np.where(is_end, 1.0, 0.5) * 1.01).all()


@pytest.mark.parametrize("rows", [1, 2, 3, MOST_TOGETHER, MOST_TOGETHER + 1, 9])
@pytest.mark.parametrize("width", WIDTHS)
def test_products_are_those_of_the_numbers_but_for_the_rounding_of_inputs(
    rows: int, width: int
) -> None:
    weights = weights_of(35, width)
    x = inputs_of(rows, width)
    y = multiplied(x, in_five_bits(weights))
    blocks = np.abs(x).reshape(rows, -1, 32).max(2).repeat(32, 1)
    most = (blocks / 32767 / 2) @ np.abs(weights).T  # what half a step of each input can change
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    assert (np.abs(y - exact) <= 1.01 * most + 1e-6 * np.abs(x) @ np.abs(weights).T).all()


def test_a_row_has_the_same_bits_whatever_is_beside_it() -> None:
    packed = in_five_bits(weights_of(35, 128))
    x = inputs_of(9, 128)
    together = multiplied(x, packed)
    for row in range(len(x)):
        assert np.array_equal(multiplied(x[row : row + 1].copy(), packed)[0], together[row])


def test_processors_without_the_instruction_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = in_five_bits(weights_of(7, 96))
    x = inputs_of(3, 96)
    usual = multiplied(x, packed)
    monkeypatch.setattr(five_bits.llvm, "get_host_cpu_features", dict)
    plain = cfunc(SIGNATURE)(five_bits._multiply_rows)
    assert "pmadd" not in plain.inspect_llvm()
    assert np.array_equal(multiplied(x, packed, plain.address), usual)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(broken: float) -> None:
    x = inputs_of(2, 96)
    x[1, 70] = broken
    y = multiplied(x, in_five_bits(weights_of(5, 96)))
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()

"""Integer products: the same integers with every processor's instructions, the weights of the file,
and the same bits for any number of rows."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

import gguf
import llvmlite.binding as llvm
from llvmlite import ir

from specviz.files.few_bits.blocks import BLOCK_WEIGHTS, KINDS
from specviz.files.few_bits.ir import I64
from specviz.files.few_bits.tiles import as_tiles, rows_of
from specviz.files.few_bits.unpacking import repacked
from specviz.files.packed import PackedLinear, TiledLinear, rounded_to_8_bits
from specviz.sides.fast_cpu import integer_sums
from specviz.sides.fast_cpu.integer_products import (
    FORM_NAMES,
    MAX_TOGETHER,
    RECORD,
    code_bias,
    integer_product_code,
    multiply_tiles,
    round_inputs,
)
from specviz.sides.fast_cpu.integer_sums import FEATURES
from specviz.sides.fast_cpu.tile_layouts import TILED

NAMES = [name for name, number in KINDS.items() if number in TILED]
SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Offsets of the fp16 scales of a block, if there are more than the one at its start."""

HERE = [
    form
    for form, needed in FEATURES.items()
    if all(llvm.get_host_cpu_features().get(feature) for feature in needed)
]
"""The forms that this processor can run."""

Function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)
WIDTH = 512
OUTPUTS = 37  # two whole tiles and a partial one
ROWS = 3  # of inputs, for which forms are compiled


def random_rows(kind: str, outputs: int = OUTPUTS, width: int = WIDTH) -> NDArray[np.uint8]:
    """Rows of random codes with finite scales: uint8 [outputs, bytes]."""
    generator = np.random.default_rng(KINDS[kind])
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = generator.integers(0, 256, (outputs * width // weights, size), np.uint8)
    for place in SCALES.get(kind, (0,)):
        scales = generator.normal(0.0, 0.1, (len(blocks), 1)).astype(np.float16)
        blocks[:, place : place + 2] = scales.view(np.uint8)
    return blocks.reshape(outputs, -1)


def numbers(kind: str, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The weights that the package `gguf` reads from rows."""
    read = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[kind])
    return np.asarray(read, np.float64)


def inputs_of(rows: int, width: int = WIDTH) -> NDArray[np.float32]:
    generator = np.random.default_rng(rows)
    x = generator.standard_normal((rows, width)).astype(np.float32)
    x[:, 3] = 300.0  # the other inputs of its block are small next to it
    x[0, 32:64] = 0
    return x


def addresses(*arrays: NDArray[Any]) -> list[int]:
    return [array.ctypes.data for array in arrays]


def body_of(operation: Any) -> Callable[..., None]:
    """The function that builds the code of an operation."""
    build: Callable[..., None] = operation._defn.__wrapped__
    return build


def module_of(kind: str, form: str, rows: int) -> ir.Module:
    """A module with the functions `multiply` and `round`. rows: their number of input rows."""
    module = ir.Module()
    bodies: list[tuple[str, Callable[..., None], list[int], int]] = [
        ("multiply", body_of(multiply_tiles), [KINDS[kind], FORM_NAMES.index(form), rows], 6),
        ("round", body_of(round_inputs), [], 5),
    ]
    for name, build, cases, count in bodies:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * count), name)
        builder = ir.IRBuilder(function.append_basic_block())
        build(builder, *cases, *function.args)
        builder.ret_void()
    return module


@cache
def compiled_form(kind: str, form: str) -> Any:
    """An engine of LLVM with the functions of `module_of`, for `ROWS` input rows."""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten()
    )
    parsed = llvm.parse_assembly(str(module_of(kind, form, ROWS)))
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine


def by_form(
    kind: str, x: NDArray[np.float32], rows: NDArray[np.uint8], form: str
) -> NDArray[np.float32]:
    """Products of `ROWS` input rows in one of the forms, for a multiple of 16 outputs."""
    engine = compiled_form(kind, form)
    signature = [ctypes.c_int64] * 5
    rounds = ctypes.CFUNCTYPE(None, *signature)(engine.get_function_address("round"))
    multiplies = ctypes.CFUNCTYPE(None, *signature, ctypes.c_int64)(
        engine.get_function_address("multiply")
    )
    tiles = as_tiles(kind, rows)
    count, width = x.shape
    records = np.zeros((width // 32, count, RECORD), np.uint8)
    bias = code_bias(KINDS[kind], form)
    for row in range(count):
        rounds(*addresses(x[row]), width, bias, *addresses(records[0, row]), count * RECORD)
    y = np.full((count, len(rows)), np.nan, np.float32)
    blocks = width // BLOCK_WEIGHTS[KINDS[kind]]
    multiplies(*addresses(records, tiles), blocks, len(tiles), *addresses(y), y.strides[0])
    return y


def multiplied(kind: str, x: NDArray[np.float32], rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    tiles = as_tiles(kind, rows)
    y = np.full((len(x), len(rows)), np.nan, np.float32)
    Function(integer_product_code(KINDS[kind]))(
        len(x),
        x.ctypes.data,
        x.strides[0],
        tiles.ctypes.data,
        x.shape[1],
        len(rows),
        y.ctypes.data,
        y.strides[0],
    )
    return y


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("outputs", [1, 16, OUTPUTS])
def test_tiles_hold_the_bytes_of_the_rows(kind: str, outputs: int) -> None:
    rows = random_rows(kind, outputs)
    tiles = as_tiles(kind, rows)
    assert tiles.size == -(-outputs // 16) * 16 * rows.shape[1]
    some = np.arange(outputs)[::-3].copy()
    assert np.array_equal(rows_of(kind, tiles, some), rows[some])


@pytest.mark.parametrize("kind", NAMES)
def test_products_are_those_of_the_file_s_weights_with_rounded_inputs(kind: str) -> None:
    rows = random_rows(kind)
    x = inputs_of(MAX_TOGETHER + 3)
    rounded = rounded_to_8_bits(torch.from_numpy(x)).numpy().astype(np.float64)
    weights = numbers(kind, rows)
    most = 1e-6 * (np.abs(rounded) @ np.abs(weights).T)
    assert (np.abs(multiplied(kind, x, rows) - rounded @ weights.T) <= most).all()


@pytest.mark.parametrize("kind", NAMES)
def test_every_form_gives_the_same_bits(kind: str) -> None:
    """A test below checks the code of forms that this processor lacks."""
    rows = random_rows(kind, 32)
    x = inputs_of(ROWS)
    wanted = multiplied(kind, x, rows)
    assert "plain" in HERE
    for form in HERE:
        assert np.array_equal(by_form(kind, x, rows, form), wanted), form


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("form", HERE)
def test_no_sum_overflows(kind: str, form: str) -> None:
    """The largest codes meet the largest inputs, all of one sign: sums that saturate or wrap around
    would lose most of the value."""
    _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rows = random_rows(kind, 16)
    blocks = rows.reshape(16, -1, size)
    blocks[:8] = 255
    blocks[8:] = 128 if kind == "Q8_0" else 0
    for place in SCALES.get(kind, (0,)):
        blocks[..., place : place + 2] = np.array([0.01], np.float16).view(np.uint8)
    x = np.stack([np.full(WIDTH, value, np.float32) for value in (1.0, -1.0, 0.5)])
    wanted = x.astype(np.float64) @ numbers(kind, rows).T
    np.testing.assert_allclose(by_form(kind, x, rows, form), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", NAMES)
def test_a_row_has_the_same_bits_whatever_is_beside_it(kind: str) -> None:
    rows = random_rows(kind)
    x = inputs_of(2 * MAX_TOGETHER + 1)
    together = multiplied(kind, x, rows)
    for count in range(1, MAX_TOGETHER + 1):
        part = x[count : 2 * count].copy()
        assert np.array_equal(multiplied(kind, part, rows), together[count : 2 * count])


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(broken: float) -> None:
    x = inputs_of(3)
    x[1, 70] = broken
    y = multiplied("Q4_K", x, random_rows("Q4_K"))
    assert np.isfinite(y[[0, 2]]).all()
    assert np.isnan(y[1]).all()


def test_zeros_tiny_and_huge_inputs_are_numbers() -> None:
    x = np.zeros((4, WIDTH), np.float32)
    x[1] = 1e-38
    x[2] = 1e30
    x[3, ::2] = -3e38
    rows = random_rows("Q8_0")
    rows.reshape(-1, 34)[::3, :2] = 0  # every third block has scale 0
    y = multiplied("Q8_0", x, rows)
    assert (y[:2] == 0).all()
    wanted = x[2].astype(np.float64) @ numbers("Q8_0", rows).T
    np.testing.assert_allclose(y[2], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert not (y[3] == 0).all()


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0"])
def test_packed_weights_are_the_nearest_codes_of_the_best_scale(kind: str) -> None:
    weights = torch.randn(32, 96, generator=torch.Generator().manual_seed(3))
    weights[0] = 0
    blocks = repacked(weights, None, 96, kind).numpy()
    off = np.abs(numbers(kind, blocks) - weights.numpy()).reshape(-1, 32)
    largest = np.abs(weights.numpy()).reshape(-1, 32).max(1, keepdims=True)
    codes = 8 if kind == "Q4_0" else 16
    assert (off[:3] == 0).all()
    plain = gguf.quants.quantize(weights.numpy(), gguf.GGMLQuantizationType[kind])
    plain_off = np.abs(numbers(kind, plain) - weights.numpy())
    assert (off**2).sum() < (0.95 if kind == "Q4_0" else 1.0) * (plain_off**2).sum()
    assert (off.mean(1) <= largest[:, 0] / codes).all()
    # Blocks that already are of this kind keep their weights.
    again = repacked(torch.from_numpy(plain), kind, 96, kind).numpy()
    assert np.array_equal(numbers(kind, again), numbers(kind, plain))


def test_a_layer_of_tiles_computes_what_its_blocks_do_with_rounded_inputs() -> None:
    rows = torch.from_numpy(random_rows("Q6_K", OUTPUTS))
    linear = PackedLinear(torch.nn.Parameter(rows, requires_grad=False), "Q6_K", WIDTH, None)
    tiled = TiledLinear(linear)
    x = torch.from_numpy(inputs_of(2))
    expected = linear(rounded_to_8_bits(x))
    torch.testing.assert_close(tiled(x), expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(tiled(x), linear(x), rtol=1e-5, atol=1e-5)
    assert tiled.numbers == linear.numbers and tiled.out_features == OUTPUTS


OTHER_PROCESSORS = {
    "AVX-512 VNNI": ("x86_64", "icelake-server", "", r"vpdpbusd.*zmm"),
    "AVX-VNNI": ("x86_64", "alderlake", "", r"vpdpbusd.*ymm"),
    "AVX2": ("x86_64", "haswell", "", r"vpmaddubsw.*ymm"),
    "Arm dot products": ("aarch64", "neoverse-n1", "+dotprod", r"sdot\s+v\d+\.4s"),
}
"""For each form: architecture, processor, features, and a pattern of its instructions."""


@pytest.mark.parametrize("form", OTHER_PROCESSORS)
def test_other_processors_get_the_instructions_of_their_form(form: str) -> None:
    architecture, processor, features, instruction = OTHER_PROCESSORS[form]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(f"{architecture}-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip(f"this LLVM does not compile for {architecture}")
    machine = target.create_target_machine(cpu=processor, features=features, opt=3)
    parsed = llvm.parse_assembly(str(module_of("Q4_K", form, rows=4)))
    parsed.triple = machine.triple
    code = machine.emit_assembly(parsed)
    assert len(re.findall(instruction, code)) >= 4 * 8 * 2  # rows x words x groups


def test_the_fastest_form_of_a_processor_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for features, form in (
        ({"avx512vnni": True, "avx512bw": True, "avx2": True}, "AVX-512 VNNI"),
        ({"avx512vnni": False, "avxvnni": True, "avx2": True}, "AVX-VNNI"),
        ({"avx512bw": True, "avx2": True}, "AVX2"),  # like Skylake
        ({"avx2": True}, "AVX2"),
        ({"dotprod": True}, "Arm dot products"),
        ({}, "plain"),
    ):
        monkeypatch.setattr(
            integer_sums.llvm, "get_host_cpu_features", lambda found=features: found
        )
        assert integer_sums.fastest_form() == form

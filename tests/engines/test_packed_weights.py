"""Blocks of few bits become the numbers that the package `gguf` reads from them. Passes over
them give transformers' logits for those numbers, with the same bits for any width and number of
threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bare_rounds import bare_rounds
from numpy.typing import NDArray
from reference_distribution import text_p_value
from torch import Tensor
from toy_models import emitted_ids, words

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

import gguf
from gguf import GGMLQuantizationType
from tiny_files import KINDS, TinyFile, tiny_file, tiny_model

import specviz.core.loop
from specviz import Pair, Settings, load_pair, speculate
from specviz.core.engine_choice import make_engine
from specviz.core.protocols import Engine
from specviz.core.tensor_draws import draw, uniforms
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.files.few_bits.unpacking import unpacked
from specviz.files.gguf.header import read_gguf
from specviz.sides.fast_cpu import engine as module

SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Offsets of the fp16 scales of a block, in bytes from its start."""

SUBNORMAL = 2.0**-24  # the smallest positive number of fp16
LARGEST = 65504.0
EXTREMES = (0.0, -0.0, SUBNORMAL, -SUBNORMAL, 1023 * SUBNORMAL, LARGEST, -LARGEST, 1.0, -0.37)
FINITE = {"F32": (np.uint32, 0x7F800000), "F16": (np.uint16, 0x7C00), "BF16": (np.uint16, 0x7F80)}
"""Integers of the same size, and the exponent bits, which are all set in infinities and NaNs."""


def block_size(kind: str) -> tuple[int, int]:
    """The number of weights and bytes of a block."""
    weights, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return int(weights), int(size)


def random_rows(kind: str, rows: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of random bytes, in which scales and single weights are finite: uint8 [rows, bytes]."""
    generator = np.random.default_rng(seed)
    weights, size = block_size(kind)
    blocks = generator.integers(0, 256, (rows * width // weights, size), np.uint8)
    if kind in FINITE:
        integers, exponent = FINITE[kind]
        numbers = blocks.view(integers)
        numbers[(numbers & exponent) == exponent] &= ~exponent & 0xFFFF_FFFF >> (32 - 8 * size)
    for place in SCALES.get(kind, ()):
        scales = generator.normal(0.0, 1.0, (len(blocks), 1)).astype(np.float16)
        blocks[:, place : place + 2] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


def known_weights(kind: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The weights that the package `gguf` reads, fp32 [rows, width]."""
    weights: NDArray[np.float32] = gguf.quants.dequantize(blocks, GGMLQuantizationType[kind])
    return weights


def found_weights(kind: str, blocks: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    weights: NDArray[np.float32] = unpacked(torch.from_numpy(blocks), kind, width).numpy()
    return weights


@pytest.mark.parametrize("kind", KINDS)
def test_random_blocks_have_the_numbers_that_gguf_reads(kind: str) -> None:
    blocks = random_rows(kind, rows=50, width=1280)  # five blocks of the largest kinds
    found = found_weights(kind, blocks, 1280)
    known = known_weights(kind, blocks)
    assert found.shape == known.shape == (50, 1280) and len(np.unique(known)) > 100
    assert np.isfinite(known).all() and (found == known).all()


@pytest.mark.parametrize("kind", SCALES)
def test_blocks_with_extreme_scales_have_the_numbers_that_gguf_reads(kind: str) -> None:
    places = SCALES[kind]
    combinations = list(itertools.product(EXTREMES, repeat=len(places)))
    weights, size = block_size(kind)
    blocks = random_rows(kind, len(combinations), 3 * weights, seed=1)
    each = blocks.reshape(len(combinations), 3, size)
    for row, scales in enumerate(combinations):
        for place, scale in zip(places, scales, strict=True):
            each[row, :, place : place + 2] = np.array([scale], np.float16).view(np.uint8)
    found = found_weights(kind, blocks, 3 * weights)
    known = known_weights(kind, blocks)
    assert np.isfinite(known).all() and (found == known).all()
    assert known.max() > LARGEST and (known == 0).any()


@pytest.mark.parametrize("kind", FINITE)
def test_every_number_of_16_bits_is_read_as_it_is(kind: str) -> None:
    integers, exponent = FINITE[kind]
    every = np.arange(1 << 16, dtype=np.uint32)
    numbers = (every << 16 if kind == "F32" else every).astype(integers)
    finite = numbers[(numbers & exponent) != exponent]
    rows = finite[: len(finite) // 1024 * 1024].reshape(-1, 1024).view(np.uint8)
    assert (found_weights(kind, rows, 1024) == known_weights(kind, rows)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_any_rows_of_a_table_are_read_alone_as_among_the_others(kind: str) -> None:
    blocks = torch.from_numpy(random_rows(kind, rows=40, width=768, seed=2))
    whole = unpacked(blocks, kind, 768)
    for part in (slice(7, 8), slice(3, 40, 5), torch.tensor([39, 0, 7, 7])):
        assert torch.equal(unpacked(blocks[part], kind, 768), whole[part])
    single = torch.cat([unpacked(row[None], kind, 768) for row in blocks])
    assert torch.equal(single, whole)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def files(folder: Path) -> Callable[[str], TinyFile]:
    """A function that writes a file for each kind of matrices, once; "mixed" has a different kind
    for each matrix."""
    known: dict[str, TinyFile] = {}

    def file_of(kind: str) -> TinyFile:
        if kind not in known:
            writing = {}
            if kind == "mixed":
                names = [n for n, p in tiny_model().named_parameters() if p.ndim > 1]
                kinds = itertools.islice(itertools.cycle(KINDS), len(names))
                writing = {"kinds": dict(zip(names, kinds, strict=True))}
            whole = "Q4_K" if kind == "mixed" else kind
            known[kind] = tiny_file(folder, whole, name=kind, writing=writing)
        return known[kind]

    return file_of


def logits_of(engine: Engine, ids: Tensor, widths: list[int]) -> Tensor:
    """The logits [tokens, vocab] of passes of these widths, one after the other."""
    assert engine.name == "compiled"
    return torch.cat([engine.forward(part, len(part)) for part in ids.split(widths)])


EVERY_WIDTH = list(range(1, 14))
TOKENS = sum(EVERY_WIDTH)
ONE_BY_ONE = [1] * 13 + [13] * 6
"""Single tokens come only first: on a busy machine, each pass of several threads takes long."""


CASES = [
    *((kind, "fp32") for kind in [*KINDS, "mixed"]),
    *((kind, "int8") for kind in (*SCALES, "mixed")),
]
ROUNDING = {"fp32": 1e-4, "int8": 0.05}
"""Tolerance, as a share of the largest logit: rounded inputs may differ by one step."""


@pytest.mark.parametrize(("kind", "products"), CASES)
def test_logits_keep_their_bits_and_are_those_of_transformers(
    kind: str,
    products: str,
    files: Callable[[str], TinyFile],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = files(kind)
    pair = load_pair(f"{file.path}+none", products=products)
    ids = torch.randint(pair.vocab, (TOKENS,), generator=torch.Generator().manual_seed(0))
    runs = []
    for threads, widths in ((1, EVERY_WIDTH), (2, EVERY_WIDTH[::-1]), (3, ONE_BY_ONE)):
        # Otherwise one thread would compute so few weights alone.
        monkeypatch.setattr(module, "threads_for", lambda *_, threads=threads: threads)
        engine = make_engine(pair.target, pair.vocab)
        assert engine.threads == threads
        runs.append(logits_of(engine, ids, widths))
    assert all(torch.equal(run, runs[0]) for run in runs)
    # Modules of the mixed file have several dtypes, which torch does not multiply.
    model = pair.target if products == "int8" and kind != "mixed" else file.model
    with torch.inference_mode():
        known = model(ids[None]).logits[0, :, : pair.vocab]
    scale = known.abs().max().item()
    torch.testing.assert_close(runs[0], known, rtol=1e-4, atol=ROUNDING[products] * scale)


# A text of quantised models with so few words that each is written often.

WORDS = 4
PROMPT = [2, 0]
TEXT = 1000  # tokens
SIGNIFICANCE = 1e-4  # failure rate of a right sampler; seeds are fixed, so it never fails


SMALL = {
    "vocab_size": WORDS,
    "initializer_range": 0.08,
    "num_hidden_layers": 1,
    "max_position_embeddings": 1100,
}


def small_file(folder: Path, kind: str, name: str, seed: int) -> TinyFile:
    tokenizer = words(WORDS)
    return tiny_file(folder, kind, name=name, seed=seed, tokenizer=tokenizer, **SMALL)


def fit_of(pair: Pair, target: TinyFile, draft: TinyFile, length: int = TEXT) -> float:
    """The p-value of one long text under the distribution of the target's file."""
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=length)
    with bare_rounds():
        rounds = list(speculate(pair, PROMPT, settings))
    assert {"accepted", "rejected"} <= {token.outcome for r in rounds for token in r.drafted}
    ids = emitted_ids(rounds)
    return text_p_value(target.model, PROMPT, ids, settings, draft.model)


KINDS_OF_PAIRS = [("Q4_K", "Q4_0"), ("Q6_K", "Q5_1")]


@pytest.mark.parametrize("kinds", KINDS_OF_PAIRS, ids="+".join)
def test_a_text_through_quantised_models_follows_the_target(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    target = small_file(tmp_path, kinds[0], "target", seed=0)
    draft = small_file(tmp_path, kinds[1], "draft", seed=1)
    pair = load_pair(f"{target.path}+{draft.path}")
    assert make_engine(pair.target, pair.vocab).name == "compiled"
    assert fit_of(pair, target, draft) > SIGNIFICANCE


def corrects_from_p(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, rng: torch.Generator
) -> Tensor:
    """A wrong verifier: after a rejection it draws from the target instead of the residual."""
    accepted = decide_on_tensors(p, q, drafted, u, rng)[0]
    return torch.stack([accepted, draw(p[accepted], uniforms(1, rng)[0])])


def test_a_wrong_sampler_fails_on_quantised_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = small_file(tmp_path, "Q4_K", "target", seed=0)
    draft = small_file(tmp_path, "Q4_0", "draft", seed=1)
    pair = load_pair(f"{target.path}+{draft.path}")
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: corrects_from_p)
    assert fit_of(pair, target, draft) < SIGNIFICANCE


def test_a_target_whose_minima_are_read_with_the_wrong_sign_fails(tmp_path: Path) -> None:
    """The file is changed as a wrong unpacking would read it: so the test above would notice such a
    fault."""
    target = small_file(tmp_path, "Q4_K", "target", seed=0)
    draft = small_file(tmp_path, "Q4_0", "draft", seed=1)
    header = read_gguf(target.path)
    tensor = header.tensors["blk.0.ffn_down.weight"]
    begin = header.begin + tensor.start
    data = bytearray(target.path.read_bytes())
    for high_byte in range(begin + 3, begin + tensor.bytes, block_size("Q4_K")[1]):
        data[high_byte] ^= 0x80
    target.path.write_bytes(data)
    pair = load_pair(f"{target.path}+{draft.path}")
    assert fit_of(pair, target, draft, length=400) < SIGNIFICANCE

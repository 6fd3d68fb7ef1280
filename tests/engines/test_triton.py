"""Triton's kernels, in Triton's interpreter: the logits of transformers' modules.

The interpreter runs the programs of a kernel one after the other, in NumPy. It tests indices, masks
and the order of sums, but not races between threads or the bits of tensor cores. It truncates where
bf16 rounds, so the models here are in fp32 and fp16.
"""

from __future__ import annotations

import copy
import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bare_rounds import short_texts
from model_families import OWN_PASSES, build
from reference_distribution import continuation_distribution, p_value
from sentences import Sentences
from torch import Tensor, nn
from toy_models import emitted_ids, generated, llama, pair_of, relative

from specviz import Settings, speculate
from specviz.core.engine_choice import make_engine
from specviz.files.few_bits.unpacking import unpacked
from specviz.files.packed import PackedLinear
from specviz.sides.fast_gpu import engine as engines
from specviz.sides.fast_gpu import triton_support
from specviz.sides.fast_gpu.cache import InPlaceCache
from specviz.sides.fast_gpu.triton_support import kernels_refusal
from specviz.sides.fast_gpu.triton_weights import ROWS, packed_matrix

pytest.importorskip("triton", reason="Triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("a GPU compiles these kernels", allow_module_level=True)

from triton.runtime import interpreter

from specviz.sides.fast_gpu import triton_pass as module
from specviz.sides.fast_gpu.triton_pass import TritonPass

VOCAB = 40
CAPACITY = 64
CHUNK = 16
IDS = torch.arange(CAPACITY) * 7 % VOCAB


@pytest.fixture(scope="module", autouse=True)
def quick_interpreter() -> Iterator[None]:
    """Triton's language is replaced once for each module of functions, not at each call of one, and
    no sum of indices is looked at for overflow, which toys are too small for: both take half of the
    time."""
    replace_language = interpreter._patch_lang
    scopes: dict[str, Any] = {}
    left_replaced = SimpleNamespace(restore=lambda: None)

    def replace_once(function: Any) -> Any:
        if function.__module__ not in scopes:
            scopes[function.__module__] = replace_language(function)
        return left_replaced

    options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", replace_once)
        patch.setattr(interpreter.interpreter_builder, "options", options)
        yield
    for scope in reversed(scopes.values()):
        if scope is not None:  # older versions of Triton do not undo it either
            scope.restore()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use short chunks and wide tiles: a tiny cache has several chunks, a tiny model few tiles."""
    monkeypatch.setattr(module, "CHUNK", CHUNK)
    monkeypatch.setattr(module, "FP32_CHUNK", CHUNK)
    monkeypatch.setattr(module, "PROGRAMS", 1)


def family(kind: str, **changes: Any) -> Any:
    """A model of one layer with non-zero biases."""
    model = build(kind, **{"num_hidden_layers": 1, **changes})
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
        if "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def cache_of(model: Any, *, kernels: bool = True, capacity: int = CAPACITY) -> InPlaceCache:
    return InPlaceCache(model, VOCAB, capacity, None, TritonPass(model) if kernels else None)


@torch.inference_mode()
def logits(cache: InPlaceCache, begin: int, end: int, layers: int | None = None) -> Tensor:
    """The logits of a pass over `IDS` from `begin` to `end`."""
    return cache.logits(IDS[begin:end], torch.arange(begin, end), end - begin, layers)


def assert_same_logits(model: Any, *passes: tuple[int, int], tolerance: float = 1e-4) -> None:
    kernels = cache_of(model)
    modules = cache_of(model, kernels=False)
    for begin, end in passes:
        expected = logits(modules, begin, end)
        found = logits(kernels, begin, end)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


# The numbers


@pytest.mark.parametrize("kind", OWN_PASSES)
def test_logits_are_those_of_the_modules(kind: str):
    # Passes up to the end of a chunk, past it, and again after a rollback.
    assert_same_logits(family(kind), (0, 13), (13, 17), (14, 15))


def test_layers_follow_each_other_over_a_long_prompt():
    model = family("qwen 2", num_hidden_layers=2)
    # The model's modules read the prompt.
    assert_same_logits(model, (0, 33), (33, 34), (34, 40))


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (3, 1), (4, 2)])
def test_heads_that_share_keys(heads: int, kv_heads: int):
    model = family(
        "llama", hidden_size=16 * heads, num_attention_heads=heads, num_key_value_heads=kv_heads
    )
    assert_same_logits(model.half(), (0, 16), (16, 18), tolerance=0.02)


def test_a_tied_output_layer_and_half_precision():
    model = family("qwen 3", tie_word_embeddings=True, initializer_range=0.1).half()
    assert_same_logits(model, (0, 5), (5, 6), tolerance=0.02)


def test_first_layers_alone():
    model = family("llama", num_hidden_layers=2)
    found = logits(cache_of(model), 0, 4, layers=1)
    expected = logits(cache_of(model, kernels=False), 0, 4, layers=1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_the_last_rows_alone_as_a_draft_reads_them():
    cache = cache_of(family("llama"))
    positions = torch.arange(3)
    all_rows = cache.logits(IDS[:3], positions, 3)
    assert torch.equal(cache.logits(IDS[:3], positions, 2), all_rows[1:])


def test_programs_that_share_the_inputs_of_a_product(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PROGRAMS", 12)
    monkeypatch.setattr(module, "MAX_BLOCK", 16)
    model = family("llama", hidden_size=48, intermediate_size=208)
    made = TritonPass(model)
    splits = {call.sizes["SPLITS"] for call in made.compile_calls(16) if "SPLITS" in call.sizes}
    assert splits == {2, 4}, "of 4 and of 13 steps"
    assert_same_logits(model, (0, 3), (3, 4))


# Bits


def test_a_row_has_the_same_bits_in_every_width():
    model = family("qwen 2").half()
    first = 10  # inside the first chunk, so that wider passes reach the second
    cache = cache_of(model)
    logits(cache, 0, first)
    together = logits(cache, first, first + ROWS)
    keys = cache.layers[0].keys.clone()
    for width in range(1, ROWS):
        assert torch.equal(logits(cache, first, first + width), together[:width]), width
    # Each token alone, in the first row, as for a draft or the baseline.
    for row in range(5, ROWS, 5):
        alone = logits(cache, first + row, first + row + 1)
        assert torch.equal(alone[0], together[row]), row
    assert torch.equal(cache.layers[0].keys, keys), "the same tokens leave the same keys"


def test_neither_the_capacity_nor_what_was_there_before_changes_a_bit():
    model = family("llama")
    short = cache_of(model, capacity=32)
    long = cache_of(model, capacity=CAPACITY)
    logits(long, 0, 1)
    with torch.inference_mode():
        for layer in long.layers:
            layer.keys.fill_(torch.nan)
            layer.values.fill_(torch.nan)
    for begin, end in [(0, 14), (14, 18)]:
        assert torch.equal(logits(short, begin, end), logits(long, begin, end))


@torch.inference_mode()
def test_dead_rows_leave_no_trace():
    cache = cache_of(family("llama"))
    logits(cache, 0, 5)
    alive = cache.logits(IDS[5:7], torch.tensor([5, 6]), 2)
    keys = cache.layers[0].keys.clone()
    with_dead = cache.logits(IDS[5:9], torch.tensor([5, 6, -1, CAPACITY]), 4)
    assert torch.equal(with_dead[:2], alive)
    assert torch.equal(cache.layers[0].keys, keys)


# Blocks of GGUF files

GGML_BYTES = {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_K": (256, 144)}
"""The number of weights and bytes of a block."""


def random_blocks(packed_as: str, outputs: int, inputs: int) -> Tensor:
    """Blocks of random codes with finite scales: uint8 [outputs, bytes of a row]."""
    weights, size = GGML_BYTES[packed_as]
    generator = np.random.default_rng(outputs)
    blocks = generator.integers(0, 256, (outputs, inputs // weights, size), dtype=np.uint8)
    count = 2 if packed_as == "Q4_K" else 1
    scales = generator.uniform(-0.004, 0.004, (*blocks.shape[:2], count)).astype(np.float16)
    blocks[..., : 2 * count] = scales.view(np.uint8)
    return torch.from_numpy(blocks.reshape(outputs, -1))


@pytest.mark.parametrize("packed_as", GGML_BYTES)
def test_blocks_give_the_bits_of_unpacked_weights(packed_as: str):
    width = max(64, GGML_BYTES[packed_as][0])
    sizes = {"hidden_size": width, "intermediate_size": width, "head_dim": width // 2}
    model = family("qwen 2", **sizes).half()
    packed = copy.deepcopy(model)
    for name, linear in list(model.named_modules()):
        if isinstance(linear, nn.Linear):
            blocks = random_blocks(packed_as, *linear.weight.shape)
            linear.weight.data = unpacked(blocks, packed_as, linear.in_features).half()
            weight = nn.Parameter(blocks, requires_grad=False)
            parent, _, attribute = name.rpartition(".")
            layer = PackedLinear(weight, packed_as, linear.in_features, linear.bias)
            setattr(packed.get_submodule(parent), attribute, layer)
    of_blocks = cache_of(packed)
    of_numbers = cache_of(model)
    found = logits(of_blocks, 0, 5)
    assert torch.equal(found, logits(of_numbers, 0, 5))
    assert found.std() > 0.05, "not all the same"


def test_blocks_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="Q6_K"):
        packed_matrix(torch.zeros(1, 210, dtype=torch.uint8), "Q6_K", 256)


# Choice of kernels


@pytest.fixture
def static(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the static form, and treat the host as a GPU that Triton supports."""
    monkeypatch.setenv("SPECVIZ_FORM", "static")
    monkeypatch.setattr("specviz.sides.fast_gpu.cache.SMALLEST", CHUNK)
    monkeypatch.setattr(triton_support, "device_refusal", lambda device: None)
    yield
    engines._pools.clear()


TRITON = "static, Triton's kernels"


def form(model: Any) -> str:
    """The form of a run that begins now."""
    return make_engine(model, VOCAB).name


def compiled(model: Any) -> Any:
    """Run a model once, wait until its kernels are compiled, and return it."""
    gc.collect()  # otherwise an engine of an earlier run would be in use
    make_engine(model, model.config.vocab_size)
    engines._pools[model].compilation.wait()
    return model


@pytest.mark.usefixtures(static.__name__)
def test_kernels_come_into_use_between_two_runs(monkeypatch: pytest.MonkeyPatch):
    model = family("llama")
    may_end = threading.Event()
    compile_kernels = triton_support.compiled_pass
    monkeypatch.setattr(
        triton_support, "compiled_pass", lambda of: may_end.wait(9) and compile_kernels(of)
    )
    first = make_engine(model, VOCAB)
    assert first.name == "static", "the first run does not wait"
    before = first.reserve(CHUNK)
    assert before.triton_pass is None, "its programs run torch's kernels"
    pool = engines._pools[model]
    assert pool.triton_refusal == triton_support.COMPILING
    may_end.set()
    pool.compilation.wait()
    assert form(model) == "static", "the other lane of a race that began without them"
    del first
    assert form(model) == TRITON
    assert pool.triton_refusal is None
    pool.give_back(before)  # an older engine may end late
    assert make_engine(model, VOCAB).reserve(CHUNK).triton_pass is pool.triton_pass is not None


@pytest.mark.usefixtures(static.__name__)
@pytest.mark.filterwarnings("error:the static form")
def test_kernels_that_fail_their_trial_are_not_used(monkeypatch: pytest.MonkeyPatch):
    compile_kernels = triton_support.compiled_pass

    def with_another_scale(model: Any) -> TritonPass:
        made = compile_kernels(model)
        made._scale *= 1.5
        return made

    for failing, reason in [
        (with_another_scale, "it gave different logits"),
        (lambda model: module.kernels.nothing, "nothing"),
    ]:
        monkeypatch.setattr(triton_support, "compiled_pass", failing)
        model = compiled(family("llama"))
        assert form(model) == "static"
        assert reason in engines._pools[model].triton_refusal


@pytest.mark.usefixtures(static.__name__)
def test_what_cannot_be_compiled_runs_without(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    model = family("llama", intermediate_size=40)
    assert form(compiled(model)) == "static"
    sentences(engines._pools[model].triton_refusal)


def test_slower_kernels_are_not_used(sentences: Sentences):
    assert engines._slower(0.001, 0.002) is None
    sentences(engines._slower(0.002, 0.001))


def test_a_refusal_says_why(monkeypatch: pytest.MonkeyPatch, sentences: Sentences):
    model = family("llama")
    sentences(kernels_refusal(model))
    sentences(kernels_refusal(build("gemma")))
    sentences(kernels_refusal(copy.deepcopy(model).double()))
    with monkeypatch.context() as patched:
        patched.setattr(triton_support, "find_spec", lambda name: None)
        sentences(kernels_refusal(model))
    old = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    sentences(triton_support.device_refusal(old))
    monkeypatch.setattr(torch.version, "hip", "7.0")
    sentences(triton_support.device_refusal(old))
    monkeypatch.setenv("SPECVIZ_KERNELS", "torch")
    sentences(kernels_refusal(model))


# Texts


class Remembered:
    """Compute a pass once for each state of the cache: the interpreter is slow, and many short
    texts share few beginnings."""

    def __init__(self, computed: TritonPass) -> None:
        self._computed = computed
        self._known: dict[Any, Any] = {}

    def logits(self, ids: Tensor, positions: Tensor, keep: int, layers: Any, depth: Any) -> Tensor:
        end = int(positions[-1]) + 1
        memory = [tensor for layer in layers for tensor in self._memory(layer)]
        before = [tensor[:, :, : int(positions[0])].numpy().tobytes() for tensor in memory]
        key = (tuple(ids.tolist()), tuple(positions.tolist()), keep, *before)
        if key not in self._known:
            found = self._computed.logits(ids, positions, keep, layers, depth)
            memory = [tensor for layer in layers for tensor in self._memory(layer)]
            written = [tensor[:, :, :end].clone() for tensor in memory]
            self._known[key] = (found, written)
        found, written = self._known[key]
        self._computed._initialize(layers)
        for tensor, part in zip(memory, written, strict=False):
            tensor[:, :, :end] = part
        return found.clone()

    @staticmethod
    def _memory(layer: Any) -> tuple[Tensor, ...]:
        return (layer.keys, layer.values) if layer.is_initialized else ()


@pytest.fixture
def tiny_pair(static: None) -> Any:
    """A target and a draft with Triton's kernels, whose passes are remembered."""
    target = llama(3, seed=7)  # few words have few beginnings
    pair = pair_of(target, relative(target, noise=0.5))
    for model in (pair.target, pair.draft):
        compiled(model)
        assert make_engine(model, 3).name == TRITON
        pool = engines._pools[model]
        pool.triton_pass = Remembered(pool.triton_pass)
    gc.collect()
    return pair


def test_texts_follow_the_target(tiny_pair: Any):
    prompt = [2, 0]
    greedy = Settings(gamma=2, max_new_tokens=5)
    assert emitted_ids(speculate(tiny_pair, prompt, greedy)) == generated(
        tiny_pair.target, prompt, 5
    )

    settings = Settings(gamma=2, temperature=1.0, max_new_tokens=2)
    # In 9 of 10 simulations, 200 samples expose the other temperature below.
    samples = list(short_texts(tiny_pair, prompt, settings, count=300, shown=2))
    law = continuation_distribution(tiny_pair.target, prompt, 2, settings)
    assert p_value(samples, law) > 1e-4
    other = replace(settings, temperature=0.6)
    assert p_value(samples, continuation_distribution(tiny_pair.target, prompt, 2, other)) < 1e-4

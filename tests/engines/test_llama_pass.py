"""Short passes of the Llama family: the logits of transformers' modules, with a third of the
kernels.

They run here with the caches of the static form; tests/engines/test_cuda.py captures them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from model_families import OWN_PASSES, build
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaForCausalLM

from specviz.core.layers import first_layers
from specviz.core.llama_layer import LINEARS, llama_norms, llama_sizes
from specviz.sides.fast_gpu.cache import InPlaceCache
from specviz.sides.fast_gpu.llama_pass import MAX_TOKENS, LlamaPass, llama_pass

VOCAB = 40
IDS = torch.arange(2 * MAX_TOKENS) * 7 % VOCAB
# Operations of torch that compute nothing.
VIEWS = {
    "alias",
    "chunk",
    "reshape",
    "select",
    "slice",
    "split_with_sizes",
    "t",
    "transpose",
    "unsqueeze",
    "view",
}


def caches(model: Any) -> tuple[InPlaceCache, InPlaceCache]:
    """A cache for short passes, and one for the model's own modules."""
    short = llama_pass(model)
    assert short is not None
    return InPlaceCache(model, VOCAB, 128, short), InPlaceCache(model, VOCAB, 128)


@torch.inference_mode()
def logits(cache: InPlaceCache, begin: int, end: int, layers: int | None = None) -> torch.Tensor:
    """The logits of a pass over `IDS` from `begin` to `end`."""
    return cache.logits(IDS[begin:end], torch.arange(begin, end), end - begin, layers)


@pytest.mark.parametrize("kind", OWN_PASSES)
def test_logits_are_those_of_the_modules(kind: str):
    model = build(kind, num_key_value_heads=1, num_attention_heads=2)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # initially 0
            torch.nn.init.normal_(parameter)
    short, modules = caches(model)
    # One pass over a prompt, then rounds of several widths, one of which is rolled back.
    for begin, end in [(0, 40), (40, 41), (41, 47), (43, 44), (44, 44 + MAX_TOKENS - 24)]:
        torch.testing.assert_close(
            logits(short, begin, end), logits(modules, begin, end), atol=1e-4, rtol=1e-4
        )


def test_heads_that_share_nothing_and_heads_that_share_one_key():
    for heads in (1, 2, 4):
        model = build("llama", num_attention_heads=4, num_key_value_heads=heads, head_dim=32)
        short, modules = caches(model)
        for begin, end in [(0, 5), (5, 6)]:
            torch.testing.assert_close(
                logits(short, begin, end), logits(modules, begin, end), atol=1e-4, rtol=1e-4
            )


def test_first_layers_alone():
    model = build("llama")
    short, _ = caches(model)
    expected = first_layers(model, 1)(input_ids=IDS[None, :9], use_cache=False).logits[0]
    torch.testing.assert_close(logits(short, 0, 9, layers=1), expected, atol=1e-4, rtol=1e-4)


def test_modules_run_long_passes_alone(monkeypatch: pytest.MonkeyPatch):
    model = build("llama")
    short, _ = caches(model)
    with monkeypatch.context() as refusing:
        refusing.setattr(model, "forward", None)
        logits(short, 0, MAX_TOKENS)
    monkeypatch.setattr(LlamaPass, "logits", None)
    logits(short, 0, MAX_TOKENS + 1)


class Kernels(TorchDispatchMode):
    """Count the operations that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        self.count += operation._opname not in VIEWS
        return operation(*args, **(kwargs or {}))


def kernels_of_a_layer(which: int) -> int:
    """The kernels that one more layer adds to a one-token pass. which: index into `caches`."""
    counts = []
    for depth in (2, 3):
        model = build("llama", num_hidden_layers=depth)
        cache = caches(model)[which]
        logits(cache, 0, 1)
        with Kernels() as kernels:
            logits(cache, 1, 2)
        counts.append(kernels.count)
    return counts[1] - counts[0]


def test_a_layer_takes_a_third_of_the_kernels():
    """Each kernel takes a few microseconds on a GPU, however little it computes."""
    short, modules = (kernels_of_a_layer(which) for which in (0, 1))
    assert short <= 14
    assert modules >= 2.5 * short


# Weights


@pytest.mark.parametrize("kind", OWN_PASSES)
def test_a_layer_has_the_tensors_of_its_description(kind: str):
    model = build(kind)
    sizes = llama_sizes(model.config)
    described: dict[str, tuple[int, ...]] = {}
    for linear in LINEARS:
        described[f"{linear.module}.weight"] = linear.shape(sizes)
        if linear.has_bias(sizes):
            described[f"{linear.module}.bias"] = linear.shape(sizes)[:1]
    for norm in llama_norms(sizes):
        described[f"{norm.module}.weight"] = norm.shape(sizes)
    tensors = model.model.layers[-1].state_dict()
    assert described == {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def test_parameters_keep_their_values_and_are_read_in_place():
    model = build("qwen 2")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    short, modules = caches(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        for parameter in model.model.layers[0].parameters():
            parameter.mul_(1.25)
    changed = logits(modules, 0, 5)
    torch.testing.assert_close(logits(short, 0, 5), changed, atol=1e-4, rtol=1e-4)
    model.load_state_dict(before)
    assert not torch.allclose(logits(short, 0, 5), changed)


def test_weights_are_joined_once_also_by_several_threads():
    model = build("qwen 2")
    attention = model.model.layers[0].self_attn
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: llama_pass(model), range(8)))
    weights = [getattr(attention, f"{name}_proj").weight for name in "qkv"]
    addresses = [weight.data_ptr() for weight in weights]
    ends = [weight.data_ptr() + weight.nbytes for weight in weights]
    assert addresses[1:] == ends[:-1]
    assert weights[0].untyped_storage().nbytes() == sum(weight.nbytes for weight in weights)
    assert llama_pass(model) is not None
    assert addresses == [weight.data_ptr() for weight in weights]


def test_a_model_with_joined_weights_is_copied_and_saved_as_any_other(tmp_path: Path):
    model = build("qwen 2")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert llama_pass(model) is not None
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.model.layers[0].self_attn.k_proj.weight.zero_()
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() <= before.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in saved.items())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class Louder(LlamaForCausalLM):
    """A subclass, which may compute anything."""


def test_what_computes_something_else_has_no_short_pass():
    plain = build("llama")
    assert llama_pass(plain) is not None
    assert llama_pass(Louder(plain.config)) is None
    hooked = build("llama")
    hooked.model.layers[0].mlp.register_forward_hook(lambda *_: None)
    assert llama_pass(hooked) is None
    replaced = build("llama")
    replaced.model.norm.forward = lambda states: states
    assert llama_pass(replaced) is None
    packed = build("llama")
    packed.model.layers[0].mlp.up_proj.packed_as = "Q4_0"
    assert llama_pass(packed) is None
    assert llama_pass(build("llama", hidden_act="gelu")) is None
    for kind in ("gemma", "olmo 2", "mixtral", "gpt 2", "mistral, sliding", "llama, dynamic rope"):
        assert llama_pass(build(kind)) is None, kind

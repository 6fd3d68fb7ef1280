"""Compare GGUF files with llama.cpp: each architecture, with each key off its default, gives the
same next token or is refused by name. Files that llama.cpp refuses are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentences import Sentences

pytest.importorskip("gguf", reason="the package gguf is not installed")

from gguf_models import Described, described, write_described
from llama_oracle import LlamaOracle

from specviz import load_pair
from specviz.base.errors import PairError
from specviz.core.engine_choice import make_engine
from specviz.core.model_facts import text_config
from specviz.files import metadata
from specviz.files.gguf.keys import ARCHITECTURES, READ
from specviz.files.metadata import configured_caches
from specviz.pairs.doctor import examine

CLOSE = 1e-4  # nats
IDS = [int(token_id) for token_id in np.random.default_rng(3).integers(3, 300, 40)]
IN_PLACE = ("llama", "qwen2", "qwen3")
KNOWN = [architecture for architecture in ARCHITECTURES if architecture != "mistral"]
"""llama.cpp has no architecture named mistral: Mistral's files use llama."""

SHORT = np.linspace(1, 1.5, 16, dtype=np.float32)
LONG = np.linspace(1.2, 6, 16, dtype=np.float32)
FACTORS = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))


@dataclass
class Case:
    """A model with changed keys or tensors; None removes one."""

    architecture: str
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def model(self) -> Described:
        return described(self.architecture, **self.sizes)

    def written(self, folder: Path) -> Path:
        return write_described(folder / "model.gguf", self.model, self.keys, self.tensors)


def without(architecture: str, part: str) -> dict[str, None]:
    """Remove the tensors whose names contain `part`."""
    return {name: None for name in described(architecture).tensors if part in name}


def in_both_layers(name: str, shape: tuple[int, ...], mean: float = 1.0) -> dict[str, Any]:
    """A tensor with bf16 values in each of two layers."""
    steps = np.random.default_rng(7).integers(-16, 17, shape)
    values = (mean + steps / 32).astype(np.float32)
    return {f"blk.{index}.{name}": values for index in (0, 1)}


def scaled(architecture: str) -> dict[str, Case]:
    """Cases with each kind of position scaling that llama.cpp reads."""
    cases = {
        "a factor without a type": {"rope.scaling.factor": 4.0},
        "the older name of the factor": {"rope.scale_linear": 4.0},
        "both names": {"rope.scale_linear": 4.0, "rope.scaling.factor": 2.0},
        "another base": {"rope.freq_base": 500.0},
        "no base": {"rope.freq_base": None},
    }
    return {f"{architecture}, {name}": Case(architecture, keys) for name, keys in cases.items()}


SAME = {
    **{architecture: Case(architecture) for architecture in KNOWN},
    **scaled("llama"),
    **scaled("gemma3"),
    **scaled("stablelm"),
    "llama, YaRN": Case("llama", YARN),
    "llama, YaRN without its context": Case(
        "llama", {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    ),
    "qwen2, YaRN with a factor of attention": Case(
        "qwen2", {**YARN, "rope.scaling.attn_factor": 1.3}
    ),
    "llama, no scaling": Case("llama", {"rope.scaling.type": "none", "rope.scaling.factor": 2.0}),
    "llama, factors of frequencies": Case("llama", tensors={"rope_freqs.weight": LONG}),
    "llama, factors of frequencies and YaRN": Case("llama", YARN, {"rope_freqs.weight": LONG}),
    "llama, LongRoPE": Case(
        "llama",
        {
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": 32,
            "rope.scaling.attn_factor": 1.2,
        },
        FACTORS,
    ),
    "llama, wide heads": Case("llama", sizes={"head": 64}),
    "llama, heads of each layer": Case("llama", {"attention.head_count_kv": [1, 1]}),
    "llama, another epsilon": Case("llama", {"attention.layer_norm_rms_epsilon": 0.3}),
    "llama, all biases of attention": Case(
        "llama",
        tensors={
            **in_both_layers("attn_q.bias", (64,), 0),
            **in_both_layers("attn_k.bias", (32,), 0),
            **in_both_layers("attn_v.bias", (32,), 0),
            **in_both_layers("attn_output.bias", (64,), 0),
        },
    ),
    "qwen3, tied": Case("qwen3", tensors={"output.weight": None}),
    "gpt2, an output layer of its own": Case(
        "gpt2", tensors={"output.weight": described("gpt2", seed=5).tensors["token_embd.weight"]}
    ),
    "phi3, a part of each head": Case("phi3", {"rope.dimension_count": 12}),
    "phi3, factors for short contexts": Case(
        "phi3",
        {"rope.scaling.original_context_length": 4096, "rope.scaling.attn_factor": 1.19},
        FACTORS,
    ),
    "phi3, factors for long contexts": Case(
        "phi3",
        {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.19},
        FACTORS,
    ),
    "phi3, factors without one of attention": Case(
        "phi3", {"rope.scaling.original_context_length": 32}, FACTORS
    ),
    "phi3, factors for a part of each head": Case(
        "phi3",
        {"rope.scaling.original_context_length": 32, "rope.dimension_count": 12},
        {name: factors[:6] for name, factors in FACTORS.items()},
    ),
    "phi3, a window that llama.cpp has not": Case("phi3", {"attention.sliding_window": 8}),
    "stablelm, a part of each head": Case("stablelm", {"rope.dimension_count": 4}),
    "stablelm, parallel": Case("stablelm", tensors=without("stablelm", "ffn_norm")),
    "stablelm, norms of heads": Case(
        "stablelm",
        {"use_parallel_residual": True},
        {
            **without("stablelm", "ffn_norm"),
            **in_both_layers("attn_q_norm.weight", (2, 32)),
            **in_both_layers("attn_k_norm.weight", (1, 32)),
        },
    ),
    "gemma2, a window": Case("gemma2", {"attention.sliding_window": 8}),
    "gemma2, another period": Case(
        "gemma2",
        {"attention.sliding_window": 8, "attention.sliding_window_pattern": 3},
        sizes={"layers": 4},
    ),
    "gemma2, windows by layer": Case(
        "gemma2",
        {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, True, False]},
        sizes={"layers": 3},
    ),
    "gemma2, caps": Case("gemma2", {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0}),
    "gemma2, the scale of 27B": Case("gemma2", sizes={"layers": 46, "heads": 4, "key_heads": 2}),
    "gemma3, a window": Case(
        "gemma3",
        {"attention.sliding_window": 8, "rope.freq_base": 1e6, "rope.scaling.factor": 8.0},
        sizes={"layers": 7},
    ),
    "gemma3, another base of windows": Case(
        "gemma3", {"attention.sliding_window": 8, "rope.freq_base_swa": 500.0}
    ),
    "gemma3, a cap": Case("gemma3", {"final_logit_softcapping": 1.0}),
    "gemma3, the scale of 27B": Case("gemma3", sizes={"layers": 62, "heads": 4, "key_heads": 2}),
}


def divergence(theirs: dict[str, float], logits: torch.Tensor) -> float:
    """KL(llama.cpp's next token || ours), in nats."""
    log_p = torch.full(logits.shape, -torch.inf, dtype=torch.float64)
    for token_id, value in theirs.items():
        log_p[int(token_id)] = value
    log_q = torch.log_softmax(logits.double(), -1)
    is_said = log_p > -40
    return float((log_p[is_said].exp() * (log_p - log_q)[is_said]).sum())


@pytest.mark.parametrize("name", SAME)
def test_a_file_computes_what_llama_cpp_computes(
    name: str, tmp_path: Path, oracle: LlamaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a plan of memory reads what a pass without numbers tells of caches.
    monkeypatch.setattr(metadata, "probed_caches", lambda m: configured_caches(text_config(m)))
    case = SAME[name]
    path = case.written(tmp_path)
    theirs = oracle.log_probabilities(path, IDS)
    assert theirs is not None, "llama.cpp refuses it"
    pair = load_pair(f"{path}+none", dtype="float32")
    target: Any = pair.target
    if case.architecture in IN_PLACE and "LongRoPE" not in name:
        in_place = load_pair(f"{path}+none")
        engine = make_engine(in_place.target, in_place.vocab)
        assert engine.name == "compiled"
        logits = engine.forward(torch.tensor(IDS), len(IDS))[-1]
        assert divergence(_known(theirs, in_place.vocab), logits) < CLOSE
    with torch.inference_mode():
        logits = target(input_ids=torch.tensor([IDS])).logits[0, -1]
    assert divergence(theirs, logits) < CLOSE


def _known(theirs: dict[str, float], vocab: int) -> dict[str, float]:
    """The distribution without padding ids of the vocabulary."""
    kept = {token_id: value for token_id, value in theirs.items() if int(token_id) < vocab}
    whole = np.log(np.exp(list(kept.values())).sum())
    return {token_id: value - whole for token_id, value in kept.items()}


def test_factors_of_frequencies_are_kept_where_a_file_is_unpacked(
    tmp_path: Path, oracle: LlamaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("files.gguf.layout", "pairs.models", "sides.fast_cpu.support"):
        monkeypatch.setattr(f"specviz.{module}.has_numba", lambda: False)
    path = SAME["llama, factors of frequencies"].written(tmp_path)
    theirs = oracle.log_probabilities(path, IDS)
    target: Any = load_pair(f"{path}+none").target
    assert not hasattr(target, "packed_as")
    with torch.inference_mode():
        logits = target(input_ids=torch.tensor([IDS])).logits[0, -1]
    assert divergence(theirs, logits.float()) < CLOSE


def test_the_cases_set_every_key_that_is_read() -> None:
    """A key need be set only for one architecture, because architectures share the code that reads
    most keys."""
    changed = {key for case in SAME.values() for key in (*case.keys, *case.model.keys)}
    assert {key for keys in READ.values() for key in keys} <= changed


BY_NAME: dict[str, Case] = {
    "a kind of scaling": Case("llama", {"rope.scaling.type": "dynamic"}),
    "a part of a head": Case("llama", {"rope.dimension_count": 8}),
    "a part of a head of qwen3": Case("qwen3", {"rope.dimension_count": 8}),
    "a factor of attention": Case("qwen2", {"rope.scaling.attn_factor": 1.3}),
    "a factor beside LongRoPE": Case("phi3", {"rope.scaling.factor": 4.0}, FACTORS),
    "LongRoPE without factors": Case("phi3", {"rope.scaling.type": "longrope"}),
    "factors without LongRoPE": Case("llama", tensors=FACTORS),
    "factors of one length": Case("phi3", tensors={"rope_factors_long.weight": LONG}),
    "factors of frequencies elsewhere": Case("qwen2", tensors={"rope_freqs.weight": LONG}),
    "YaRN of Phi-3": Case("phi3", YARN),
    "no scaling but in windows": Case(
        "gemma2", {"rope.scaling.type": "none", "rope.scaling.factor": 2.0}
    ),
    "a window of Llama": Case("llama", {"attention.sliding_window": 8}),
    "a cap of Qwen": Case("qwen2", {"attn_logit_softcapping": 1.0}),
    "no cap of Gemma 2": Case("gemma2", {"attn_logit_softcapping": 0.0}),
    "a scale of attention": Case("llama", {"attention.scale": 0.5}),
    "a scale of logits": Case("llama", {"logit_scale": 0.5}),
    "clamped attention": Case("qwen2", {"attention.clamp_kqv": 1.0}),
    "no mask": Case("llama", {"attention.causal": False}),
    "values of another width": Case("llama", {"attention.value_length": 8}),
    "heads of another width": Case("stablelm", {"attention.key_length": 16}),
    "an invented key": Case("llama", {"invented": 2.0}),
    "experts": Case("llama", {"expert_count": 2, "expert_used_count": 1}),
    "experts that no key names": Case(
        "llama", tensors={"blk.0.ffn_up_exps.weight": np.zeros((2, 96, 64), np.float32)}
    ),
    "experts of an architecture that is unpacked": Case(
        "phi3", tensors={"blk.0.ffn_gate_inp.weight": np.zeros((2, 64), np.float32)}
    ),
    "a bias of a middle layer": Case("llama", tensors=in_both_layers("ffn_up.bias", (96,))),
    "a scale of a tensor": Case("llama", tensors=in_both_layers("ffn_up.scale", (1,))),
    "a layer too many": Case("llama", {"block_count": 1}),
    "an output layer of Gemma 2": Case(
        "gemma2", tensors={"output.weight": np.zeros((325, 64), np.float32)}
    ),
    "no output layer of StableLM": Case("stablelm", tensors={"output.weight": None}),
    "no epsilon": Case("llama", {"attention.layer_norm_rms_epsilon": None}),
    "positions of another number": Case("gpt2", {"context_length": 100}),
    **{
        f"a missing part of {architecture}": Case(
            architecture, tensors={"blk.1.ffn_down.weight": None}
        )
        for architecture in KNOWN
    },
}


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_not_understood_is_refused_by_its_name(
    name: str, tmp_path: Path, sentences: Sentences
) -> None:
    path = BY_NAME[name].written(tmp_path)
    with sentences.raises(PairError):
        load_pair(f"{path}+none")
    assert examine(f"{path}+none").verdict == "stop"


def test_keys_without_effect_are_no_reason_to_refuse(tmp_path: Path) -> None:
    keys = {
        "vocab_size": 325,
        "expert_count": 0,
        "attention.causal": True,
        "attention.sliding_window": 4096,
        "logit_scale": 1.0,
        "rope.scaling.finetuned": False,
        "rope.dimension_count": 32,
    }
    path = Case("llama", keys).written(tmp_path)
    assert examine(f"{path}+none").verdict != "stop"
    load_pair(f"{path}+none")


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_each_missing_tensor_is_refused(architecture: str, tmp_path: Path) -> None:
    """Otherwise it would get random weights, and each load would give another model."""
    for name in described(architecture, layers=1).tensors:
        if name == "output.weight":
            continue  # then the embedding table replaces it
        path = Case(architecture, {}, {name: None}, {"layers": 1}).written(tmp_path)
        with pytest.raises(PairError, match=r"lacks weights|fully describe"):
            load_pair(f"{path}+none")


def test_a_name_that_comes_twice_is_refused(tmp_path: Path, sentences: Sentences) -> None:
    path = Case("llama").written(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"blk.1.attn_k.weight", b"blk.0.attn_k.weight"))
    with sentences.raises(PairError):
        load_pair(f"{path}+none")

"""The config of transformers for the model in a GGUF file."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from transformers import AutoConfig

from ...base.errors import PairError
from .header import GgufHeader
from .keys import HeadSizes, Rope, head_sizes, rope_of
from .tokenizer import end_ids_of

GEMMA_2_WINDOW = 4096
GEMMA_2_PERIOD = 2
GEMMA_3_PERIOD = 6
GEMMA_3_LOCAL_THETA = 10_000.0
"""llama.cpp's defaults for files of Gemma without these keys."""

GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}
"""Layers of the models of 27 billion parameters, by which llama.cpp recognises them: their
attention is scaled by the model's width divided by its heads, not by the width of a head."""

MODEL_TYPES = {"gemma3": "gemma3_text"}
"""transformers' names of architectures that it names differently."""


def config_of(header: GgufHeader) -> Any:
    """The config of transformers for the model of a file. Raises `PairError`."""
    architecture = header.architecture
    sizes = _sizes_of(header)
    table = header.tensors.get("token_embd.weight")
    heads = head_sizes(header)
    eps = header.number("attention.layer_norm_rms_epsilon")
    if architecture in LAYER_NORMS:
        eps = header.number("attention.layer_norm_epsilon")
    if table is None or heads is None or eps is None or not 0 < eps < inf:
        raise _undescribed(header)
    pieces = header.values.get("tokenizer.ggml.tokens")
    if isinstance(pieces, list) and len(pieces) != table.shape[0]:
        raise PairError(
            f"{header.path.name} has {len(pieces):,} pieces and {table.shape[0]:,} embeddings: "
            "download it again, or use the model's own repository."
        )
    values = header.values
    fields = {
        **sizes,
        "vocab_size": table.shape[0],
        "tie_word_embeddings": header.tied and architecture != "stablelm",
        "bos_token_id": values.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": end_ids_of(header),
        "pad_token_id": values.get("tokenizer.ggml.padding_token_id"),
    }
    if architecture == "gpt2":
        fields |= _gpt2_fields(header, heads, eps)
    else:
        rope = rope_of(header)
        if rope is None or not all(0 < value < inf for value in (rope.theta, rope.factor)):
            raise _undescribed(header)
        fields["num_key_value_heads"] = heads.key_heads
        fields["head_dim"] = heads.width
        fields["rope_parameters"] = _rope_parameters(rope, heads.width)
        fields |= _MORE_FIELDS[architecture](header, eps)
    model_type = MODEL_TYPES.get(architecture, architecture)
    config = AutoConfig.for_model(model_type, **fields)
    config.dtype = torch.float32
    return config


LAYER_NORMS = ("gpt2", "stablelm")
"""Architectures whose norms subtract a mean."""


def _sizes_of(header: GgufHeader) -> dict[str, Any]:
    """The sizes of a model by their names in transformers' config. Raises `PairError`."""
    number = header.number
    sizes = {
        "hidden_size": number("embedding_length"),
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": number("attention.head_count"),
        "max_position_embeddings": number("context_length"),
    }
    if not all(isinstance(size, int) and size > 0 for size in sizes.values()):
        raise _undescribed(header)
    # A layer has several tensors: a model of a billion of them is not even tried.
    if (sizes["num_hidden_layers"] or 0) > len(header.tensors):
        raise _undescribed(header)
    return sizes


def _undescribed(header: GgufHeader) -> PairError:
    return PairError(
        f"{header.path.name} does not fully describe its model: download it again, or use the "
        "model's own repository."
    )


def _rope_parameters(rope: Rope, head_width: int) -> dict[str, Any]:
    """The rotation as transformers describes it, without factors that tensors hold."""
    kind = rope.kind
    if kind == "longrope":
        kind = "default"
    parameters: dict[str, Any] = {"rope_type": kind, "rope_theta": rope.theta}
    if rope.width != head_width:
        parameters["partial_rotary_factor"] = rope.width / head_width
    if rope.kind in ("linear", "yarn"):
        parameters["factor"] = rope.factor
    if rope.kind == "yarn":
        parameters["original_max_position_embeddings"] = rope.original
        if rope.attention != 1:
            parameters["attention_factor"] = rope.attention * yarn_attention(rope.factor)
    return parameters


def yarn_attention(factor: float) -> float:
    """The factor by which YaRN multiplies cosines and sines."""
    if factor <= 1:
        return 1.0
    logarithm = torch.tensor(factor, dtype=torch.float64).log()
    return 0.1 * float(logarithm) + 1.0


def longrope(header: GgufHeader, short: list[float], long: list[float]) -> dict[str, Any]:
    """The rotation of a file whose tensors hold factors for short and for long contexts."""
    rope = rope_of(header)
    assert rope is not None, "the config has asked for it"
    return {
        "rope_type": "longrope",
        "rope_theta": rope.theta,
        "short_factor": short,
        "long_factor": long,
        "factor": 1.0,
        "original_max_position_embeddings": rope.original,
        "attention_factor": rope.attention,
    }


def _llama_fields(header: GgufHeader, eps: float) -> dict[str, Any]:
    return {"rms_norm_eps": eps, "attention_bias": "blk.0.attn_q.bias" in header.tensors}


def _mistral_fields(header: GgufHeader, eps: float) -> dict[str, Any]:
    window = header.number("attention.sliding_window")
    fields: dict[str, Any] = {"rms_norm_eps": eps, "sliding_window": None}
    if window:
        fields["sliding_window"] = int(window)
    return fields


def _phi3_fields(header: GgufHeader, eps: float) -> dict[str, Any]:
    rope = rope_of(header)
    assert rope is not None, "the config has asked for it"
    return {
        "rms_norm_eps": eps,
        "sliding_window": None,
        "original_max_position_embeddings": rope.original,
    }


def _stablelm_fields(header: GgufHeader, eps: float) -> dict[str, Any]:
    tensors = header.tensors
    return {
        "layer_norm_eps": eps,
        "use_qkv_bias": "blk.0.attn_q.bias" in tensors,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors,
        # transformers' default is a quarter of a head.
        "partial_rotary_factor": 1.0,
    }


def _gemma2_fields(header: GgufHeader, eps: float) -> dict[str, Any]:
    return {
        "rms_norm_eps": eps,
        "query_pre_attn_scalar": _attention_scalar(header),
        "sliding_window": int(_number_or(header, "attention.sliding_window", GEMMA_2_WINDOW)),
        "layer_types": _layer_types(header, GEMMA_2_PERIOD),
        "attn_logit_softcapping": _number_or(header, "attn_logit_softcapping", 50.0),
        "final_logit_softcapping": _number_or(header, "final_logit_softcapping", 30.0),
    }


def _number_or(header: GgufHeader, key: str, default: float) -> float:
    """The number at this key of the architecture, or the default."""
    value = header.number(key)
    if value is None:
        return default
    return value


def _gemma3_fields(header: GgufHeader, eps: float) -> dict[str, Any]:
    number = header.number
    window = number("attention.sliding_window")
    layer_types = _layer_types(header, GEMMA_3_PERIOD)
    if not window:
        layer_types = ["full_attention"] * len(layer_types)
    rope = rope_of(header)
    assert rope is not None, "the config has asked for it"
    return {
        "rms_norm_eps": eps,
        "query_pre_attn_scalar": _attention_scalar(header),
        "sliding_window": int(window or GEMMA_2_WINDOW),
        "layer_types": layer_types,
        "final_logit_softcapping": number("final_logit_softcapping") or None,
        "rope_parameters": {
            "full_attention": _rope_parameters(rope, rope.width),
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": _number_or(header, "rope.freq_base_swa", GEMMA_3_LOCAL_THETA),
            },
        },
    }


def _attention_scalar(header: GgufHeader) -> int:
    """The number whose square root divides attention scores in Gemma."""
    sizes = head_sizes(header)
    assert sizes is not None, "the config has asked for them"
    if header.number("block_count") == GEMMA_27B_LAYERS[header.architecture]:
        return int(header.number("embedding_length") or 0) // sizes.heads
    return sizes.width


def _layer_types(header: GgufHeader, period: int) -> list[str]:
    """The type of each layer: every layer has a window but the last one of each period."""
    layers = int(header.number("block_count") or 0)
    pattern = header.values.get(f"{header.architecture}.attention.sliding_window_pattern", period)
    if isinstance(pattern, list) and len(pattern) == layers:
        has_window = [bool(value) for value in pattern]
    elif isinstance(pattern, int) and not isinstance(pattern, bool):
        has_window = [pattern == 0 or index % pattern < pattern - 1 for index in range(layers)]
    else:
        raise _undescribed(header)
    types = ["full_attention"] * layers
    for index in range(layers):
        if has_window[index]:
            types[index] = "sliding_attention"
    return types


def _gpt2_fields(header: GgufHeader, heads: HeadSizes, eps: float) -> dict[str, Any]:
    if heads.key_heads != heads.heads:
        raise _undescribed(header)
    context = header.number("context_length")
    return {
        "n_embd": header.number("embedding_length"),
        "n_head": heads.heads,
        "n_layer": header.number("block_count"),
        "n_positions": context,
        "n_inner": header.number("feed_forward_length"),
        "layer_norm_epsilon": eps,
    }


_MORE_FIELDS = {
    "llama": _llama_fields,
    "mistral": _mistral_fields,
    "qwen2": lambda _, eps: {"rms_norm_eps": eps},
    "qwen3": _llama_fields,
    "gemma2": _gemma2_fields,
    "gemma3": _gemma3_fields,
    "phi3": _phi3_fields,
    "stablelm": _stablelm_fields,
}
"""Further fields of each architecture: (header, epsilon of norms) -> fields."""

"""The keys of a GGUF header that say how a model computes, and which of them are understood. An
unknown key that may change numbers is refused by its name.

llama.cpp's keys: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-model.cpp and the
files of src/models. This module needs no torch.
"""

from __future__ import annotations

from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import PairError
from .header import GgufHeader, read_gguf

_SIZES = {
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
}
_ROPE = {
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
}
_RMS = {"attention.layer_norm_rms_epsilon"}
_WINDOW = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"}
_LLAMA = _SIZES | _ROPE | _RMS

READ = {
    "llama": _LLAMA,
    "mistral": _LLAMA | {"attention.sliding_window"},
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma2": _LLAMA | _WINDOW | {"attn_logit_softcapping", "final_logit_softcapping"},
    "gemma3": _LLAMA | _WINDOW | {"final_logit_softcapping"},
    "phi3": _LLAMA,
    "gpt2": _SIZES | {"attention.layer_norm_epsilon"},
    "stablelm": _SIZES | _ROPE | {"attention.layer_norm_epsilon"},
}
"""The keys that the config is made from, by architecture."""

ARCHITECTURES = tuple(READ)
"""Architectures of plain causal language models whose files are read."""

_WITHOUT_EFFECT = {
    "vocab_size",  # the table of embeddings has it
    "tensor_data_layout",
    "rope.scaling.finetuned",
    "pooling_type",
}
"""Keys that change no number of a causal language model in any architecture."""

_WITHOUT_EFFECT_IN = {
    # llama.cpp has no window in this architecture either.
    "phi3": {"attention.sliding_window"},
    # The tensors say it: files of StableLM 3B have a wrong value here.
    "stablelm": {"use_parallel_residual"},
}

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "nextn_predict_layers": (0,),
    "leading_dense_block_count": (0,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.scale": (0,),
    "attention.output_scale": (0, 1),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "router_logit_softcapping": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
    "rope.scaling.alpha": (0, 1),
    "rope.scaling.yarn_log_multiplier": (0,),
    "rope.scaling.yarn_attn_factor": (1,),
    "rope.scaling.yarn_beta_fast": (32,),
    "rope.scaling.yarn_beta_slow": (1,),
}
"""Values of unknown keys that change nothing."""


class Rope(NamedTuple):
    """The rotation of queries and keys in a file's model."""

    kind: str  # "default", "linear", "yarn" or "longrope"
    theta: float
    width: int  # rotated numbers of a head
    factor: float  # the scale of positions
    original: int  # the context, in tokens, before scaling
    attention: float  # a factor of cosines and sines besides that of the kind itself


def checked_gguf(path: Path) -> GgufHeader:
    """Read the header of a file whose model is understood. Raises `PairError`."""
    header = read_gguf(path)
    if header.architecture not in READ:
        raise PairError(
            f"{path.name} has the architecture {header.architecture!r}: use one of "
            f"{', '.join(ARCHITECTURES)}."
        )
    check_keys(header)
    return header


def check_keys(header: GgufHeader) -> None:
    """Raise `PairError` for the first unknown key that may change numbers."""
    architecture = header.architecture
    without_effect = _WITHOUT_EFFECT | _WITHOUT_EFFECT_IN.get(architecture, set())
    understood = READ[architecture] | without_effect
    context = header.number("context_length") or 0
    for name, value in header.values.items():
        prefix, _, key = name.partition(".")
        if prefix != architecture or key in understood:
            continue
        if value in _NEUTRAL.get(key, ()):
            continue
        is_wide = key == "attention.sliding_window" and _is_number(value) and value >= context
        if not is_wide:
            raise refused_key(header, key)
    rope = rope_of(header)
    sizes = head_sizes(header)
    if sizes is None:
        return  # `config_of` raises the error for that
    _check_widths(header, sizes)
    if rope is not None:
        _check_rope(header, rope, sizes.width)


def _check_widths(header: GgufHeader, sizes: HeadSizes) -> None:
    """Raise `PairError` for widths of heads that no model of transformers of this architecture
    has."""
    if header.number("attention.value_length") not in (None, sizes.width):
        raise refused_key(header, "attention.value_length")
    has_free_width = header.architecture not in ("gpt2", "phi3", "stablelm")
    total_width = sizes.width * sizes.heads
    if not has_free_width and total_width != header.number("embedding_length"):
        raise refused_key(header, "attention.key_length")


class HeadSizes(NamedTuple):
    """The attention heads of a layer."""

    heads: int
    key_heads: int
    width: int  # numbers of one head


def head_sizes(header: GgufHeader) -> HeadSizes | None:
    """The heads of a layer, or None if the header does not give them."""
    heads = header.number("attention.head_count")
    width = header.number("embedding_length")
    if not _is_size(heads) or not _is_size(width):
        return None
    assert heads is not None and width is not None, "they are sizes"
    key_heads: float | None = heads
    if header.has("attention.head_count_kv"):
        key_heads = header.number("attention.head_count_kv")
    head_width: float | None = width // heads
    if header.has("attention.key_length"):
        head_width = header.number("attention.key_length")
    if not _is_size(key_heads) or not _is_size(head_width):
        return None
    assert key_heads is not None and head_width is not None, "they are sizes"
    return HeadSizes(int(heads), int(key_heads), int(head_width))


def rope_of(header: GgufHeader) -> Rope | None:
    """The rotation of queries and keys; None if the architecture has none, or if the header does
    not give the width of a head. Raises `PairError` for an unknown scaling."""
    sizes = head_sizes(header)
    if sizes is None or "rope.freq_base" not in READ[header.architecture]:
        return None
    number = header.number
    kind, factor = _scaling_of(header)
    context = number("context_length") or 0
    original = number("rope.scaling.original_context_length") or context
    width = number("rope.dimension_count")
    if width is None:
        width = sizes.width
    attention = number("rope.scaling.attn_factor")
    if attention is None:
        attention = 1.0
    theta = 10_000.0
    if header.has("rope.freq_base"):
        theta = number("rope.freq_base") or 0.0
    return Rope(
        kind=kind,
        theta=theta,
        width=int(width),
        factor=float(factor),
        original=int(original),
        attention=float(attention),
    )


def _scaling_of(header: GgufHeader) -> tuple[str, float]:
    """The kind of scaling, in transformers' words, and its factor. Raises `PairError` for an
    unknown kind."""
    kind = header.text(f"{header.architecture}.rope.scaling.type") or "linear"
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise refused_key(header, "rope.scaling.type")
    # The older name of the factor counts where the newer one is missing.
    factor = header.number("rope.scaling.factor")
    if factor is None:
        factor = header.number("rope.scale_linear")
    if not factor or kind == "none":
        factor = 1.0
    if has_long_factors(header) and header.architecture == "phi3":
        return "longrope", factor  # whatever the file says
    if kind in ("yarn", "longrope"):
        return kind, factor
    if factor == 1:
        return "default", factor
    return "linear", factor


def has_long_factors(header: GgufHeader) -> bool:
    """Whether a file has factors of frequencies for short and for long contexts."""
    return LONG_FACTORS in header.tensors and SHORT_FACTORS in header.tensors


LONG_FACTORS = "rope_factors_long.weight"
SHORT_FACTORS = "rope_factors_short.weight"
FREQUENCIES = "rope_freqs.weight"
"""A tensor of factors that slow rotary frequencies down."""


def _check_rope(header: GgufHeader, rope: Rope, head_width: int) -> None:
    """Raise `PairError` for a rotation that no model of transformers has."""
    architecture = header.architecture
    is_partial = architecture in ("phi3", "stablelm") and 0 < rope.width <= head_width
    if rope.width != head_width and (not is_partial or rope.width % 2):
        raise refused_key(header, "rope.dimension_count")
    if not all(isfinite(value) and value > 0 for value in (rope.theta, rope.factor)):
        return  # `config_of` raises the error for that
    _check_scaling(header, rope)
    if architecture == "gemma2":
        _check_gemma2(header, rope)


def _check_scaling(header: GgufHeader, rope: Rope) -> None:
    """Raise `PairError` for a scaling that no model of transformers of this architecture has."""
    architecture = header.architecture
    if rope.kind == "yarn" and architecture in ("gemma2", "gemma3", "phi3"):
        raise refused_key(header, "rope.scaling.type")
    if rope.kind == "linear" and architecture == "phi3":
        raise refused_key(header, _factor_key(header))
    is_off = header.values.get(f"{architecture}.rope.scaling.type") == "none"
    has_factor = header.number(_factor_key(header)) not in (None, 0, 1)
    if architecture == "gemma2" and is_off and has_factor:
        # llama.cpp scales the layers with a window all the same.
        raise refused_key(header, "rope.scaling.type")
    if rope.kind == "longrope":
        _check_longrope(header, rope)
    elif rope.attention != 1 and rope.kind != "yarn":
        raise refused_key(header, "rope.scaling.attn_factor")


def _check_longrope(header: GgufHeader, rope: Rope) -> None:
    if not has_long_factors(header) or header.architecture not in ("llama", "phi3"):
        raise refused_key(header, "rope.scaling.type")
    if rope.factor != 1:
        raise refused_key(header, _factor_key(header))
    if FREQUENCIES in header.tensors:
        raise PairError(
            f"{header.path.name} has both {FREQUENCIES} and {LONG_FACTORS}: use the model's own "
            "repository."
        )


def _check_gemma2(header: GgufHeader, rope: Rope) -> None:
    """Raise `PairError` for numbers that transformers' Gemma 2 does not have."""
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = header.number(key)
        if cap is not None and not 0 < cap < inf:
            raise refused_key(header, key)
    if header.number("rope.freq_base_swa") not in (None, rope.theta):
        raise refused_key(header, "rope.freq_base_swa")


def _factor_key(header: GgufHeader) -> str:
    """The key of the factor that scales positions: the older name if the newer one is missing."""
    if header.has("rope.scaling.factor"):
        return "rope.scaling.factor"
    return "rope.scale_linear"


def refused_key(header: GgufHeader, key: str) -> PairError:
    """The error for a key whose value is not understood."""
    name = f"{header.architecture}.{key}"
    value = repr(header.values.get(name))
    if len(value) > 40:
        value = f"{value[:37]}..."
    return PairError(
        f"{header.path.name} has {name} = {value}, which is not supported here and may change "
        "what the model computes: use the model's own repository."
    )


def unused_tensor(header: GgufHeader, name: str) -> PairError:
    """The error for a tensor that no part of a model uses."""
    return PairError(
        f"{header.path.name} contains {name}, which no part of a {header.architecture} model uses "
        "here: use the model's own repository."
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: float | None) -> bool:
    return isinstance(value, int) and value > 0

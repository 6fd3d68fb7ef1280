"""A model of the Llama architecture as a GGUF file, which llama.cpp reads.

Only `bench --rival` needs it, and with it the package `gguf`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import PairError, SpecvizError
from ..models.pair import logit_width
from .gguf_tokenizer import add_tokenizer

KINDS = ("bf16", "fp32")
"""The types in which matrices may be written; vectors are always fp32."""

# Modules of a layer in transformers: their names in a file
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
ROPE_TYPES = ("default", "linear", "llama3")  # those that only rescale frequencies


def write_gguf(model: Any, tokenizer: Any, path: Path, kind: str, texts: Sequence[str]) -> None:
    """Write `model` with its tokenizer to `path`.

    kind: one of `KINDS`. texts: the file's tokenizer gives them the same ids as `tokenizer`.
    Raises `PairError` if the file format cannot hold this model or tokenizer, and `SpecvizError`
    if the package `gguf` is not installed.
    """
    gguf = _library()
    config = model.config
    _check(model)
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=True)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = model.model.layers[0].self_attn.head_dim
    for add in (writer.add_rope_dimension_count, writer.add_key_length, writer.add_value_length):
        add(head_dim)
    add_tokenizer(writer, gguf.TokenType, tokenizer, logit_width(model), texts)
    types = gguf.GGMLQuantizationType
    matrix = {"bf16": types.BF16, "fp32": types.F32}[kind]
    for name, values in _tensors(model):
        as_type = matrix if values.ndim > 1 else types.F32
        writer.add_tensor(name, gguf.quants.quantize(values, as_type), raw_dtype=as_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _library() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise SpecvizError(
            "a comparison with llama.cpp needs the package gguf: pip install gguf."
        ) from error
    return gguf


def _check(model: Any) -> None:
    rotary = getattr(getattr(model, "model", None), "rotary_emb", None)
    if (
        model.config.model_type != "llama"
        or model.config.hidden_act != "silu"
        or getattr(rotary, "rope_type", None) not in ROPE_TYPES
    ):
        raise PairError(
            f"{type(model).__name__} with this configuration cannot be written as a GGUF file: "
            "choose a pair of the Llama architecture."
        )


def _tensors(model: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every tensor under its name in a file, fp32; tied ones once."""
    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        module, _, kind = name.rpartition(".")
        values = parameter.detach().float().cpu().numpy()
        last = module.rpartition(".")[2]
        if last in heads:
            values = _pairs_adjacent(values, heads[last])
        yield f"{_file_name(module)}.{kind}", values
    factors = _frequency_factors(model)
    if not np.allclose(factors, 1.0, rtol=1e-5):
        yield "rope_freqs.weight", factors


def _file_name(module: str) -> str:
    if module in OUTSIDE:
        return OUTSIDE[module]
    _, _, index, inner = module.split(".", 3)  # "model.layers.0.mlp.up_proj"
    return f"blk.{index}.{LAYER[inner]}"


def _pairs_adjacent(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Outputs of a projection, reordered for a rotation of neighbours.

    transformers rotates output i of a head together with output i + head_dim / 2; llama.cpp, in
    this architecture, outputs 2i and 2i + 1.
    """
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def _frequency_factors(model: Any) -> NDArray[np.float32]:
    """By what each rotation of the plain formula, theta^(-2i / head_dim), is divided."""
    frequencies = model.model.rotary_emb.inv_freq.float().cpu()
    theta, count = model.config.rope_parameters["rope_theta"], len(frequencies)
    plain = theta ** -(torch.arange(count, dtype=torch.float64) / count)
    factors: NDArray[np.float32] = (plain / frequencies).float().numpy()
    return factors

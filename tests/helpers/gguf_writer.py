"""Small models as GGUF files, which llama.cpp reads: how its server gets the built-in pair, and how
tests get files of every kind.

    python tests/helpers/gguf_writer.py FOLDER [bf16]    writes target.gguf and draft.gguf

It needs the package `gguf`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from specviz import load_pair
from specviz.core.model_facts import logit_width

TYPES = {"bf16": GGMLQuantizationType.BF16, "fp32": GGMLQuantizationType.F32}
# llama.cpp's name of the way in which the built-in tokenizer splits texts before merges.
SPLIT = "smollm"
# Modules of a layer in transformers: their names in a file
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

# Where the scales of a block of these kinds lie, fp16: bytes from its begin on. The package `gguf`
# reads such blocks, but makes none.
RANDOM_KINDS = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q3_K": (108,), "IQ4_NL": (0,)}
# Of those that have minima.
MEAN_CODES = {"Q4_K": 7.5, "Q5_K": 15.5}


def write_pair(folder: Path, kind: str = "fp32") -> tuple[Path, Path]:
    """Write the built-in pair to a folder; returns the files of target and draft."""
    pair, files = load_pair("builtin"), (folder / "target.gguf", folder / "draft.gguf")
    for model, file in zip((pair.target, pair.draft), files, strict=True):
        write_gguf(model, pair.tokenizer, file, kind)
    return files


def write_gguf(model: Any, tokenizer: Any, path: Path, kind: str = "fp32") -> None:
    """Write a Llama without scaled positions, and its byte-level BPE, to `path`.

    kind: of its matrices, one of `TYPES`; vectors are always fp32.
    """
    as_type = TYPES[kind]
    matrices = {
        name: gguf.quants.quantize(values, as_type)
        for name, values in _parameters(model)
        if values.ndim > 1
    }
    _write(model, tokenizer, path, matrices, dict.fromkeys(matrices, as_type))


def write_packed(
    model: Any,
    tokenizer: Any,
    path: Path,
    kind: str,
    *,
    kinds: Mapping[str, str] | None = None,
    split: str = SPLIT,
    fields: Mapping[str, Any] | None = None,
    rope_factors: NDArray[np.float32] | None = None,
    without: str = "",
    seed: int = 0,
) -> None:
    """Write a model of an architecture of `tiny_files` with matrices of a kind, such as "Q4_K", and
    make `model` the model of that file: its matrices become the numbers that the package `gguf`
    reads there.

    Kinds that the package cannot make get random blocks of the same spread. kinds: other kinds, by
    names in transformers. split, fields: of the tokenizer, and other fields, by their keys.
    rope_factors: fp32 [head_dim / 2], by which the file divides rotary frequencies. without: a
    tensor that is left out, by its name in transformers.
    """
    generator = np.random.default_rng(seed)
    matrices = {}
    types = {}
    for name, values in _parameters(model):
        if values.ndim == 1:
            continue
        own = (kinds or {}).get(name, kind)
        types[name] = GGMLQuantizationType[own]
        matrices[name] = blocks_of(values, own, generator)
        numbers = gguf.quants.dequantize(matrices[name], types[name]).reshape(values.shape)
        with torch.no_grad():
            model.get_parameter(name).copy_(torch.from_numpy(numbers))
    _write(model, tokenizer, path, matrices, types, split, fields or {}, rope_factors, without)


def blocks_of(
    values: NDArray[np.float32], kind: str, generator: np.random.Generator
) -> NDArray[Any]:
    """Rows of numbers in a kind; of `RANDOM_KINDS` random numbers of about the same spread."""
    if kind not in RANDOM_KINDS:
        return gguf.quants.quantize(values, GGMLQuantizationType[kind])
    weights, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random_blocks(kind, values.size // weights, generator)
    spread = gguf.quants.dequantize(blocks, GGMLQuantizationType[kind]).std()
    for place in RANDOM_KINDS[kind]:
        scales = blocks[:, place : place + 2].copy().view(np.float16)
        fitting = (scales * (values.std() / spread)).astype(np.float16)
        blocks[:, place : place + 2] = fitting.view(np.uint8)
    return blocks.reshape(len(values), values.shape[1] // weights * size)


def random_blocks(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Random blocks of one of `RANDOM_KINDS`, uint8 [count, bytes], whose numbers lie around 0: any
    bytes are codes."""
    _, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = generator.integers(0, 256, (count, size), np.uint8)
    scales = generator.normal(1.0, 0.2, count)
    for place in RANDOM_KINDS[kind]:
        # The second, of minima, is as large as the mean of the codes.
        factor = MEAN_CODES[kind] if place == 2 else 1.0
        halves = (scales * factor).astype(np.float16)
        blocks[:, place : place + 2] = halves[:, None].view(np.uint8)
    if kind in MEAN_CODES:
        # Codes of minima that differ little from those of scales.
        blocks[:, 8:12] = blocks[:, 4:8] ^ (blocks[:, 8:12] & 3)
        low = blocks[:, 12:16] & 15
        blocks[:, 12:16] = low | (low ^ (blocks[:, 12:16] >> 4 & 3)) << 4
    return blocks


def _write(
    model: Any,
    tokenizer: Any,
    path: Path,
    matrices: Mapping[str, NDArray[Any]],
    types: Mapping[str, GGMLQuantizationType],
    split: str = SPLIT,
    fields: Mapping[str, Any] | None = None,
    rope_factors: NDArray[np.float32] | None = None,
    without: str = "",
) -> None:
    config, layer = model.config, model.model.layers[0].self_attn
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture, use_temp_file=True)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    partial = config.rope_parameters.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(layer.head_dim * partial))
    for add in (writer.add_key_length, writer.add_value_length):
        add(layer.head_dim)
    _add_tokenizer(writer, tokenizer, logit_width(model), split)
    for key, value in (fields or {}).items():
        _add_field(writer, key, value)
    # llama.cpp rotates neighbours in this architecture alone.
    heads = {}
    if architecture == "llama":
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, values in _parameters(model):
        if name == without:
            continue
        module, _, role = name.rpartition(".")
        last = module.rpartition(".")[2]
        data = matrices.get(name, values)
        if last in heads:
            data = _pairs_adjacent(data, heads[last])
        raw_type = types.get(name, GGMLQuantizationType.F32)
        writer.add_tensor(f"{_file_name(module)}.{role}", data, raw_dtype=raw_type)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_field(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Add a field, or put another value in the place of what it has."""
    for data in writer.kv_data:
        data.pop(key, None)
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif value is not None:
        writer.add_array(key, value)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, size: int, split: str) -> None:
    """The vocabulary of `size` pieces, padding included, the merges and the special tokens."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    pieces = {i: piece for piece, i in tokenizer.get_vocab().items()}
    special = {one["id"] for one in spec["added_tokens"] if one["special"]}
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([pieces.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types(
        [
            kinds.UNUSED if i not in pieces else kinds.CONTROL if i in special else kinds.NORMAL
            for i in range(size)
        ]
    )
    merges = spec["model"].get("merges") or []
    if merges:
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
        begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
        writer.add_add_bos_token(begins)
    if tokenizer.eos_token_id is not None:
        writer.add_eos_token_id(tokenizer.eos_token_id)


def _parameters(model: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every tensor under its name in transformers, fp32; tied ones once."""
    for name, parameter in model.named_parameters():
        yield name, parameter.detach().float().cpu().numpy()


def _file_name(module: str) -> str:
    if module in OUTSIDE:
        return OUTSIDE[module]
    _, _, index, inner = module.split(".", 3)  # "model.layers.0.mlp.up_proj"
    return f"blk.{index}.{LAYER[inner]}"


def _pairs_adjacent(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Outputs of a projection, reordered for a rotation of neighbours.

    transformers rotates output i of a head together with output i + head_dim / 2; llama.cpp, in
    this architecture, outputs 2i and 2i + 1.
    """
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


if __name__ == "__main__":
    write_pair(Path(sys.argv[1]), *sys.argv[2:])

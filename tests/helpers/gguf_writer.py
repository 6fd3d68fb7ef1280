"""Writer of small models as GGUF files, with weights of every kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from specviz import load_pair
from specviz.core.model_facts import logit_width

# llama.cpp's name of the rule that splits texts before merges, for the built-in tokenizer.
SPLIT = "smollm"
# Qwen3's names are those of all architectures here.
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, n_blocks=64)

# Kinds that the package `gguf` reads and cannot make: where a block has its fp16 scales, in bytes.
RANDOM_KINDS = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q3_K": (108,), "IQ4_NL": (0,)}
# Of kinds with minima: the mean of their codes.
MEAN_CODES = {"Q4_K": 7.5, "Q5_K": 15.5}


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Write the built-in pair in fp32; returns the files of target and draft."""
    pair = load_pair("builtin")
    files = folder / "target.gguf", folder / "draft.gguf"
    write_model(pair.target, pair.tokenizer, files[0])
    write_model(pair.draft, pair.tokenizer, files[1])
    return files


def write_model(
    model: Any,
    tokenizer: Any,
    path: Path,
    kind: str = "F32",
    *,
    kinds: Mapping[str, str] | None = None,
    split: str = SPLIT,
    fields: Mapping[str, Any] | None = None,
    rope_factors: NDArray[np.float32] | None = None,
    without: str = "",
    seed: int = 0,
) -> None:
    """Write a model of an architecture of `tiny_files` with matrices of a kind, such as "Q4_K".

    The matrices of `model` become the numbers that the package `gguf` reads in the file. Kinds
    that the package cannot make get random blocks of the same spread; vectors are fp32.

    kinds: other kinds, by names in transformers. split, fields: of the tokenizer, and other fields,
    by their keys. rope_factors: fp32 [head_dim / 2], which divide rotary frequencies. without: a
    tensor that is left out, by its name in transformers.
    """
    generator = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, model.config.model_type, use_temp_file=True)
    _add_config(writer, model)
    add_tokenizer(writer, tokenizer, logit_width(model), split)
    for key, value in (fields or {}).items():
        add_field(writer, key, value)
    for name, parameter in model.named_parameters():
        values = parameter.detach().float().cpu().numpy()
        own_kind = "F32" if values.ndim == 1 else (kinds or {}).get(name, kind)
        raw_type = GGMLQuantizationType[own_kind]
        data = blocks_of(values, own_kind, generator)
        numbers = dequantize(data, own_kind).reshape(values.shape)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(numbers))
        if name != without:
            data = _file_order(model.config, name, data)
            writer.add_tensor(tensor_name(name), data, raw_dtype=raw_type)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    finish(writer)


def quantize(values: NDArray[np.float32], kind: str) -> NDArray[Any]:
    """Rows of numbers in a kind, as the package `gguf` makes them.

    The package's own function takes 16 rows at a time, which costs small matrices most of the time.
    """
    if kind in ("F32", "F16"):
        return gguf.quants.quantize(values, GGMLQuantizationType[kind])
    rows: NDArray[Any] = getattr(gguf.quants, kind).quantize_rows(values)
    return rows


def dequantize(rows: NDArray[Any], kind: str) -> NDArray[np.float32]:
    """The numbers of rows in a kind, as the package `gguf` reads them; see `quantize`."""
    if kind in ("F32", "F16"):
        return gguf.quants.dequantize(rows, GGMLQuantizationType[kind])
    numbers: NDArray[np.float32] = getattr(gguf.quants, kind).dequantize_rows(rows)
    return numbers


def blocks_of(
    values: NDArray[np.float32], kind: str, generator: np.random.Generator
) -> NDArray[Any]:
    """Rows of numbers in a kind; of `RANDOM_KINDS` random numbers of about the same spread."""
    if kind not in RANDOM_KINDS:
        return quantize(values, kind)
    weights, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random_blocks(kind, values.size // weights, generator)
    spread = dequantize(blocks, kind).std()
    for offset in RANDOM_KINDS[kind]:
        scales = blocks[:, offset : offset + 2].copy().view(np.float16)
        fitting = (scales * (values.std() / spread)).astype(np.float16)
        blocks[:, offset : offset + 2] = fitting.view(np.uint8)
    return blocks.reshape(len(values), values.shape[1] // weights * size)


def random_blocks(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Random blocks of one of `RANDOM_KINDS`, uint8 [count, bytes], whose numbers lie around 0: any
    bytes are codes."""
    _, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = generator.integers(0, 256, (count, size), np.uint8)
    scales = generator.normal(1.0, 0.2, count)
    for offset in RANDOM_KINDS[kind]:
        # The second, of minima, is as large as the mean of the codes.
        factor = MEAN_CODES[kind] if offset == 2 else 1.0
        halves = (scales * factor).astype(np.float16)
        blocks[:, offset : offset + 2] = halves[:, None].view(np.uint8)
    if kind in MEAN_CODES:
        # Codes of minima that differ little from those of scales.
        blocks[:, 8:12] = blocks[:, 4:8] ^ (blocks[:, 8:12] & 3)
        low = blocks[:, 12:16] & 15
        blocks[:, 12:16] = low | (low ^ (blocks[:, 12:16] >> 4 & 3)) << 4
    return blocks


def _add_config(writer: gguf.GGUFWriter, model: Any) -> None:
    config = model.config
    head_dim = model.model.layers[0].self_attn.head_dim
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
    writer.add_rope_dimension_count(int(head_dim * partial))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)


def add_field(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Set a field, or remove it if the value is None."""
    writer.kv_data[0].pop(key, None)
    if isinstance(value, int) and not isinstance(value, bool):
        writer.add_uint32(key, value)
    elif value is not None:
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, size: int, split: str) -> None:
    """Add the vocabulary of `size` pieces, padding included, the merges and the special tokens."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    pieces = {i: piece for piece, i in tokenizer.get_vocab().items()}
    types = [gguf.TokenType.NORMAL if i in pieces else gguf.TokenType.UNUSED for i in range(size)]
    for token in spec["added_tokens"]:
        if token["special"]:
            types[token["id"]] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([pieces.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types(types)
    merges = spec["model"].get("merges")
    if merges:
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
        begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
        writer.add_add_bos_token(begins)
    if tokenizer.eos_token_id is not None:
        writer.add_eos_token_id(tokenizer.eos_token_id)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor_name(name: str) -> str:
    """The name in a file of a tensor of transformers."""
    return str(NAMES.get_name(name, (".weight", ".bias")))


def _file_order(config: Any, name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Reorder the outputs of a projection for a rotation of neighbours.

    transformers rotates output i of a head together with output i + head_dim / 2; llama.cpp, in
    Llama's architecture alone, outputs 2i and 2i + 1.
    """
    if config.model_type != "llama" or not ("q_proj" in name or "k_proj" in name):
        return values
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))

"""A small Llama as a GGUF file, which llama.cpp reads: how its server gets the built-in pair.

    python tests/helpers/gguf_writer.py FOLDER [bf16]    writes target.gguf and draft.gguf

It needs the package `gguf`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from specviz import load_pair
from specviz.pairs.pair import logit_width

TYPES = {"bf16": gguf.GGMLQuantizationType.BF16, "fp32": gguf.GGMLQuantizationType.F32}
# llama.cpp's name of the way in which the built-in tokenizer splits texts before merges.
SPLIT = "smollm"
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
    config, layer = model.config, model.model.layers[0].self_attn
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=True)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for add in (writer.add_rope_dimension_count, writer.add_key_length, writer.add_value_length):
        add(layer.head_dim)
    _add_tokenizer(writer, tokenizer, logit_width(model))
    for name, values in _tensors(model):
        as_type = TYPES[kind] if values.ndim > 1 else TYPES["fp32"]
        writer.add_tensor(name, gguf.quants.quantize(values, as_type), raw_dtype=as_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, size: int) -> None:
    """The vocabulary of `size` pieces, padding included, the merges and the special tokens."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    pieces = {i: piece for piece, i in tokenizer.get_vocab().items()}
    special = {one["id"] for one in spec["added_tokens"] if one["special"]}
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLIT)
    writer.add_token_list([pieces.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types(
        [
            kinds.UNUSED if i not in pieces else kinds.CONTROL if i in special else kinds.NORMAL
            for i in range(size)
        ]
    )
    merges = spec["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id)


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


if __name__ == "__main__":
    write_pair(Path(sys.argv[1]), *sys.argv[2:])

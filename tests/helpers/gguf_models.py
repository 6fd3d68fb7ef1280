"""Tiny models of every architecture as GGUF files, written from the names of llama.cpp alone: keys,
tensors and vocabulary are those of llama.cpp's converter, each of which a test may change."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from gguf_writer import _add_field, _add_tokenizer
from numpy.typing import NDArray
from tiny_files import tiny_tokenizer

VOCAB = 325
WIDTH = 64
INNER = 96
HEADS = 2
KEY_HEADS = 1
HEAD = 32
CONTEXT = 512

Tensors = dict[str, NDArray[np.float32]]
Keys = dict[str, Any]


class Described(NamedTuple):
    """What a file is written from: its keys, without the architecture, and its tensors."""

    architecture: str
    keys: Keys
    tensors: Tensors


def described(architecture: str, *, layers: int = 2, seed: int = 0, **sizes: int) -> Described:
    """A random model of an architecture. sizes: "heads", "key_heads" and "head" of a layer."""
    random = np.random.default_rng(seed)
    heads = sizes.get("heads", HEADS)
    key_heads = heads if architecture == "gpt2" else sizes.get("key_heads", KEY_HEADS)
    head = sizes.get("head", HEAD)
    has_mean = architecture in ("gpt2", "stablelm")

    def matrix(rows: int, columns: int = WIDTH) -> NDArray[np.float32]:
        return as_bf16(random.normal(0, 0.15, (rows, columns)))

    def norm(width: int = WIDTH) -> NDArray[np.float32]:
        return as_bf16(random.normal(1, 0.2, width))

    def bias(width: int) -> NDArray[np.float32]:
        return as_bf16(random.normal(0, 0.2, width))

    keys: Keys = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": layers,
        "feed_forward_length": INNER,
        "attention.head_count": heads,
    }
    if architecture != "gpt2":
        keys["attention.head_count_kv"] = key_heads
        keys["rope.freq_base"] = 10_000.0
    if architecture in ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"):
        keys["attention.key_length"] = keys["attention.value_length"] = head
    keys[f"attention.layer_norm_{'' if has_mean else 'rms_'}epsilon"] = 1e-5
    tensors: Tensors = {"token_embd.weight": matrix(VOCAB), "output_norm.weight": norm()}
    if architecture in ("llama", "mistral", "qwen2", "qwen3", "phi3", "stablelm"):
        tensors["output.weight"] = matrix(VOCAB)
    if architecture == "gpt2":
        tensors["position_embd.weight"] = matrix(CONTEXT)
    if has_mean:
        tensors["output_norm.bias"] = bias(WIDTH)
    for index in range(layers):
        layer = layer_of(architecture, (heads * head, key_heads * head, head), matrix, norm, bias)
        tensors |= {f"blk.{index}.{name}": values for name, values in layer.items()}
    return Described(architecture, keys, tensors)


def layer_of(
    architecture: str, widths: tuple[int, int, int], matrix: Any, norm: Any, bias: Any
) -> Tensors:
    """The tensors of one layer. widths: of the queries, of the keys, and of a head."""
    queries, keys, head = widths
    layer = {"attn_norm.weight": norm(), "ffn_norm.weight": norm()}
    layer["attn_output.weight"] = matrix(WIDTH, queries)
    layer["ffn_down.weight"] = matrix(WIDTH, INNER)
    if architecture in ("gpt2", "phi3"):
        layer["attn_qkv.weight"] = matrix(queries + 2 * keys)
        layer["ffn_up.weight"] = matrix(INNER if architecture == "gpt2" else 2 * INNER)
    else:
        layer["attn_q.weight"] = matrix(queries)
        layer["attn_k.weight"] = matrix(keys)
        layer["attn_v.weight"] = matrix(keys)
        layer["ffn_up.weight"] = matrix(INNER)
        layer["ffn_gate.weight"] = matrix(INNER)
    if architecture == "gpt2":
        layer["attn_qkv.bias"] = bias(queries + 2 * keys)
        layer["ffn_up.bias"] = bias(INNER)
        for name in ("attn_norm", "ffn_norm", "attn_output", "ffn_down"):
            layer[f"{name}.bias"] = bias(WIDTH)
    if architecture == "stablelm":
        layer |= {"attn_norm.bias": bias(WIDTH), "ffn_norm.bias": bias(WIDTH)}
    if architecture == "qwen2":
        layer |= {
            "attn_q.bias": bias(queries),
            "attn_k.bias": bias(keys),
            "attn_v.bias": bias(keys),
        }
    if architecture in ("qwen3", "gemma3"):
        layer |= {"attn_q_norm.weight": norm(head), "attn_k_norm.weight": norm(head)}
    if architecture in ("gemma2", "gemma3"):
        layer |= {"post_attention_norm.weight": norm(), "post_ffw_norm.weight": norm()}
    return layer


def as_bf16(values: Any) -> NDArray[np.float32]:
    """Numbers that bf16 holds exactly."""
    bits = np.asarray(values, np.float32).view(np.uint32) & 0xFFFF0000
    return bits.view(np.float32)


class Piece(NamedTuple):
    """One piece of a vocabulary of SentencePiece."""

    text: str
    score: float = 0.0
    kind: int = gguf.TokenType.NORMAL


def sentence_piece_fields(pieces: Sequence[Piece], **fields: Any) -> Keys:
    """The fields of a vocabulary of SentencePiece, and others of a tokenizer by their names."""
    whole: Keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.text for piece in pieces],
        "tokenizer.ggml.scores": [float(piece.score) for piece in pieces],
        "tokenizer.ggml.token_type": [int(piece.kind) for piece in pieces],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.eos_token_id": None,
    }
    return whole | {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


def byte_pieces() -> list[Piece]:
    """The pieces that a vocabulary of SentencePiece begins with: special ones and all bytes."""
    kinds = gguf.TokenType
    special = [Piece("<unk>", 0, kinds.UNKNOWN), Piece("<s>", 0, kinds.CONTROL)]
    special.append(Piece("</s>", 0, kinds.CONTROL))
    return special + [Piece(f"<0x{byte:02X}>", 0, kinds.BYTE) for byte in range(256)]


def write_vocabulary(path: Path, fields: Mapping[str, Any]) -> Path:
    """Write a small model whose embeddings fit the pieces of these fields."""
    model = described("llama", layers=1)
    rows = len(fields["tokenizer.ggml.tokens"])
    table = np.zeros((rows, WIDTH), np.float32)
    tensors = {"token_embd.weight": table, "output.weight": table}
    return write_described(path, model, tensors=tensors, fields=fields)


@functools.cache
def vocabulary() -> Any:
    """A byte-level tokenizer of `VOCAB` pieces, padding included."""
    return tiny_tokenizer()


def write_described(
    path: Path,
    model: Described,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    split: str = "qwen2",
) -> Path:
    """Write a file. keys, tensors: instead of those of the model, None leaves one out. fields:
    others, by their whole names. kinds: of tensors that are not F32. split: how texts are cut."""
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in {**model.keys, **(keys or {})}.items():
        _add_field(writer, f"{model.architecture}.{key}", value)
    _add_tokenizer(writer, vocabulary(), VOCAB, split)
    for key, value in (fields or {}).items():
        _add_field(writer, key, value)
    for name, values in {**model.tensors, **(tensors or {})}.items():
        if values is None:
            continue
        kind = (kinds or {}).get(name)
        if kind is None:
            writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
        else:
            as_type = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(values, as_type), raw_dtype=as_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

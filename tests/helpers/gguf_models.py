"""Tiny models of every architecture as GGUF files, written with llama.cpp's own names.

A test may change each key, tensor and field of the vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from gguf_writer import add_field, add_tokenizer, finish, quantize
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
Shapes = dict[str, tuple[int, ...]]

# Modules of a layer that have a bias
BIASES = {
    "gpt2": ("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"),
    "stablelm": ("attn_norm", "ffn_norm"),
    "qwen2": ("attn_q", "attn_k", "attn_v"),
}


class Described(NamedTuple):
    """The content of a file. keys: without the architecture."""

    architecture: str
    keys: Keys
    tensors: Tensors


def described(architecture: str, *, layers: int = 2, seed: int = 0, **sizes: int) -> Described:
    """Make a random model of an architecture. sizes: "heads", "key_heads" and "head" of a layer."""
    heads = sizes.get("heads", HEADS)
    key_heads = heads if architecture == "gpt2" else sizes.get("key_heads", KEY_HEADS)
    head = sizes.get("head", HEAD)
    has_mean = architecture in ("gpt2", "stablelm")
    keys: Keys = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": layers,
        "feed_forward_length": INNER,
        "attention.head_count": heads,
        f"attention.layer_norm_{'' if has_mean else 'rms_'}epsilon": 1e-5,
    }
    if architecture != "gpt2":
        keys["attention.head_count_kv"] = key_heads
        keys["rope.freq_base"] = 10_000.0
    if architecture in ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"):
        keys["attention.key_length"] = keys["attention.value_length"] = head
    shapes: Shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,)}
    if architecture in ("llama", "mistral", "qwen2", "qwen3", "phi3", "stablelm"):
        shapes["output.weight"] = (VOCAB, WIDTH)
    if architecture == "gpt2":
        shapes["position_embd.weight"] = (CONTEXT, WIDTH)
    if has_mean:
        shapes["output_norm.bias"] = (WIDTH,)
    layer = layer_shapes(architecture, heads * head, key_heads * head, head)
    for index in range(layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    random = np.random.default_rng(seed)
    tensors = {name: as_bf16(random_values(name, shape, random)) for name, shape in shapes.items()}
    return Described(architecture, keys, tensors)


def layer_shapes(architecture: str, queries: int, keys: int, head: int) -> Shapes:
    """The shapes of the tensors of one layer. queries, keys, head: widths."""
    shapes: Shapes = {
        "attn_norm.weight": (WIDTH,),
        "ffn_norm.weight": (WIDTH,),
        "attn_output.weight": (WIDTH, queries),
        "ffn_down.weight": (WIDTH, INNER),
        "ffn_up.weight": (2 * INNER if architecture == "phi3" else INNER, WIDTH),
    }
    if architecture in ("gpt2", "phi3"):
        shapes["attn_qkv.weight"] = (queries + 2 * keys, WIDTH)
    else:
        shapes["attn_q.weight"] = (queries, WIDTH)
        shapes["attn_k.weight"] = (keys, WIDTH)
        shapes["attn_v.weight"] = (keys, WIDTH)
        shapes["ffn_gate.weight"] = (INNER, WIDTH)
    if architecture in ("qwen3", "gemma3"):
        shapes |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
    if architecture in ("gemma2", "gemma3"):
        shapes |= {"post_attention_norm.weight": (WIDTH,), "post_ffw_norm.weight": (WIDTH,)}
    for name in BIASES.get(architecture, ()):
        shapes[f"{name}.bias"] = shapes[f"{name}.weight"][:1]
    return shapes


def random_values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    """Random weights of a matrix, a norm or a bias."""
    if len(shape) == 2:
        return random.normal(0, 0.15, shape)
    return random.normal(1.0 if name.endswith("norm.weight") else 0.0, 0.2, shape)


def as_bf16(values: Any) -> NDArray[np.float32]:
    """Truncate numbers to those of bf16."""
    bits = np.asarray(values, np.float32).view(np.uint32) & 0xFFFF0000
    return bits.view(np.float32)


class Piece(NamedTuple):
    """One piece of a vocabulary of SentencePiece."""

    text: str
    score: float = 0.0
    kind: int = gguf.TokenType.NORMAL


def sentence_piece_fields(pieces: Sequence[Piece], **fields: Any) -> Keys:
    """Fields of a vocabulary of SentencePiece. fields: further ones of a tokenizer, by name."""
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
    """The first pieces of each vocabulary of SentencePiece: special ones and all bytes."""
    kinds = gguf.TokenType
    special = [Piece("<unk>", 0, kinds.UNKNOWN), Piece("<s>", 0, kinds.CONTROL)]
    special.append(Piece("</s>", 0, kinds.CONTROL))
    return special + [Piece(f"<0x{byte:02X}>", 0, kinds.BYTE) for byte in range(256)]


def write_vocabulary(path: Path, fields: Mapping[str, Any]) -> Path:
    """Write a small model with the vocabulary of these fields."""
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
    """Write a file.

    keys, tensors: replace the model's; None leaves one out. fields: further ones, by their whole
    names. kinds: of tensors that are not F32. split: the rule that splits texts before merges.
    """
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in {**model.keys, **(keys or {})}.items():
        add_field(writer, f"{model.architecture}.{key}", value)
    add_tokenizer(writer, vocabulary(), VOCAB, split)
    for key, value in (fields or {}).items():
        add_field(writer, key, value)
    for name, values in {**model.tensors, **(tensors or {})}.items():
        if values is None:
            continue
        kind = (kinds or {}).get(name)
        if kind is None:
            writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
        else:
            as_type = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, quantize(values, kind), raw_dtype=as_type)
    finish(writer)
    return path

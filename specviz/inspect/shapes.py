"""Well-known sizes of pairs, by name."""

from __future__ import annotations

from typing import NamedTuple


class Size(NamedTuple):
    """The sizes of a Llama, as its config calls them."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool


class Shape(NamedTuple):
    """The sizes of a pair. vocab: ids of the tokenizer."""

    vocab: int
    target: Size
    draft: Size


SMALL_TARGET = Size(
    vocab_size=4096,
    hidden_size=384,
    intermediate_size=1024,
    num_hidden_layers=8,
    num_attention_heads=6,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
SMALL_DRAFT = Size(
    vocab_size=4096,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    tie_word_embeddings=True,
)
QWEN_7B = Size(
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    tie_word_embeddings=False,
)
QWEN_1_5B = Size(
    vocab_size=151936,
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
QWEN_0_5B = Size(
    vocab_size=151936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
LLAMA_8B = Size(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)
LLAMA_1B = Size(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=True,
)

SHAPES = {
    "small": Shape(vocab=4096, target=SMALL_TARGET, draft=SMALL_DRAFT),
    "qwen2.5-1.5b+0.5b": Shape(vocab=151936, target=QWEN_1_5B, draft=QWEN_0_5B),
    "qwen2.5-7b+0.5b": Shape(vocab=151936, target=QWEN_7B, draft=QWEN_0_5B),
    "llama-3.1-8b+3.2-1b": Shape(vocab=128256, target=LLAMA_8B, draft=LLAMA_1B),
}

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


SHAPES = {
    "small": Shape(
        vocab=4096,
        target=Size(4096, 384, 1024, 8, 6, 2, True),
        draft=Size(4096, 128, 384, 2, 2, 1, True),
    ),
    "qwen2.5-1.5b+0.5b": Shape(
        vocab=151936,
        target=Size(151936, 1536, 8960, 28, 12, 2, True),
        draft=Size(151936, 896, 4864, 24, 14, 2, True),
    ),
    "qwen2.5-7b+0.5b": Shape(
        vocab=151936,
        target=Size(152064, 3584, 18944, 28, 28, 4, False),
        draft=Size(151936, 896, 4864, 24, 14, 2, True),
    ),
    "llama-3.1-8b+3.2-1b": Shape(
        vocab=128256,
        target=Size(128256, 4096, 14336, 32, 32, 8, False),
        draft=Size(128256, 2048, 8192, 16, 32, 8, True),
    ),
}

"""Tiny models as GGUF files of every architecture and kind, each with the model of transformers
that has the same numbers in fp32.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from gguf_writer import write_model
from toy_models import byte_level, generated

KINDS = (
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q4_K",
    "Q5_K",
    "Q6_K",
)
"""All kinds that compiled passes read."""

CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
}
"""All architectures whose files run as they are."""

UNPACKED = {"stablelm": transformers.StableLmConfig}
"""An architecture whose files are unpacked."""

SIZES = dict(
    hidden_size=256,
    # More than the inputs of which weights are unpacked at a time, and no multiple of them.
    intermediate_size=768,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=512,
    initializer_range=0.1,
    tie_word_embeddings=False,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
"""All widths are multiples of the largest block, of 256 weights."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB = 320
PADDED = 325
"""Rows of the tables: some more than the tokenizer has pieces."""


class TinyFile(NamedTuple):
    """path: of the file. model: of transformers, in fp32, with the numbers of the file."""

    path: Path
    model: Any


def tiny_model(architecture: str = "llama", *, seed: int = 0, **config: Any) -> Any:
    """Make a random model whose norms and biases matter, with rows for padding."""
    torch.manual_seed(seed)
    kind: Any = (CONFIGS | UNPACKED)[architecture]
    values = {"vocab_size": PADDED, **SIZES, **config}
    if architecture == "mistral":
        values["sliding_window"] = None
    model = transformers.AutoModelForCausalLM.from_config(kind(**values)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.normal_(mean=float("norm" in name), std=0.2)
    return model


def tiny_tokenizer(special: Sequence[str] = SPECIAL, size: int = VOCAB) -> Any:
    """Make a byte-level BPE like the published ones of Qwen2."""
    trained = byte_level(size, special=special)
    merges = json.loads(trained.backend_tokenizer.to_str())["model"]["merges"]
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=trained.get_vocab(), merges=[tuple(merge) for merge in merges]
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    return tokenizer


def tiny_file(
    folder: Path,
    kind: str,
    architecture: str = "llama",
    *,
    name: str = "model",
    seed: int = 0,
    tokenizer: Any = None,
    split: str = "qwen2",
    writing: dict[str, Any] | None = None,
    **config: Any,
) -> TinyFile:
    """Write a random model of an architecture, with all matrices of a kind. writing: further
    arguments of `write_model`."""
    model = tiny_model(architecture, seed=seed, **config)
    path = folder / f"{name}.gguf"
    tokenizer = tokenizer or tiny_tokenizer()
    write_model(model, tokenizer, path, kind, split=split, seed=seed, **(writing or {}))
    return TinyFile(path, model)


def greedy_ids(model: Any, prompt: Sequence[int], count: int, vocab: int) -> list[int]:
    """Generate ids with transformers, without padding of the vocabulary, and past ends of text."""
    padding = list(range(vocab, model.config.vocab_size))
    return generated(model, prompt, count, eos_token_id=None, suppress_tokens=padding or None)

"""A byte-level BPE tokenizer in a GGUF file: pieces, merges, and how texts are split before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers import pre_tokenizers as pre

from ..errors import PairError

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(number: str) -> list[Any]:
    pattern = Regex(_WORDS.replace("NUMBER", number))
    return [pre.Split(pattern, "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)]


def _pre_tokenizers() -> dict[str, list[Any]]:
    """What llama.cpp can split texts with before merges, by its names."""
    words = pre.ByteLevel(add_prefix_space=False)
    return {
        "smollm": [pre.Digits(individual_digits=True), words],
        "gpt-2": [words],
        "llama-bpe": _split(r"\p{N}{1,3}"),
        "qwen2": _split(r"\p{N}"),
    }


def add_tokenizer(writer: Any, kinds: Any, tokenizer: Any, size: int, texts: Sequence[str]) -> None:
    """Add the vocabulary of `size` pieces, padding included, the merges and the special tokens.

    writer: a `gguf.GGUFWriter`; kinds: `gguf.TokenType`. texts: as in `matching_pre_tokenizer`.
    Raises `PairError`.
    """
    spec = _byte_level(tokenizer)
    pieces = {i: piece for piece, i in tokenizer.get_vocab().items()}
    special = {one["id"]: one["special"] for one in spec["added_tokens"]}
    marks = {True: kinds.CONTROL, False: kinds.USER_DEFINED, None: kinds.NORMAL}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(matching_pre_tokenizer(tokenizer, texts))
    writer.add_token_list([pieces.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types(
        [marks[special.get(i)] if i in pieces else kinds.UNUSED for i in range(size)]
    )
    merges = spec["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    if first is not None:
        writer.add_bos_token_id(first)
    if last is not None:
        writer.add_eos_token_id(last)
    writer.add_add_bos_token(first is not None and tokenizer("a")["input_ids"][0] == first)


def _byte_level(tokenizer: Any) -> dict[str, Any]:
    """The tokenizer's file as a dict. Raises `PairError` unless it is byte-level BPE."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    spec: dict[str, Any] = json.loads(backend.to_str()) if backend is not None else {}
    if "ByteLevel" not in json.dumps(spec.get("decoder")) or spec["model"]["type"] != "BPE":
        raise PairError(
            "this tokenizer cannot be written as a GGUF file: choose a pair with byte-level BPE."
        )
    return spec


def matching_pre_tokenizer(tokenizer: Any, texts: Sequence[str]) -> str:
    """llama.cpp's name of a way to split texts that gives `texts` the ids of `tokenizer`.

    Raises `PairError` if it has none.
    """
    backend = tokenizer.backend_tokenizer
    wanted = [backend.encode(text, add_special_tokens=False).ids for text in texts]
    for name, steps in _pre_tokenizers().items():
        other = Tokenizer.from_str(backend.to_str())
        other.pre_tokenizer = pre.Sequence(steps)
        if [other.encode(text, add_special_tokens=False).ids for text in texts] == wanted:
            return name
    raise PairError(
        "llama.cpp cannot split these prompts as this tokenizer does: choose others with --prompts."
    )

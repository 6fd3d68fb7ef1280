"""The tokenizer of a GGUF file, made from its header, and the ids that end its texts.

What llama.cpp does with the same fields: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from ..core.ends import spelled_ends
from ..core.pair import remember_size
from .gguf import GgufHeader

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BYTE_LEVEL = "gpt2"
"""What files call byte-level BPE."""

# Types of pieces that are not plain text.
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5

_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")
_SPLITS = {
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "qwen2": _QWEN_2,
    "deepseek-r1-qwen": _QWEN_2,
}
"""How a byte-level tokenizer cuts text before it merges, where that is not GPT-2's way."""

_NORMALIZED = ("qwen2", "deepseek-r1-qwen")
"""Those whose published tokenizers compose characters first."""

SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}
"""transformers' names of special tokens, and those of files."""

_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""Those that cut numbers into digits, and the rest as GPT-2 does."""

TEMPLATE = "tokenizer.chat_template"

_last: tuple[dict[str, Any], Any] | None = None


def read_gguf_tokenizer(header: GgufHeader) -> Any:
    """The tokenizer of a file, as transformers has it. Padding of the vocabulary is left out.

    Two files of one family have the same pieces, of which a tokenizer takes a second to make: those
    of the last file are kept.
    """
    global _last
    if header.text("tokenizer.ggml.model") != BYTE_LEVEL:
        from transformers import AutoTokenizer

        where = {"gguf_file": header.path.name, "trust_remote_code": False}
        return AutoTokenizer.from_pretrained(str(header.path.parent), **where)
    fields = tokenizer_fields(header)
    if _last is None or _last[0] != fields:
        _last = fields, _byte_level(header)
    tokenizer = copy(_last[1])
    remember_size(tokenizer, used_ids(header))
    tokenizer.chat_template = header.text(TEMPLATE)
    return tokenizer


def tokenizer_fields(header: GgufHeader) -> dict[str, Any]:
    """All that a file says of its tokenizer, but for the template of a chat."""
    return {
        key: value
        for key, value in header.values.items()
        if key.startswith("tokenizer.") and key != TEMPLATE
    }


def used_ids(header: GgufHeader) -> int:
    """The highest id of a byte-level tokenizer plus 1."""
    kinds = [kind for _, kind in pieces_of(header)]
    while kinds and kinds[-1] == UNUSED:
        kinds.pop()
    return len(kinds)


def end_ids_of(header: GgufHeader) -> list[int]:
    """The ids that end a text or a turn: the one that the file names, and all control pieces that
    are spelled so."""
    values = header.values
    ids = {
        values[key]
        for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        if isinstance(values.get(key), int)
    }
    return sorted(ids | spelled_ends(added_pieces(header)))


def added_pieces(header: GgufHeader) -> dict[int, str]:
    """The pieces that are no plain text, by their ids."""
    pieces = header.values.get("tokenizer.ggml.tokens") or []
    kinds = header.values.get("tokenizer.ggml.token_type") or []
    added = [token_id for token_id, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)]
    return {token_id: pieces[token_id] for token_id in added if token_id < len(pieces)}


def unused_ids(header: GgufHeader) -> set[int]:
    """The ids of pieces that only pad the vocabulary."""
    return {token_id for token_id, (_, kind) in enumerate(pieces_of(header)) if kind == UNUSED}


def pieces_of(header: GgufHeader) -> Iterator[tuple[str, int]]:
    """The pieces of the vocabulary, each with its type."""
    pieces = header.values.get("tokenizer.ggml.tokens") or []
    kinds = header.values.get("tokenizer.ggml.token_type") or [1] * len(pieces)
    return zip(pieces, kinds, strict=False)


def _byte_level(header: GgufHeader) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast  # a header is read without it

    values = header.values
    pieces = list(pieces_of(header))
    vocab = {piece: token_id for token_id, (piece, kind) in enumerate(pieces) if kind != UNUSED}
    merges = [tuple(merge.split(" ", 1)) for merge in values.get("tokenizer.ggml.merges") or []]
    # A tokenizer that is given is copied, which takes a second for a large vocabulary: so it is
    # given an empty one, which gets its model then.
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
    inner = tokenizer.backend_tokenizer
    inner.model = BPE(vocab=vocab, merges=merges)
    split = header.text("tokenizer.ggml.pre")
    if split in _NORMALIZED:
        inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizer_named(split)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(_added(pieces, CONTROL))
    inner.add_tokens(_added(pieces, USER_DEFINED))
    for name, key in SPECIAL.items():
        token_id = values.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < len(pieces):
            setattr(tokenizer, name, pieces[token_id][0])
    begin = tokenizer.bos_token
    if begin is not None and values.get("tokenizer.ggml.add_bos_token") is True:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.bos_token_id)]
        )
    return tokenizer


def _added(pieces: list[tuple[str, int]], wanted: int) -> list[AddedToken]:
    special = wanted == CONTROL
    return [
        AddedToken(piece, normalized=False, special=special)
        for piece, kind in pieces
        if kind == wanted
    ]


def pre_tokenizer_named(split: str | None) -> Any:
    """How a byte-level tokenizer cuts text before it merges, by the name that a file gives."""
    if split in _SPLITS:
        first: Any = pre_tokenizers.Split(Regex(_SPLITS[split]), "isolated")
    elif split in _DIGITS:
        first = pre_tokenizers.Digits(individual_digits=True)
    else:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    second = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in _DIGITS)
    return pre_tokenizers.Sequence([first, second])

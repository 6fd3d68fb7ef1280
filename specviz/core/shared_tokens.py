"""Find the tokens that two tokenizers have in common, by comparing their bytes.

Tokenizers spell one text in several ways: " the" is "Ġthe" in a byte-level vocabulary and "▁the" in
one of sentencepiece, where a single byte is "<0x0A>". Special tokens stand for no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from transformers.convert_slow_tokenizer import bytes_to_unicode

from ..base.errors import PairError
from .prompt_ids import special_ids

MIN_SHARE = 0.05
"""The least share of the target's tokens in a draft: with fewer, hardly any would be kept."""

BYTE_OF = {sign: byte for byte, sign in bytes_to_unicode().items()}
"""The byte of each character in byte-level vocabularies."""

BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE = "▁"  # of sentencepiece
SENTENCEPIECE = {"Metaspace", "ByteFallback", "Replace"}


@dataclass(frozen=True)
class Spelling:
    """The bytes of a tokenizer's ids, without special tokens.

    texts: id -> bytes. byte_ids: ids that are written as one byte, such as "<0x0A>".
    """

    texts: dict[int, bytes]
    byte_ids: frozenset[int] = frozenset()

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Bytes -> id. Among several, an ordinary token comes before a byte, then the lowest id."""
        ids: dict[bytes, int] = {}
        for token_id, text in sorted(self.texts.items()):
            if text not in ids or ids[text] in self.byte_ids:
                ids[text] = token_id
        return ids

    @cached_property
    def longest(self) -> int:
        """The largest number of bytes of an id."""
        return max(map(len, self.texts.values()), default=0)

    def spell(self, text: bytes) -> list[int]:
        """Spell `text` with ids, each as long as possible, leaving out bytes that begin no id."""
        ids = []
        begin = 0
        while begin < len(text):
            piece = self._longest_piece(text[begin : begin + self.longest])
            if piece:
                ids.append(self.ids[piece])
            begin += len(piece) or 1
        return ids

    def _longest_piece(self, text: bytes) -> bytes:
        """The longest beginning of `text` that is an id; empty if there is none."""
        for size in range(len(text), 0, -1):
            if text[:size] in self.ids:
                return text[:size]
        return b""


class Vocabulary(NamedTuple):
    """A model's part of a tokenizer: its ids below `size`; `ends` are those that end a text."""

    tokenizer: Any
    size: int
    ends: Iterable[int]

    def known_spelling(self) -> Spelling:
        """The bytes of the ids below `size`."""
        whole = spelling(self.tokenizer)
        texts = {token_id: text for token_id, text in whole.texts.items() if token_id < self.size}
        return Spelling(texts, whole.byte_ids)

    def end_pieces(self) -> dict[str, int]:
        """The ids below `size` that end a text, by how they are written."""
        ids = sorted(self.ends)
        pieces = self.tokenizer.convert_ids_to_tokens(ids)
        return {
            piece: token_id
            for piece, token_id in zip(pieces, ids, strict=True)
            if token_id < self.size
        }


@dataclass(frozen=True)
class SharedTokens:
    """The common tokens of a target's and a draft's tokenizer.

    target, draft: their spellings. pairs: (id of the target, id of the draft) with the same bytes,
    or that both end a text, each id at most once. target_size, draft_size: how many ids they have.
    """

    target: Spelling
    draft: Spelling
    pairs: tuple[tuple[int, int], ...]
    target_size: int
    draft_size: int

    @cached_property
    def to_draft(self) -> dict[int, int]:
        """The draft's id of each shared id of the target."""
        return dict(self.pairs)

    @cached_property
    def to_target(self) -> dict[int, int]:
        """The target's id of each shared id of the draft."""
        return {draft_id: target_id for target_id, draft_id in self.pairs}

    @property
    def share(self) -> float:
        """The share of the target's ids that the draft has too."""
        return len(self.pairs) / max(1, self.target_size)

    def check(self) -> None:
        """Raise `PairError` if the tokenizers share too few tokens to draft with."""
        if self.share < MIN_SHARE:
            raise PairError(
                f"target and draft use different tokenizers, with only {len(self.pairs):,} of the "
                f"target's {self.target_size:,} tokens in common: choose two models of one family."
            )


def shared_tokens(target: Vocabulary, draft: Vocabulary) -> SharedTokens:
    """Find the common tokens of a target's and a draft's vocabulary.

    Ends of a text with the same spelling are matched, and so are the lowest of the others.
    """
    target_spelling = target.known_spelling()
    draft_spelling = draft.known_spelling()
    pairs = {
        target_id: draft_spelling.ids[text]
        for text, target_id in target_spelling.ids.items()
        if text in draft_spelling.ids
    }
    for target_end, draft_end in _same_ends(target.end_pieces(), draft.end_pieces()):
        if target_end not in pairs and draft_end not in pairs.values():
            pairs[target_end] = draft_end
    return SharedTokens(
        target=target_spelling,
        draft=draft_spelling,
        pairs=tuple(sorted(pairs.items())),
        target_size=target.size,
        draft_size=draft.size,
    )


def _same_ends(target: dict[str, int], draft: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Match the ids of ends. target, draft: spelling -> id."""
    alike = target.keys() & draft.keys()
    for piece in alike:
        yield target[piece], draft[piece]
    target_others = [token_id for piece, token_id in target.items() if piece not in alike]
    draft_others = [token_id for piece, token_id in draft.items() if piece not in alike]
    if target_others and draft_others:
        yield min(target_others), min(draft_others)


_spellings: WeakKeyDictionary[Any, Spelling] = WeakKeyDictionary()


def spelling(tokenizer: Any) -> Spelling:
    """Make the `Spelling` of a tokenizer."""
    if tokenizer in _spellings:
        return _spellings[tokenizer]
    pieces: dict[str, int] = tokenizer.get_vocab()
    decoders = _decoder_types(tokenizer, pieces)
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = special_ids(tokenizer)
    texts: dict[int, bytes] = {}
    byte_ids: set[int] = set()
    for piece, token_id in pieces.items():
        if token_id in special:
            continue
        byte = BYTE_PIECE.fullmatch(piece) if "ByteFallback" in decoders else None
        if byte is not None:
            texts[token_id] = bytes([int(byte[1], 16)])
            byte_ids.add(token_id)
        elif token_id in added:  # written as it is in every kind of vocabulary
            texts[token_id] = piece.encode("utf-8", "ignore")
        else:
            texts[token_id] = _bytes_of(piece, decoders)
    texts = {token_id: text for token_id, text in texts.items() if text}
    return _spellings.setdefault(tokenizer, Spelling(texts, frozenset(byte_ids)))


def _bytes_of(piece: str, decoders: set[str]) -> bytes:
    """The bytes of an ordinary piece; empty if they cannot be known."""
    if "ByteLevel" in decoders:
        if not all(sign in BYTE_OF for sign in piece):
            return b""
        return bytes(BYTE_OF[sign] for sign in piece)
    if decoders & SENTENCEPIECE:
        piece = piece.replace(SPACE, " ")
    elif piece.startswith("##"):  # WordPiece: the piece continues a word
        piece = piece[2:]
    else:  # a whole word
        piece = f" {piece}"
    return piece.encode("utf-8", "ignore")


def _decoder_types(tokenizer: Any, pieces: Iterable[str]) -> set[str]:
    """The types of a fast tokenizer's decoders; a guess for one written in Python."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is not None:
        state = json.loads(decoder.__getstate__())
        return {part["type"] for part in state.get("decoders", [state])}
    signs = {sign for piece in pieces for sign in piece}
    if SPACE in signs:
        return {"ByteFallback"}
    if "\u0120" in signs:  # the space of byte-level vocabularies
        return {"ByteLevel"}
    return set()

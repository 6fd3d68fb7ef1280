"""The tokens that two tokenizers have in common: compared by the bytes that they stand for.

Tokenizers spell one text in several ways: " the" is "Ġthe" in a byte-level vocabulary and "▁the" in
one of sentencepiece, where a byte of its own is "<0x0A>". Special tokens stand for no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from transformers.convert_slow_tokenizer import bytes_to_unicode

from ..errors import PairError
from .prompt_ids import special_ids

FEWEST = 0.05
"""Share of the target's tokens that a draft must have too: with fewer, hardly any would hold."""

BYTE_OF = {sign: byte for byte, sign in bytes_to_unicode().items()}
"""The byte that each sign stands for in byte-level vocabularies."""

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
        """Bytes -> id: of several, an ordinary token rather than a byte, then the lowest."""
        found: dict[bytes, int] = {}
        for token_id, text in sorted(self.texts.items()):
            if text not in found or found[text] in self.byte_ids:
                found[text] = token_id
        return found

    @cached_property
    def longest(self) -> int:
        """The most bytes of an id."""
        return max(map(len, self.texts.values()), default=0)

    def spell(self, text: bytes) -> list[int]:
        """Ids that stand for `text`, each as long as possible; bytes that no id begins with are
        left out."""
        ids, place = [], 0
        while place < len(text):
            sizes = range(min(self.longest, len(text) - place), 0, -1)
            size = next((n for n in sizes if text[place : place + n] in self.ids), 0)
            if size:
                ids.append(self.ids[text[place : place + size]])
            place += size or 1
        return ids


@dataclass(frozen=True)
class SharedTokens:
    """What a target's and a draft's tokenizer have in common.

    target, draft: their spellings. pairs: (id of the target, id of the draft) with the same bytes,
    or that both end a text, each id at most once. of, draft_of: how many ids target and draft have.
    """

    target: Spelling
    draft: Spelling
    pairs: tuple[tuple[int, int], ...]
    of: int
    draft_of: int

    @cached_property
    def to_draft(self) -> dict[int, int]:
        return dict(self.pairs)

    @cached_property
    def to_target(self) -> dict[int, int]:
        return {theirs: ours for ours, theirs in self.pairs}

    @property
    def share(self) -> float:
        """The share of the target's ids that the draft has too."""
        return len(self.pairs) / max(1, self.of)

    def check(self) -> None:
        """Raise `PairError` if it is too little to draft with."""
        if self.share < FEWEST:
            raise PairError(
                f"target and draft use different tokenizers, with only {len(self.pairs):,} of the "
                f"target's {self.of:,} tokens in common: choose two models of one family."
            )


def shared_tokens(
    target: Any, draft: Any, sizes: tuple[int, int], ends: tuple[Iterable[int], Iterable[int]]
) -> SharedTokens:
    """What the tokenizers `target` and `draft` have in common.

    sizes: ids from these on are left out. ends: the ids that end a text. Those that are written
    alike are taken for the same token, and so are the lowest of the others.
    """
    ours, theirs = (
        Spelling({i: text for i, text in one.texts.items() if i < size}, one.byte_ids)
        for one, size in zip(map(spelling, (target, draft)), sizes, strict=True)
    )
    pairs = {i: theirs.ids[text] for text, i in ours.ids.items() if text in theirs.ids}
    end_pieces = [
        {piece: i for piece, i in zip(one.convert_ids_to_tokens(ids), ids, strict=True) if i < size}
        for one, ids, size in zip((target, draft), map(sorted, ends), sizes, strict=True)
    ]
    for end, its in _same_ends(*end_pieces):
        if end not in pairs and its not in pairs.values():
            pairs[end] = its
    return SharedTokens(ours, theirs, tuple(sorted(pairs.items())), *sizes)


def _same_ends(ours: dict[str, int], theirs: dict[str, int]) -> Iterator[tuple[int, int]]:
    """The ids of ends that are taken for the same token. ours, theirs: by how they are written."""
    alike = ours.keys() & theirs.keys()
    for piece in alike:
        yield ours[piece], theirs[piece]
    others = [
        min((i for piece, i in ends.items() if piece not in alike), default=None)
        for ends in (ours, theirs)
    ]
    if others[0] is not None and others[1] is not None:
        yield others[0], others[1]


_known: WeakKeyDictionary[Any, Spelling] = WeakKeyDictionary()


def spelling(tokenizer: Any) -> Spelling:
    """The bytes of a tokenizer's ids."""
    if tokenizer in _known:
        return _known[tokenizer]
    pieces: dict[str, int] = tokenizer.get_vocab()
    kinds = _decoder_kinds(tokenizer, pieces)
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = special_ids(tokenizer)
    texts: dict[int, bytes] = {}
    byte_ids: set[int] = set()
    for piece, i in pieces.items():
        if i in special:
            continue
        if "ByteFallback" in kinds and (found := BYTE_PIECE.fullmatch(piece)):
            texts[i] = bytes([int(found[1], 16)])
            byte_ids.add(i)
        else:
            # An added token is written as it is in every kind of vocabulary.
            texts[i] = _bytes_of(piece, set() if i in added else kinds, i in added)
    texts = {i: text for i, text in texts.items() if text}
    return _known.setdefault(tokenizer, Spelling(texts, frozenset(byte_ids)))


def _bytes_of(piece: str, kinds: set[str], as_it_is: bool) -> bytes:
    if "ByteLevel" in kinds:
        known = all(sign in BYTE_OF for sign in piece)
        return bytes(BYTE_OF[sign] for sign in piece) if known else b""
    if kinds & SENTENCEPIECE:
        piece = piece.replace(SPACE, " ")
    elif not as_it_is:  # whole words, or WordPiece
        piece = piece[2:] if piece.startswith("##") else f" {piece}"
    return piece.encode("utf-8", "ignore")


def _decoder_kinds(tokenizer: Any, pieces: Iterable[str]) -> set[str]:
    """The types of a fast tokenizer's decoders; guessed of one that is written in Python."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is not None:
        state = json.loads(decoder.__getstate__())
        return {one["type"] for one in state.get("decoders", [state])}
    signs = {sign for piece in pieces for sign in piece}
    if SPACE in signs:
        return {"ByteFallback"}
    return {"ByteLevel"} if "\u0120" in signs else set()  # its space

"""Merges of pieces as llama.cpp makes them, where the library `tokenizers` would make others.

That library ranks pairs of pieces. llama.cpp ranks what a pair becomes in a SentencePiece
vocabulary, and takes the leftmost of equal ones; and in a byte-level vocabulary a pair may become
what is no piece. So words are cut here, and the library only looks up the pieces.

https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

Rank = Callable[[str, str], float | None]
"""(left, right) -> the rank of their merge, the lowest of which is made first, or None."""


class ScoreMerges:
    """The merges of a SentencePiece vocabulary. scores: of each piece, the highest of which is made
    first."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores

    def rank(self, left: str, right: str) -> float | None:
        """See `Rank`."""
        score = self._scores.get(left + right)
        return None if score is None else -score

    def pieces(self, word: str) -> Iterator[tuple[int, int]]:
        """Where the pieces of a word begin and end."""
        yield from merged(word, self.rank)

    def pre_tokenize(self, text: Any) -> None:
        """What the library asks of a pre-tokenizer."""
        text.split(lambda _, word: [word[begin:end] for begin, end in self.pieces(str(word))])


class ListedMerges:
    """The merges that a file lists. ranks: of pairs. vocab: all pieces. whole: whether a word that
    is a piece is taken as it is. lines: whether that holds for words of line feeds. is_raw: whether
    pieces are plain text, of which single characters may be written as bytes."""

    def __init__(
        self,
        ranks: Mapping[tuple[str, str], int],
        vocab: Mapping[str, int],
        *,
        whole: bool,
        is_raw: bool,
    ) -> None:
        self._ranks = ranks
        self._vocab = vocab
        self._whole = whole
        self._is_raw = is_raw

    def rank(self, left: str, right: str) -> float | None:
        """See `Rank`."""
        return self._ranks.get((left, right))

    def pieces(self, word: str) -> Iterator[tuple[int, int]]:
        """Where the pieces of a word begin and end. Of what is no piece, llama.cpp keeps the single
        bytes that are."""
        is_whole = self._whole or (self._is_raw and not word.strip("\n"))
        if is_whole and word in self._vocab:
            yield 0, len(word)
            return
        for begin, end in merged(word, self.rank):
            if word[begin:end] in self._vocab:
                yield begin, end
                continue
            for position in range(begin, end):
                if self._is_raw or word[position].isascii():
                    yield position, position + 1

    def pre_tokenize(self, text: Any) -> None:
        """What the library asks of a pre-tokenizer."""
        text.split(lambda _, word: [word[begin:end] for begin, end in self.pieces(str(word))])


def merged(word: str, rank: Rank) -> list[tuple[int, int]]:
    """Where the pieces of a word begin and end once no merge is left: of the lowest rank first, and
    the leftmost of these."""
    ends = list(range(1, len(word) + 1))  # of the piece that begins at an index
    before = list(range(-1, len(word) - 1))  # where the piece before it begins
    is_gone = bytearray(len(word))
    waiting: list[tuple[float, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        found = rank(word[left:right], word[right : ends[right]])
        if found is not None:
            heappush(waiting, (found, left, right, ends[right]))

    for index in range(len(word) - 1):
        found = rank(word[index], word[index + 1])
        if found is not None:
            waiting.append((found, index, index + 1, index + 2))
    heapify(waiting)
    while waiting:
        _, left, right, end = heappop(waiting)
        if is_gone[left] or is_gone[right] or ends[left] != right or ends[right] != end:
            continue
        ends[left] = end
        is_gone[right] = True
        if end < len(word):
            before[end] = left
            offer(left, end)
        if before[left] >= 0:
            offer(before[left], left)
    return [(begin, ends[begin]) for begin in range(len(word)) if not is_gone[begin]]

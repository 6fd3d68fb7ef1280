"""Merges of pieces in llama.cpp's order, where the library `tokenizers` would merge differently.

That library ranks pairs of pieces. In a SentencePiece vocabulary llama.cpp ranks the merged piece,
and takes the leftmost of equal ones; in a byte-level vocabulary it may merge a pair into a text
that is not a piece. So words are cut here, and the library only looks up the pieces.

https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

Rank = Callable[[str, str], float | None]
"""(left, right) -> the rank of their merge, or None; the lowest rank is merged first."""


class Merges(ABC):
    """The rule by which words are cut into pieces."""

    @abstractmethod
    def pieces(self, word: str) -> Iterator[tuple[int, int]]:
        """The begin and end of each piece of a word."""

    def pre_tokenize(self, text: Any) -> None:
        """Cut a text into pieces, as the library expects of a pre-tokenizer."""
        text.split(self._cut)

    def _cut(self, _: int, word: Any) -> list[Any]:
        bounds = self.pieces(str(word))
        return [word[begin:end] for begin, end in bounds]


class ScoreMerges(Merges):
    """The merges of a SentencePiece vocabulary. scores: by piece; the highest is merged first."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores

    def rank(self, left: str, right: str) -> float | None:
        """See `Rank`."""
        score = self._scores.get(left + right)
        if score is None:
            return None
        return -score

    def pieces(self, word: str) -> Iterator[tuple[int, int]]:
        yield from merged(word, self.rank)


class ListedMerges(Merges):
    """The merges that a file lists. ranks: of pairs. vocab: all pieces. whole: whether a word that
    is a piece stays whole. is_raw: whether pieces are plain text, whose words of line feeds stay
    whole and whose single characters may be written as bytes."""

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
        """The begin and end of each piece of a word. Where a merge gives no piece, llama.cpp keeps
        those of its single bytes that are pieces."""
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


def merged(word: str, rank: Rank) -> list[tuple[int, int]]:
    """The begin and end of each piece of a word after all merges. The merge of the lowest rank
    goes first, and the leftmost of equal ones."""
    ends = list(range(1, len(word) + 1))  # of the piece that begins at an index
    before = list(range(-1, len(word) - 1))  # where the piece before it begins
    is_gone = bytearray(len(word))
    waiting: list[tuple[float, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        left_piece = word[left:right]
        right_piece = word[right : ends[right]]
        priority = rank(left_piece, right_piece)
        if priority is not None:
            heappush(waiting, (priority, left, right, ends[right]))

    for index in range(len(word) - 1):
        priority = rank(word[index], word[index + 1])
        if priority is not None:
            waiting.append((priority, index, index + 1, index + 2))
    heapify(waiting)
    while waiting:
        _, left, right, end = heappop(waiting)
        is_current = ends[left] == right and ends[right] == end
        if is_gone[left] or is_gone[right] or not is_current:
            continue
        ends[left] = end
        is_gone[right] = True
        if end < len(word):
            before[end] = left
            offer(left, end)
        if before[left] >= 0:
            offer(before[left], left)
    return [(begin, ends[begin]) for begin in range(len(word)) if not is_gone[begin]]

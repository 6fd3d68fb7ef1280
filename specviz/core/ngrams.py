"""An index of the last occurrence of each short run of tokens in a text."""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (4, 3, 2)  # tokens that must agree; one alone is a poor guide to the next token


class NgramIndex:
    """An index of each short run's last occurrence. It grows with the committed text."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        # By size: run of ids -> the position after its last occurrence, which holds an id.
        self._ends: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in SIZES}

    def extend(self, ids: Sequence[int]) -> None:
        """Add the committed `ids`, which begin with those added before."""
        for position in range(len(self._ids), len(ids)):
            for size, ends in self._ends.items():
                if position >= size:
                    ends[tuple(self._ids[-size:])] = position
            self._ids.append(ids[position])

    def match(self) -> tuple[int, int]:
        """The longest, then latest match of the text's end: how many ids agree (or 0), and the
        position after it."""
        for size, ends in self._ends.items():
            start = ends.get(tuple(self._ids[-size:]))
            if start is not None:
                return size, start
        return 0, 0

    def copied(self, start: int, count: int) -> list[int]:
        """Copy `count` ids from this position on."""
        copy = self._ids[start : start + count]
        # A match that overlaps the end of the text repeats itself.
        while len(copy) < count:
            copy += copy[: count - len(copy)]
        return copy

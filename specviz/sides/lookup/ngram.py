"""Drafts from the text so far: what followed the last occurrence of its last tokens.

Prompt lookup decoding, without any draft model: the tokens are certain, so q is one-hot, and the
verdict keeps each with the target's own probability of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.drafting import Drafter
from ...core.types import Draft, RunContext
from ...pairs.pair import Pair

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

SIZES = (4, 3, 2)  # tokens that must agree; one alone says too little about what follows


class NgramIndex:
    """Where each short run of ids occurred last; grows with the committed text."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        # Per size: a run of ids to the place after its last occurrence, where an id stands.
        self._places: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in SIZES}

    def extend(self, ids: Sequence[int]) -> None:
        """Add the committed `ids`, which begin with those added before."""
        for place in range(len(self._ids), len(ids)):
            for size, places in self._places.items():
                if place >= size:
                    places[tuple(self._ids[-size:])] = place
            self._ids.append(ids[place])

    def match(self) -> tuple[int, int]:
        """The longest, then latest match of the text's end: its ids (or 0), and where it ends."""
        for size, places in self._places.items():
            start = places.get(tuple(self._ids[-size:]))
            if start is not None:
                return size, start
        return 0, 0

    def copied(self, start: int, count: int) -> list[int]:
        """`count` ids from this place on."""
        found = self._ids[start : start + count]
        # A match that overlaps the end of the text repeats itself.
        while len(found) < count:
            found += found[: count - len(found)]
        return found


class NgramDrafter(Drafter):
    """Prompt lookup over prompt and output. It holds committed tokens only."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        self._run = run
        self._index = NgramIndex()

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids)
        size, start = self._index.match()
        return Draft.certain(self._index.copied(start, count), self._run) if size else None

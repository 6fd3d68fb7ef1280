"""Where each short run of tokens stood last in a text."""

from __future__ import annotations

from collections.abc import Sequence

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

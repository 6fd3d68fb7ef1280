"""Drafts from the text so far: what followed the last occurrence of its last tokens.

Prompt lookup decoding, without any draft model: the tokens are certain, so q is one-hot, and the
verdict keeps each with the target's own probability of it. A head on the target may draft where the
text does not repeat itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.drafting import Drafter
from ...core.kinds import resolved
from ...core.types import Draft, RunContext
from ...kinds import drafter_kind
from ...pairs.pair import Pair

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

SIZES = (4, 3, 2)  # tokens that must agree; one alone says too little about what follows
SHARE = 3  # a head drafts a third of the tokens that are due: its steps cost, copies do not
KEPT = {4: 2.0, 3: 1.2, 2: 0.5}
"""How many tokens of a copy are likely to be accepted, by how many agree before it, until copies of
the run itself were judged."""
LEAST = 0.35  # where fewer are likely, a head guesses better
MEMORY = 0.8  # each verdict multiplies the weight of older ones by this: about five copies count
RETURN = 0.03  # of the way back to `KEPT`, at each place where a copy was not tried


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
        """How many ids agree in the longest, then latest, match of the text's end, and the place
        behind it; 0 and 0 if there is none."""
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


class NgramHeadDrafter(Drafter):
    """Copies, which cost nothing, where enough of them is likely to be accepted; else the head's.

    What is likely is learnt in the run, by how many tokens agree before a copy, and twice as many
    are copied. All of it depends on committed tokens alone, so q is what each token was drawn from.
    """

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        self._run = run
        self._index = NgramIndex()
        self._head: Drafter = resolved(drafter_kind("head").make)(pair, run, target)
        self.form = self._head.form
        self._kept = dict(KEPT)
        self._size = self._length = 0  # of the last match that was copied, and of the text then

    def prefill(self, ids: Sequence[int]) -> float:
        return self._head.prefill(ids)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids)
        self._length = len(ids)
        self._size, start = self._index.match()
        likely = self._kept.get(self._size, 0.0)
        if likely >= LEAST:
            count = min(count, max(2, math.ceil(2 * likely)))
            return Draft.certain(self._index.copied(start, count), self._run)
        if self._size:
            self._kept[self._size] += RETURN * (KEPT[self._size] - likely)
            self._size = 0
        return self._head.draft(ids, -(-count // SHARE))

    def rollback(self, length: int) -> None:
        self._head.rollback(length)
        if self._size:
            accepted = length - self._length
            self._kept[self._size] = MEMORY * self._kept[self._size] + (1 - MEMORY) * accepted
            self._size = 0

    def step_cost(self) -> float:
        return self._head.step_cost()

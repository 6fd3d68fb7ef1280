"""Drafts from the text so far: what followed the last occurrence of its last tokens.

Prompt lookup decoding, without any draft model: the tokens are certain, so q is one-hot, and the
verdict keeps each with the target's own probability of it. A head on the target may draft where the
text does not repeat itself.
"""

from __future__ import annotations

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
BEFORE_A_HEAD = (4,)  # where fewer agree, a head guesses better
SHARE = 3  # a head drafts a third of the tokens that are due: its steps cost, copies do not


class NgramIndex:
    """Where each short run of ids occurred last; grows with the committed text."""

    def __init__(self, sizes: Sequence[int] = SIZES) -> None:
        self._ids: list[int] = []
        # Per size: a run of ids to the place after its last occurrence, where an id stands.
        self._places: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in sizes}

    def extend(self, ids: Sequence[int]) -> None:
        """Add the committed `ids`, which begin with those added before."""
        for place in range(len(self._ids), len(ids)):
            for size, places in self._places.items():
                if place >= size:
                    places[tuple(self._ids[-size:])] = place
            self._ids.append(ids[place])

    def continuation(self, count: int) -> list[int]:
        """Up to `count` ids that followed the longest, then latest, match of the text's end."""
        for size, places in self._places.items():
            start = places.get(tuple(self._ids[-size:]))
            if start is not None:
                found = self._ids[start : start + count]
                # A match that overlaps the end of the text repeats itself.
                while len(found) < count:
                    found += found[: count - len(found)]
                return found
        return []


class NgramDrafter(Drafter):
    """Prompt lookup over prompt and output. It holds committed tokens only.

    sizes: how many tokens may agree, the largest first.
    """

    def __init__(
        self, pair: Pair, run: RunContext, target: DecodingPath, sizes: Sequence[int] = SIZES
    ) -> None:
        self._run = run
        self._index = NgramIndex(sizes)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids)
        found = self._index.continuation(count)
        if not found:
            return None
        return Draft.certain(found, self._run)


class NgramHeadDrafter(Drafter):
    """Copies, which cost nothing and hold for longer than the chain of a head; else the head's.

    Which of both drafts depends on committed tokens alone, so q is what each token was drawn from.
    """

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        self._copies = NgramDrafter(pair, run, target, BEFORE_A_HEAD)
        self._head: Drafter = resolved(drafter_kind("head").make)(pair, run, target)
        self.form = self._head.form

    def prefill(self, ids: Sequence[int]) -> float:
        return self._head.prefill(ids)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        copied = self._copies.draft(ids, count)
        return self._head.draft(ids, -(-count // SHARE)) if copied is None else copied

    def rollback(self, length: int) -> None:
        self._head.rollback(length)

    def step_cost(self) -> float:
        return self._head.step_cost()

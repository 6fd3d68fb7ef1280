"""Drafts copied from the text so far: the tokens after the last occurrence of its last tokens.

Prompt lookup decoding, without any draft model. The tokens are certain, so q is one-hot, and the
verdict keeps each with the target's own probability of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.drafter import Drafter
from ...core.ngrams import NgramIndex
from ...core.pair import Pair
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath


class NgramDrafter(Drafter):
    """Prompt lookup over prompt and output. It holds committed tokens only."""

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        self._run = run
        self._index = NgramIndex()

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids)
        size, start = self._index.match()
        if size == 0:
            return None
        copy = self._index.copied(start, count)
        return Draft.certain(copy, self._run)

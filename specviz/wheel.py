"""Inverse CDF in the host's memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]

SIDE = 64  # entries of a block of a row
ONES = np.ones(SIDE)


class Wheel:
    """Draws from one row at a time: which block of it, then which place.

    Two short running sums take half the time of a long one, which waits for each addition.
    """

    def __init__(self, vocab: int) -> None:
        blocks = -(-vocab // SIDE)
        self._blocks: Doubles = np.zeros((blocks, SIDE))
        self._weights = self._blocks.reshape(-1)[:vocab]
        self._ends: Doubles = np.zeros(blocks)

    def load(self, weights: Floats) -> float:
        """Take a row [vocab], not negative; returns its sum."""
        self._weights[:] = weights
        self._ends = (self._blocks @ ONES).cumsum()
        return float(self._ends[-1])

    def place(self, uniform: float) -> int:
        """The id that `uniform` in [0, 1) falls on, never one of weight zero.

        NaN weights give some id of the vocabulary: the models' tables are safe until the caller
        has seen that the logits were not finite.
        """
        left = uniform * self._ends[-1]
        block = min(int(self._ends.searchsorted(left, side="right")), len(self._ends) - 1)
        if block:
            left -= self._ends[block - 1]
        within = self._blocks[block].cumsum()
        # The block's own sum may round to less than what is left of the draw.
        side = "right" if left < within[-1] else "left"
        place = int(within.searchsorted(min(left, within[-1]), side=side))
        return min(block * SIDE + min(place, SIDE - 1), len(self._weights) - 1)

"""Inverse CDF in the host's memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]

SIDE = 64  # entries of a block of a row
ONES = np.ones(SIDE, np.float32)
# Of a row's sum: more than the fp32 sums of its blocks, each off by 63 roundings at most, can
# move a draw and the end of an entry's share together.
MARGIN = 1e-5


class Wheel:
    """Draws from one row at a time, as one running sum in fp64 would.

    A long sum waits for each of its additions. Sums of blocks in fp32 tell which block and which
    place, unless the draw falls next to the end of an entry's share: only then is it made.
    """

    def __init__(self, vocab: int) -> None:
        blocks = -(-vocab // SIDE)
        self._row: Floats = np.zeros(vocab, np.float32)
        self._padded = np.zeros(blocks * SIDE, np.float32) if vocab % SIDE else None
        self._blocks: Floats = np.zeros((blocks, SIDE), np.float32)
        self._ends: Doubles = np.zeros(blocks)
        self._within: Doubles = np.zeros(SIDE)

    def load(self, weights: Floats) -> float:
        """Take a row [vocab], not negative, that must not change before it is drawn from;
        returns its sum."""
        self._row = whole = weights
        if self._padded is not None:
            whole = self._padded
            whole[: len(weights)] = weights
        self._blocks = whole.reshape(-1, SIDE)
        np.add.accumulate(self._blocks.dot(ONES), dtype=np.float64, out=self._ends)
        return self._ends.item(-1)

    def place(self, uniform: float) -> int:
        """The id that `uniform` in [0, 1) falls on, never one of weight zero.

        NaN weights give some id of the vocabulary: the models' tables are safe until the caller
        has seen that the logits were not finite.
        """
        ends, within = self._ends, self._within
        mass = ends.item(-1)
        left = uniform * mass
        block = int(ends.searchsorted(left, "right"))
        if block < len(ends):
            np.add.accumulate(self._blocks[block], dtype=np.float64, out=within)
            left -= ends.item(block - 1) if block else 0.0
            place = int(within.searchsorted(left, "right"))
            if place < SIDE:
                before = within.item(place - 1) if place else 0.0
                if before + MARGIN * mass < left < within.item(place) - MARGIN * mass:
                    return block * SIDE + place
        return placed(self._row, uniform)


def placed(weights: Floats, uniform: float) -> int:
    """`Wheel.place` by one running sum."""
    sums = weights.cumsum(dtype=np.float64)
    # uniform is at most 1 - 2^-53, so the product stays below the sum: an id with mass.
    place = int(sums.searchsorted(uniform * sums.item(-1), "right"))
    return min(place, len(weights) - 1)

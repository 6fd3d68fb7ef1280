"""Inverse CDF in the host's memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]

SIDE = 64  # entries of a block of a row
ONES = np.ones(SIDE, np.float32)
# Of a row's sum: more than rounding in fp32, 63 times a block at most, moves a draw and the end
# of an entry's share together.
MARGIN = 1e-5


class Wheel:
    """Draws from one row at a time, as one running sum in fp64 would.

    A long sum waits for each of its additions. Sums of blocks in fp32 tell which block and which
    place, unless the draw falls next to the end of an entry's share: only then is it made.
    """

    def __init__(self, vocab: int) -> None:
        self._whole = vocab - vocab % SIDE  # entries of whole blocks

    def load(self, weights: Floats) -> float:
        """Take a row [vocab], not negative, that must not change before it is drawn from;
        returns its sum."""
        self._row = weights
        shares: list[float] = weights[: self._whole].reshape(-1, SIDE).dot(ONES).tolist()
        if self._whole < len(weights):
            rest = weights[self._whole :]
            shares.append(float(rest.dot(ONES[: len(rest)])))
        self._shares, self._sum = shares, sum(shares)
        return self._sum

    def place(self, uniform: float) -> int:
        """The id that `uniform` in [0, 1) falls on, never one of weight zero.

        NaN weights give some id of the vocabulary: the models' tables are safe until the caller
        has seen that the logits were not finite.
        """
        block, left, _ = _share(self._shares, uniform * self._sum)
        begin = block * SIDE
        place, left, share = _share(self._row[begin : begin + SIDE].tolist(), left)
        margin = MARGIN * self._sum
        if margin < left < share - margin:
            return begin + place
        return placed(self._row, uniform)


def _share(shares: list[float], left: float) -> tuple[int, float, float]:
    """Which of `shares`, one after the other, `left` falls into, how far, and how large it is;
    the last one and 0 if it falls behind all."""
    for place, share in enumerate(shares):
        if left < share:
            return place, left, share
        left -= share
    return len(shares) - 1, left, 0.0


def placed(weights: Floats, uniform: float) -> int:
    """`Wheel.place` by one running sum."""
    # torch's sum of a large vocabulary takes a tenth of NumPy's time.
    sums = torch.from_numpy(weights).cumsum(-1, dtype=torch.float64).numpy()
    # uniform is at most 1 - 2^-53, so the product stays below the sum: an id with mass.
    place = int(sums.searchsorted(uniform * sums.item(-1), "right"))
    return min(place, len(weights) - 1)

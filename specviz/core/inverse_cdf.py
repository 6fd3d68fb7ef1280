"""Draws from long rows in the host's memory."""

from __future__ import annotations

import numpy as np
import torch

from .types import Floats

BLOCK = 64  # entries of a row that are summed at once
ONES = np.ones(BLOCK, np.float32)
# Share of a row's sum: more than rounding in fp32, 63 times a block at most, moves a draw and the
# end of an entry's share together.
MARGIN = 1e-5


class InverseCdf:
    """Draws from one row at a time, exactly as one running sum in fp64 would.

    Each addition of a long sum waits for the one before it. Sums of blocks in fp32 tell which
    block and which place, unless the draw falls next to the end of an entry's share: only then is
    the long sum made. This saves 3 % of a sampled round of the built-in pair.
    """

    def __init__(self, vocab: int) -> None:
        self._whole = vocab - vocab % BLOCK  # entries of whole blocks

    def load(self, weights: Floats) -> float:
        """Take a row [vocab] without negative entries, which must not change before it is drawn
        from; returns its sum."""
        self._row = weights
        shares: list[float] = weights[: self._whole].reshape(-1, BLOCK).dot(ONES).tolist()
        if self._whole < len(weights):
            rest = weights[self._whole :]
            shares.append(float(rest.dot(ONES[: len(rest)])))
        self._shares, self._sum = shares, sum(shares)
        return self._sum

    def draw(self, uniform: float) -> int:
        """The id that `uniform` in [0, 1) falls on, never one of weight zero.

        NaN weights give some id of the vocabulary: the models' tables are safe until the caller
        has seen that the logits were not finite.
        """
        block, left, _ = _share(self._shares, uniform * self._sum)
        begin = block * BLOCK
        place, left, share = _share(self._row[begin : begin + BLOCK].tolist(), left)
        margin = MARGIN * self._sum
        if margin < left < share - margin:
            return begin + place
        return self._by_one_sum(uniform)

    def _by_one_sum(self, uniform: float) -> int:
        # torch's sum of a large vocabulary takes a tenth of NumPy's time.
        sums = torch.from_numpy(self._row).cumsum(-1, dtype=torch.float64).numpy()
        # uniform is at most 1 - 2^-53, so the product stays below the sum: an id with mass.
        place = int(sums.searchsorted(uniform * sums.item(-1), "right"))
        return min(place, len(self._row) - 1)


def _share(shares: list[float], left: float) -> tuple[int, float, float]:
    """Which of `shares`, laid end to end, `left` falls into, how far into it, and its size; the
    last one and 0 if it falls behind all."""
    for place, share in enumerate(shares):
        if left < share:
            return place, left, share
        left -= share
    return len(shares) - 1, left, 0.0

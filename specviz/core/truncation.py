"""Top-k and top-p, and the largest entries of distributions over a large vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

LISTS = (64, 1024)
"""The numbers of entries that top-p looks at on a processor, before it sorts a whole vocabulary."""

BLOCK = 64  # entries
MIN_BLOCKS = 8  # per wanted entry: with fewer, most blocks would be searched anyway


def truncated(p: Tensor, top_k: int, top_p: float) -> Tensor:
    """`p` restricted to its most probable entries and normalised again; [n, vocab] to [n, vocab].

    Top-p keeps the fewest entries of those that top-k keeps whose share of their mass reaches
    `top_p`. Of entries that are tied, those with the lowest ids stay. On any device but a processor
    no shape depends on a value, and the host waits for nothing.
    """
    vocab = p.shape[-1]
    k = min(top_k, vocab) or vocab
    if p.device.type == "cpu":
        lengths = LISTS if k == vocab else (k + 1,)
        for length in lengths:
            kept = _kept_of_list(p, k, top_p, length)
            if kept is not None:
                return kept
    values = p.topk(k).values
    count = _kept_count(values, k < vocab, top_p)
    smallest = values.gather(-1, count - 1)  # the least probability that stays
    above = p > smallest
    tied = p == smallest
    # Of entries tied at this probability, the first ones stay, up to the count.
    kept_ties = tied & (tied.cumsum(-1) <= count - above.sum(-1, keepdim=True))
    return _normalised(torch.where(above | kept_ties, p, 0.0))


def _kept_of_list(p: Tensor, k: int, top_p: float, length: int) -> Tensor | None:
    """Truncate `p` by the `length` largest entries of each row, without a look at the others.

    Returns None if these do not decide it: they are no part of the row, more than they may stay, or
    entries are tied at the least probability that stays.
    """
    if length >= p.shape[-1]:
        return None
    values, ids = largest(p, length)
    count = _kept_count(values[:, :k], k < p.shape[-1], top_p)
    if torch.any(count == length):
        return None
    if torch.any(values.gather(-1, count - 1) == values.gather(-1, count)):
        return None
    kept = torch.where(torch.arange(length) < count, values, 0.0)
    return torch.zeros_like(p).scatter_(-1, ids, _normalised(kept))


def _kept_count(values: Tensor, has_top_k: bool, top_p: float) -> Tensor:
    """How many of the largest entries of each row stay, int64 [n, 1]; at least one.

    values: these entries, descending, [n, listed]: all that top-k keeps, if it applies.
    """
    mass = values.double().cumsum(-1)
    total = mass[:, -1:] if has_top_k else torch.ones_like(mass[:, :1])
    before = mass - values.double()
    kept = before < top_p * total if top_p < 1.0 else torch.ones_like(before, dtype=torch.bool)
    return kept.sum(-1, keepdim=True).clamp_(min=1)


def _normalised(weights: Tensor) -> Tensor:
    """Divide each row by its sum, in fp64: then it hardly depends on how many zeros are in it."""
    return weights / weights.sum(-1, keepdim=True, dtype=torch.float64).to(weights.dtype)


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest entries of each row [n, vocab], descending, and their ids; both [n, count].

    This is `topk`, which is slow for a large vocabulary on a processor. There, only the blocks with
    the largest maxima are searched: no other block can have one of these entries.
    """
    vocab = rows.shape[-1]
    blocks = vocab // BLOCK
    if rows.device.type != "cpu" or blocks < MIN_BLOCKS * count:
        best = rows.topk(count)
        return best.values, best.indices
    maxima = rows[:, : blocks * BLOCK].unflatten(-1, (blocks, BLOCK)).amax(-1)
    starts = BLOCK * maxima.topk(count).indices  # [n, count]
    ids = (starts.unsqueeze(-1) + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(blocks * BLOCK, vocab).expand(len(rows), -1)
    ids = torch.cat([ids, rest], -1)
    best = rows.gather(-1, ids).topk(count)
    return best.values, ids.gather(-1, best.indices)

"""The token rule of `verdict.decide_in_numpy` on tensors, on any device and in CUDA graphs.

The other verdicts have its signature and keep its promises: fp32 rows, fp64 sums, no wait for the
device, and one further draw, used or not, so that a seed gives all of them the same draws. Those of
`sides.verdicts` keep two more: a draft whose u is infinite is never kept, and a row of zeros in q
gives a bonus. In a greedy run every row is one-hot and all rules keep the same drafts, so such a
run always uses the token rule (`Settings.effective_verdict`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .tensor_draws import draw, uniforms, usable

if TYPE_CHECKING:
    from .protocols import RandomSource


def decide_on_tensors(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource
) -> Tensor:
    """Keep x with probability min(1, p(x) / q(x)), and stop at the first rejection. Return int64
    [2], the number of kept drafts and the next id, without leaving the device.

    p: fp32 [gamma + 1, vocab], the target's distributions; q: fp32 [gamma, vocab], the very
    rows that `drafted` (int64 [gamma]) was drawn from; u: [gamma], uniform in [0, 1), fp32 or
    fp64 (rounding fp64 draws to fp32 can make a 1, which would reject a certain token).
    `source` gives the one further draw. A draft whose u is infinite is never kept; a row of zeros
    in q, reached without a rejection, makes the draw the bonus. Both serve a run of drafts padded
    to a fixed width.
    """
    p_drafted = drafted_probabilities(p, drafted)
    q_drafted = drafted_probabilities(q, drafted)
    # Strict: with u = 0 a token that the target rules out (p = 0) must still be rejected.
    keep = u * q_drafted < p_drafted
    accepted = keep.long().cumprod(0).sum()
    # With a row of zeros below q, the bonus is the correction of a draft with q = 0.
    q_ended = torch.cat([q, torch.zeros_like(p[:1])])
    position = accepted.unsqueeze(0)
    p_last = p.index_select(0, position)[0]
    q_last = q_ended.index_select(0, position)[0]
    # `draw` normalises.
    residual = (p_last - q_last).clamp_(min=0.0)
    weights = torch.where(usable(residual.sum()), residual, p_last)
    return torch.stack([accepted, draw(weights, uniforms(1, source)[0])])


def drafted_probabilities(rows: Tensor, drafted: Tensor) -> Tensor:
    """The probability of each drafted id in its row, fp64 [gamma]. rows: [gamma or more, vocab]."""
    return rows[: len(drafted)].gather(-1, drafted.unsqueeze(-1)).squeeze(-1).double()

"""The verdicts on tensors, on any device and in CUDA graphs: one pure function each.

`decide` is the token rule of `verdict.decided`. All have its signature and its promises: fp32 rows,
fp64 sums, no wait for the device; a draft whose u is infinite is never kept, and behind it, where a
row of q is all zeros, stands a bonus. All take one further draw, used or not, so that a seed gives
every verdict the same draws. In a greedy run every row is one-hot, and all keep the same drafts:
`rule` gives the token rule then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .sampling import draw, uniforms
from .types import Verdict
from .views import residual, usable

if TYPE_CHECKING:
    from .protocols import RandomSource

TYPICAL_EPSILON = 0.09
TYPICAL_DELTA = 0.3
"""Typical acceptance keeps a draft x where p(x) > min(epsilon, delta exp(-H(p))): the values of
Medusa's published code, delta the root of epsilon (Cai et al. 2024, arXiv 2401.10774)."""


def decide(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource) -> Tensor:
    """Keep x with probability min(1, p(x) / q(x)), stop at the first rejection: int64 [2], how many
    are kept and the next id, without leaving the device.

    p: fp32 [gamma + 1, vocab], the target's distributions; q: fp32 [gamma, vocab], the very
    rows that `drafted` (int64 [gamma]) was drawn from; u: [gamma], uniform in [0, 1), fp32 or
    fp64 (rounding fp64 draws to fp32 can make a 1, which would reject a certain token).
    `source` gives the one further draw. A draft whose u is infinite is never kept; a row of zeros
    in q, reached without a rejection, makes the draw the bonus. Both serve a run of drafts padded
    to a fixed width.
    """
    p_drafted, q_drafted = _at(p, drafted), _at(q, drafted)
    # Strict: with u = 0 a token that the target rules out (p = 0) must still be rejected.
    keep = u * q_drafted < p_drafted
    accepted = keep.long().cumprod(0).sum()
    # A row of zeros under q makes the bonus the same formula as the correction.
    q_ended = torch.cat([q, torch.zeros_like(p[:1])])
    row = accepted.unsqueeze(0)
    p_last, q_last = p.index_select(0, row)[0], q_ended.index_select(0, row)[0]
    # The residual, not normalised: a draw takes its share of any mass.
    left = (p_last - q_last).clamp_(min=0.0)
    weights = torch.where(usable(left.sum()), left, p_last)
    return torch.stack([accepted, draw(weights, uniforms(1, source)[0])])


def _at(rows: Tensor, drafted: Tensor) -> Tensor:
    """The entries of the first gamma rows at the drafted ids, fp64 [gamma]."""
    return rows[: len(drafted)].gather(-1, drafted.unsqueeze(-1)).squeeze(-1).double()


def verify(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, generator: torch.Generator) -> Verdict:
    """`decide` as a `Verdict`, on the host."""
    return Verdict.on(len(drafted), *decide(p, q, drafted, u, generator).tolist())


def decide_block(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource) -> Tensor:
    """Block verification (Sun et al. 2024, arXiv 2403.10444, algorithm 2).

    Keeps all drafts up to the last one whose u is below its threshold (`block_numbers`), then
    draws from norm(max(0, weight p - q)) of the next place. The text follows p exactly, and no
    other exact verdict keeps more in expectation. Nothing is carried to the next round.
    Arguments and result are those of `decide`.
    """
    weight, threshold = block_numbers(p, q, drafted)
    places = torch.arange(len(drafted) + 1, device=p.device)
    accepted = (torch.cat([u.new_zeros(1), u < threshold]).bool() * places).amax()
    row = accepted.unsqueeze(0)
    before = torch.cat([weight.new_ones(1), weight]).index_select(0, row)
    q_last = torch.cat([q, torch.zeros_like(p[:1])]).index_select(0, row)[0]
    p_last = p.index_select(0, row)[0]
    left = (before.float() * p_last - q_last).clamp_(min=0.0)
    weights = torch.where(usable(left.sum()), left, p_last)
    return torch.stack([accepted, draw(weights, uniforms(1, source)[0])])


def block_numbers(p: Tensor, q: Tensor, drafted: Tensor) -> tuple[Tensor, Tensor]:
    """What block verification compares, fp64 [gamma] each, in the order of the drafts.

    weight: min(1, weight before * p / q) of the draft, from 1: p_i of the paper's algorithm 2.
    threshold: S / (S + 1 - weight), where S is the sum of max(0, weight p - q) over the vocabulary
    at the next place: h_i of the paper. The last draft's is its weight, since nothing was drafted
    behind it. p: fp32 [gamma + 1, vocab]; q: fp32 [gamma, vocab]; drafted: int64 [gamma].
    """
    p_drafted, q_drafted = _at(p, drafted), _at(q, drafted)
    ratio = torch.where(q_drafted > 0, p_drafted / q_drafted, 0.0)  # 0 / 0 in a padded width
    product, products = ratio.new_ones(()), []
    for one in ratio.unbind():
        product = (product * one).clamp(max=1.0)
        products.append(product)
    weight = torch.stack(products) if products else ratio
    # A row of zeros behind the last draft makes its threshold the same formula.
    after = torch.cat([q[1:], torch.zeros_like(p[:1])])[: len(drafted)]
    left = (weight.float().unsqueeze(-1) * p[1:] - after).clamp_(min=0.0)
    mass = left.sum(-1, dtype=torch.float64)  # S
    short = 1.0 - weight
    # 0 / 0 where the weight is 1 and the next p and q agree: the next draft is then kept anyway.
    threshold = torch.where(mass + short > 0, mass / (mass + short), 1.0)
    return weight, threshold


def decide_exact_match(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource
) -> Tensor:
    """Keep a draft only if the target's own draw, made from p with its u, is the same token.

    What is emitted are always the target's own draws, so the text follows p exactly. A draft
    drawn from q is kept with probability sum(p q), never more than sum(min(p, q)).
    Arguments and result are those of `decide`.
    """
    last = uniforms(1, source)
    judged = torch.isfinite(u)
    draws = torch.cat([torch.where(judged, u.double(), last), last])
    own = draw(p, draws)  # [gamma + 1]
    accepted = ((own[:-1] == drafted) & judged).long().cumprod(0).sum()
    return torch.stack([accepted, own.index_select(0, accepted.unsqueeze(0))[0]])


def decide_typical(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource
) -> Tensor:
    """Typical acceptance (Cai et al. 2024, arXiv 2401.10774, section 2.3.1): not exact.

    Keeps a draft while p(x) is above its threshold (`typical_thresholds`), however likely the
    draft was to propose it; then draws from p. No u is compared with anything. The paper keeps
    the first draft without a condition, because it is the target's own; here the target's own
    token follows instead.
    Arguments and result are those of `decide`.
    """
    keep = (_at(p, drafted) > typical_thresholds(p[: len(drafted)])) & torch.isfinite(u)
    accepted = keep.long().cumprod(0).sum()
    p_last = p.index_select(0, accepted.unsqueeze(0))[0]
    return torch.stack([accepted, draw(p_last, uniforms(1, source)[0])])


def typical_thresholds(p: Tensor) -> Tensor:
    """min(epsilon, delta exp(-H(p))) of each row, fp32 [n, vocab] to fp64 [n]; H in nats."""
    entropy = torch.special.entr(p).sum(-1, dtype=torch.float64)
    return (TYPICAL_DELTA * torch.exp(-entropy)).clamp(max=TYPICAL_EPSILON)


def block_shown(p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """The numbers of block verification."""
    weight, threshold = block_numbers(p, q, drafted)
    return {"weight": weight, "threshold": threshold}


def left_of_block(p: Tensor, q: Tensor, drafted: Tensor, place: int) -> Tensor:
    """What block verification draws a correction from."""
    if not place:
        return residual(p[place], q[place])
    weight = block_numbers(p, q, drafted)[0][place - 1]
    return residual(weight.float() * p[place], q[place], p[place])


def exact_match_shown(p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """How likely a draft was to be the target's own draw."""
    return {"chance": (p[: len(drafted)] * q).sum(-1)}


def left_of_exact_match(p: Tensor, q: Tensor, drafted: Tensor, place: int) -> Tensor:
    """The target's own draws, but for the one that would have kept the draft."""
    at = drafted[place : place + 1]
    return residual(p[place], torch.zeros_like(p[place]).scatter(0, at, 1.0))


def typical_shown(p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """The thresholds of typical acceptance, and the q of all that is above them."""
    judged = p[: len(drafted)]
    threshold = typical_thresholds(judged)
    above = torch.where(judged > threshold.unsqueeze(-1), q, 0.0)
    return {"threshold": threshold, "chance": above.sum(-1)}

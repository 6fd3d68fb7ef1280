"""Block verification: all drafts of a round are judged together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.records import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ...core.protocols import RandomSource
    from ...core.types import Floats


def decide_block(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource) -> Tensor:
    """Block verification (Sun et al. 2024, arXiv 2403.10444, algorithm 2).

    Keeps all drafts up to the last one whose u is below its threshold (`block_numbers`), then
    draws from norm(max(0, weight p - q)) at the next position. The text follows p exactly, and no
    other exact verdict keeps more in expectation. Nothing is carried to the next round.
    Arguments and result are those of `core.tensor_verdict.decide_on_tensors`.
    """
    import torch

    from ...core.tensor_draws import draw, uniforms, usable

    weight, threshold = block_numbers(p, q, drafted)
    counts = torch.arange(len(drafted) + 1, device=p.device)
    passes = torch.cat([u.new_zeros(1), u < threshold]).bool()  # the first is of no draft
    accepted = (passes * counts).amax()
    position = accepted.unsqueeze(0)
    weights_before = torch.cat([weight.new_ones(1), weight])  # of each position
    before = weights_before.index_select(0, position)
    p_last = p.index_select(0, position)[0]
    residual = before.float() * p_last
    if len(drafted) > 0:  # a static shape
        # Nothing was drafted at the last position, whatever q is there.
        q_last = q.index_select(0, position.clamp(max=len(drafted) - 1))[0]
        residual = (residual - q_last * (position < len(drafted))).clamp_(min=0.0)
    distribution = torch.where(usable(residual.sum()), residual, p_last)
    uniform = uniforms(1, source)[0]
    next_id = draw(distribution, uniform)
    return torch.stack([accepted, next_id])


def block_numbers(p: Tensor, q: Tensor, drafted: Tensor) -> tuple[Tensor, Tensor]:
    """The weights and thresholds of block verification, fp64 [gamma] each, in the order of the
    drafts.

    weight: min(1, weight before * p / q) of the draft, from 1: p_i of the paper's algorithm 2.
    threshold: S / (S + 1 - weight), where S is the sum of max(0, weight p - q) over the vocabulary
    at the next position: h_i of the paper. The last draft's threshold is its weight, since nothing
    was drafted after it. p: fp32 [gamma + 1, vocab]; q: fp32 [gamma, vocab]; drafted: int64
    [gamma].
    """
    import torch

    from ...core.tensor_verdict import drafted_probabilities

    p_drafted = drafted_probabilities(p, drafted)
    q_drafted = drafted_probabilities(q, drafted)
    ratios = torch.where(q_drafted > 0, p_drafted / q_drafted, 0.0)  # 0 / 0 in a padded width
    product = ratios.new_ones(())
    products = []
    for ratio in ratios.unbind():
        product = (product * ratio).clamp(max=1.0)
        products.append(product)
    weight = torch.stack(products) if products else ratios
    residual = torch.mul(weight[:-1].float().unsqueeze(-1), p[1 : len(drafted)])
    mass = residual.sub_(q[1:]).clamp_(min=0.0).sum(-1).double()  # S
    short = 1.0 - weight[:-1]
    # 0 / 0 where the weight is 1 and the next p and q agree: the next draft is then kept anyway.
    threshold = torch.where(mass + short > 0, mass / (mass + short), 1.0)
    threshold = torch.cat([threshold, weight[-1:]])
    return weight, threshold


def block_in_numpy(
    p: Floats, q: Floats, drafted: Sequence[int], u: Sequence[float], last: float
) -> tuple[int, int]:
    """Compute `decide_block` in the host's memory, where few calls are faster.

    Arguments and result are those of `core.verdict.decide_in_numpy`.
    """
    import numpy as np

    from ...core.draws import drawn_id
    from ...core.verdict import residual_weights, surplus

    accepted = 0
    weight = weight_before = 1.0
    for position, (token_id, uniform) in enumerate(zip(drafted, u, strict=True)):
        q_drafted = q.item(position, token_id)
        ratio = p.item(position, token_id) / q_drafted if q_drafted > 0 else 0.0
        weight = min(1.0, weight * ratio)
        if weight == 0.0:  # so are all later ones
            break
        threshold = weight
        if position + 1 < len(drafted):
            weighted_p = np.float32(weight) * p[position + 1]
            mass = float(surplus(weighted_p, q[position + 1]).sum())  # S
            short = 1.0 - weight
            threshold = mass / (mass + short) if mass + short > 0 else 1.0
        if uniform < threshold:
            accepted = position + 1
            weight_before = weight
    weights = p[accepted]
    if accepted < len(drafted):
        weighted_p = np.float32(weight_before) * weights
        weights = residual_weights(weighted_p, q[accepted], otherwise=weights)
    return accepted, drawn_id(weights, last)


def block_shown(p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """The numbers on the cards of block verification: `block_numbers` by name."""
    weight, threshold = block_numbers(p, q, drafted)
    return {"weight": weight, "threshold": threshold}


def block_correction(p: Tensor, q: Tensor, drafted: Tensor, position: int) -> Tensor:
    """The distribution from which block verification draws a correction."""
    from ...core.tensor_draws import residual

    if position == 0:
        return residual(p[0], q[0])
    weight, _ = block_numbers(p, q, drafted)
    weighted_p = weight[position - 1].float() * p[position]
    return residual(weighted_p, q[position], p[position])


BLOCK = VerdictKind(
    name="block",
    decide=decide_block,
    decide_on_host=block_in_numpy,
    label="block",
    clause="all drafts of a round are judged together",
    exactness_note="Exact does not mean the same words, it means the same chances. Block "
    "verification judges the guesses of a round together: it accepts more of them than separate "
    "tests would, and corrects exactly for what it rejects, so every text keeps the probability "
    "that the target alone gives it (Sun et al. 2024).",
    note="The guesses are judged together, but shown one after the other: all up to the last one "
    "whose draw is below its threshold are accepted. So the text follows p, and on average at "
    "least as many are accepted as with separate tests.",
    correction_label="residual max(0, w p − q)",
    beta_label="mean overlap of the two distributions, as in the token rule",
    threshold="u",
    weighted=True,
    judges_jointly=True,
    numbers=block_shown,
    correction=block_correction,
)

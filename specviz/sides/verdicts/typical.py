"""Typical acceptance, which changes the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.records import VerdictKind

if TYPE_CHECKING:
    from torch import Tensor

    from ...core.protocols import RandomSource

TYPICAL_EPSILON = 0.09
TYPICAL_DELTA = 0.3
"""Typical acceptance keeps a draft x where p(x) > min(epsilon, delta exp(-H(p))): the values of
Medusa's published code, delta the root of epsilon (Cai et al. 2024, arXiv 2401.10774)."""


def decide_typical(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource
) -> Tensor:
    """Typical acceptance (Cai et al. 2024, arXiv 2401.10774, section 2.3.1): not exact.

    Keeps a draft while p(x) is above its threshold (`typical_thresholds`), however likely the
    draft was to propose it; then draws from p. No u is compared with anything. The paper keeps
    the first draft without a condition, because it is the target's own; here the target's own
    token follows instead.
    Arguments and result are those of `core.tensor_verdict.decide_on_tensors`.
    """
    import torch

    from ...core.tensor_draws import draw, uniforms
    from ...core.tensor_verdict import drafted_probabilities

    judged = p[: len(drafted)]
    is_likely = drafted_probabilities(p, drafted) > typical_thresholds(judged)
    keep = is_likely & torch.isfinite(u)
    accepted = keep.long().cumprod(0).sum()
    p_last = p.index_select(0, accepted.unsqueeze(0))[0]
    next_id = draw(p_last, uniforms(1, source)[0])
    return torch.stack([accepted, next_id])


def typical_thresholds(p: Tensor) -> Tensor:
    """min(epsilon, delta exp(-H(p))) of each row, fp32 [n, vocab] to fp64 [n]; H in nats."""
    import torch

    entropy = torch.special.entr(p).sum(-1, dtype=torch.float64)
    return (TYPICAL_DELTA * torch.exp(-entropy)).clamp(max=TYPICAL_EPSILON)


def typical_shown(p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """The numbers on the cards of typical acceptance: the thresholds, and the q of all tokens
    above them."""
    import torch

    judged = p[: len(drafted)]
    threshold = typical_thresholds(judged)
    above = torch.where(judged > threshold.unsqueeze(-1), q, 0.0)
    return {"threshold": threshold, "chance": above.sum(-1)}


TYPICAL = VerdictKind(
    name="typical",
    decide=decide_typical,
    label="typical",
    exact=False,
    choice="Typical (changes the text)",
    clause="drafts that the target finds likely enough are kept",
    exactness_note="This rule is not exact. A guess is kept if the target finds it likely enough, "
    "however often the draft guesses it, and nothing corrects for that: the text follows another "
    "distribution (Cai et al. 2024). The experiment below shows by how much.",
    note="Kept means “likely enough” here: nothing corrects for guesses that the draft makes too "
    "often. The text does not follow the target’s distribution.",
    beta_label="mean probability that the rule accepts a draft",
    chance=True,
    threshold="p",
    draws=False,
    residual=False,
    numbers=typical_shown,
)

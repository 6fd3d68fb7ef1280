"""Exact match: a draft is kept if the target's own draw is the same token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.records import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ...core.protocols import RandomSource
    from ...core.types import Floats


def decide_exact_match(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource
) -> Tensor:
    """Keep a draft only if the target's own draw, made from p with its u, is the same token.

    The emitted tokens are always the target's own draws, so the text follows p exactly. A draft
    drawn from q is kept with probability sum(p q), never more than sum(min(p, q)).
    Arguments and result are those of `core.tensor_verdict.decide_on_tensors`.
    """
    import torch

    from ...core.tensor_draws import draw, uniforms

    last = uniforms(1, source)
    judged = torch.isfinite(u)
    uniforms_of_drafts = torch.where(judged, u.double(), last)
    draws = torch.cat([uniforms_of_drafts, last])
    drawn = draw(p, draws)  # [gamma + 1]
    keep = (drawn[:-1] == drafted) & judged
    accepted = keep.long().cumprod(0).sum()
    next_id = drawn.index_select(0, accepted.unsqueeze(0))[0]
    return torch.stack([accepted, next_id])


def exact_match_in_numpy(
    p: Floats, q: Floats, drafted: Sequence[int], u: Sequence[float], last: float
) -> tuple[int, int]:
    """Compute `decide_exact_match` in the host's memory, where it draws no more than it compares.

    Arguments and result are those of `core.verdict.decide_in_numpy`.
    """
    from ...core.draws import drawn_id

    for position, (token_id, uniform) in enumerate(zip(drafted, u, strict=True)):
        drawn = drawn_id(p[position], uniform)
        if drawn != token_id:
            return position, drawn
    return len(drafted), drawn_id(p[len(drafted)], last)


def exact_match_shown(p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """The number on the cards of exact match: the probability that a draft is the target's own
    draw."""
    return {"chance": (p[: len(drafted)] * q).sum(-1)}


def exact_match_correction(p: Tensor, q: Tensor, drafted: Tensor, position: int) -> Tensor:
    """The distribution of a correction: p without the rejected token."""
    import torch

    from ...core.tensor_draws import residual

    rejected = drafted[position : position + 1]
    one_hot = torch.zeros_like(p[position]).scatter(0, rejected, 1.0)
    return residual(p[position], one_hot)


EXACT_MATCH = VerdictKind(
    name="exact-match",
    decide=decide_exact_match,
    decide_on_host=exact_match_in_numpy,
    label="exact match",
    clause="drafts are compared with the target's own draws",
    exactness_note="Exact does not mean the same words, it means the same chances. Here the target "
    "draws each token itself, from p, and a guess is accepted only if it is that token, so the "
    "text consists of the target’s own draws.",
    note="The text consists of the target’s own draws, so it follows p. Fewer guesses are accepted "
    "than with the ratio p / q, which may accept a guess that the target would not have drawn "
    "this time.",
    correction_label="p without the rejected one",
    beta_label="mean probability that the rule accepts a draft",
    chance=True,
    numbers=exact_match_shown,
    correction=exact_match_correction,
)

"""Pure functions from logits to probabilities, and the rule that judges drafts by default.

The other verdicts are in `verdicts`. Everything in both is fp32 or better whatever the models'
dtype, on any device. `numpy_path` repeats the rule for rows in the host's memory, where calls must
be few; a test compares both draw by draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from ..settings import Settings

SHORT_LIST = 1024  # entries that top-p looks at before it sorts a whole vocabulary
# Below, logits / temperature could overflow to inf - inf, so the maximum is subtracted first.
SAFE_TEMPERATURE = 1e-3
TIE = 2.0**-21
"""Share of a row's highest logit below which a difference is rounding: kernels for one and for
several tokens round equal logits apart, and both lanes must break such ties alike."""

TINY = torch.finfo(torch.float32).tiny  # a lower temperature would be 0 in fp32


class Verdict(NamedTuple):
    """What `verify` decides about one round.

    accepted: how many leading drafted tokens are kept, 0 to gamma.
    next_id: the id that follows them.
    outcome: "corrected" if it was drawn after a rejection, "bonus" if none was rejected.
    """

    accepted: int
    next_id: int
    outcome: Literal["corrected", "bonus"]


class UniformDraws(Protocol):
    """A source of uniform draws that is not a generator."""

    def take(self, count: int) -> Tensor:
        """The next draws, fp64 [count] in [0, 1)."""
        ...


RandomSource: TypeAlias = torch.Generator | UniformDraws
"""Where uniform draws come from."""

Decide: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, RandomSource], Tensor]
"""The rule that judges a draft run: `decide`, or a benchmark's replacement for it."""


class PremadeDraws:
    """Uniform draws made beforehand, for functions in which no generator may run.

    draws: fp64 [n] in [0, 1), given out in order.
    """

    def __init__(self, draws: Tensor) -> None:
        self._draws = draws
        self._given = 0

    def take(self, count: int) -> Tensor:
        """The next `count` draws."""
        self._given += count
        if self._given > len(self._draws):
            raise IndexError("more draws were requested than were made")
        return self._draws[self._given - count : self._given]


def probabilities(logits: Tensor, settings: Settings, *, fixed_shapes: bool = False) -> Tensor:
    """The distribution that tokens are drawn from: temperature, then top-k, then top-p.

    logits: [n, vocab], any float dtype. Returns fp32 [n, vocab], each row summing to 1.
    Greedy rows are one-hot at `greedy_ids`.
    fixed_shapes: no shape depends on a value, so that a CUDA graph can replay the call; top-p
    then sorts whole rows.
    """
    logits = logits.float()
    if settings.greedy:
        return _one_hot(logits, greedy_ids(logits))
    temperature = max(settings.temperature, TINY)
    if temperature < SAFE_TEMPERATURE:
        logits = logits - logits.amax(-1, keepdim=True)
    p = torch.softmax(logits / temperature, -1)
    if 0 < settings.top_k < p.shape[-1] or settings.top_p < 1.0:
        p = _truncated(p, settings.top_k, settings.top_p, fixed_shapes)
    return p


def sample(
    logits: Tensor, settings: Settings, uniform: Tensor, *, fixed_shapes: bool = False
) -> tuple[Tensor, Tensor]:
    """One token: its distribution, fp32 [1, vocab], and the id drawn from it, int64 [1].

    logits: [1, vocab]. uniform: fp64 [1] in [0, 1). fixed_shapes: as in `probabilities`.
    """
    if settings.greedy:  # a one-hot row has one possible draw
        drawn = greedy_ids(logits)
        return _one_hot(logits, drawn), drawn
    q = probabilities(logits, settings, fixed_shapes=fixed_shapes)
    return q, draw(q, uniform)


def greedy_ids(logits: Tensor) -> Tensor:
    """The id of the highest logit of each row; a tie, also one within rounding (`TIE`), goes to
    the lowest id. fp32 [n, vocab] to int64 [n]."""
    top = logits.amax(-1, keepdim=True)
    return (logits >= top - TIE * top.abs()).to(torch.uint8).argmax(-1)


def _one_hot(logits: Tensor, ids: Tensor) -> Tensor:
    """fp32 rows like `logits` [n, vocab], 1 at `ids` [n]."""
    return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, ids.unsqueeze(-1), 1.0)


def _truncated(p: Tensor, top_k: int, top_p: float, fixed_shapes: bool) -> Tensor:
    """`p` restricted to its most probable entries and normalised again; [n, vocab] to [n, vocab].

    Top-p keeps the fewest entries of those that top-k keeps whose share of their mass reaches
    `top_p`.
    """
    vocab = p.shape[-1]
    k = min(top_k, vocab) or vocab
    # Top-p takes its share of everything that top-k keeps, so those entries are listed in full.
    # Whether a short list is enough is a value, for which the host would have to wait on a GPU.
    short = k == vocab and not fixed_shapes and p.device.type == "cpu"
    values = p.topk(min(k, SHORT_LIST) if short else k).values  # [n, listed], descending
    if values.shape[-1] < k and values.sum(-1).min() < top_p:
        values = p.topk(k).values
    mass = values.double().cumsum(-1)  # [n, listed]
    whole = mass[:, -1:] if k < vocab else torch.ones_like(mass[:, :1])
    before = mass - values.double()
    kept = (before < top_p * whole) if top_p < 1.0 else torch.ones_like(before, dtype=torch.bool)
    count = kept.sum(-1, keepdim=True).clamp_(min=1)  # [n, 1]
    smallest = values.gather(-1, count - 1)  # the least probability that stays
    above, level = p > smallest, p == smallest
    spare = count - above.sum(-1, keepdim=True)
    chosen = above | (level & (level.cumsum(-1) <= spare))
    p = torch.where(chosen, p, 0.0)
    return p / p.sum(-1, keepdim=True)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Ids drawn by inverse CDF. weights: [..., vocab], not negative, each row with some mass.

    uniform: fp64 [...] in [0, 1). Returns int64 [...]. Never returns an id of weight zero.
    """
    cdf = weights.cumsum(-1, dtype=torch.float64)
    # uniform is at most 1 - 2^-53, so the product stays below the total: an id with mass.
    ids = torch.searchsorted(cdf, uniform.unsqueeze(-1) * cdf[..., -1:], right=True)
    # NaN weights sort past the end: an id inside the vocabulary keeps the models' tables safe
    # until the caller has seen that the logits were not finite.
    return ids.squeeze(-1).clamp_(max=weights.shape[-1] - 1)


def uniforms(count: int, source: RandomSource) -> Tensor:
    """`count` fp64 draws in [0, 1), on the source's device."""
    if isinstance(source, torch.Generator):
        return torch.rand(count, generator=source, device=source.device, dtype=torch.float64)
    return source.take(count)


def residual(p: Tensor, q: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """norm(max(0, p - q)), [vocab]: the distribution of the token that replaces a rejected one.

    Falls back to `otherwise`, by default p, where rounding leaves no mass (Leviathan et al. 2022,
    arXiv 2211.17192).
    """
    left = (p - q).clamp_(min=0.0)
    mass = left.sum()
    return torch.where(usable(mass), left / mass, p if otherwise is None else otherwise)


def usable(mass: Tensor) -> Tensor:
    """Whether a mass can be shared out: finite and above 0."""
    return torch.isfinite(mass) & (mass > 0)


def verify(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, generator: torch.Generator) -> Verdict:
    """Judge a draft run: keep x with probability min(1, p(x) / q(x)), stop at the first rejection.

    p: fp32 [gamma + 1, vocab], the target's distributions; q: fp32 [gamma, vocab], the very
    rows that `drafted` (int64 [gamma]) was drawn from; u: [gamma], uniform in [0, 1), fp32 or
    fp64 (rounding fp64 draws to fp32 can make a 1, which would reject a certain token).
    `generator` gives the one further draw: from the residual norm(max(0, p - q)) after a
    rejection, from the last row of p if there was none. The emitted tokens then follow p
    exactly (Leviathan et al. 2022, arXiv 2211.17192, theorem 1).
    """
    return verdict(len(drafted), *decide(p, q, drafted, u, generator).tolist())


def decide(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource) -> Tensor:
    """`verify` without leaving the device: int64 [2], how many are accepted and the next id.

    A draft whose u is infinite is never kept; a row of zeros in q, reached without a rejection,
    makes the draw the bonus. Both serve a run of drafts padded to a fixed width.
    """
    gamma = drafted.shape[0]
    place = drafted.unsqueeze(-1)
    p_drafted = p[:gamma].gather(-1, place).squeeze(-1).double()
    q_drafted = q.gather(-1, place).squeeze(-1).double()
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


def verdict(gamma: int, accepted: int, next_id: int) -> Verdict:
    """The verdict on `gamma` drafted tokens of which `accepted` were kept."""
    return Verdict(accepted, next_id, "bonus" if accepted == gamma else "corrected")

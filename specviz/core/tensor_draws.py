"""Distributions as tensors, and draws from them: from logits to probabilities, and from
probabilities to tokens.

Everything is fp32 or better whatever the models' dtype, on any device. `draws` does the same in the
host's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .settings import Settings
from .truncation import truncated

if TYPE_CHECKING:
    from .protocols import RandomSource

# Below, logits / temperature could overflow to inf - inf, so the maximum is subtracted first.
SAFE_TEMPERATURE = 1e-3
TIE = 2.0**-21
"""The share of a row's highest logit below which a difference counts as rounding. Kernels for one
and for several tokens round equal logits apart, and both lanes must break such ties alike."""
TINY = torch.finfo(torch.float32).tiny  # a lower temperature would be 0 in fp32


class PremadeDraws:
    """Uniform draws made beforehand, for functions in which no generator may run.

    draws: fp64 [n] in [0, 1), given out in order.
    """

    def __init__(self, draws: Tensor) -> None:
        self._draws = draws

    def take(self, count: int) -> Tensor:
        """Return the next `count` draws."""
        first = self._draws[:count]
        self._draws = self._draws[count:]
        return first


class DraftEnd:
    """The end of a draft run: after the token at which the product of the confidences falls below
    `min_confidence`, which is 0 for no such end.

    The confidence of a token is the probability of the draft's likeliest token at its position: in
    q, or at temperature 1 in greedy runs, where q is one-hot. confidences: of the tokens so far,
    empty without a threshold.
    """

    def __init__(self, min_confidence: float, settings: Settings) -> None:
        self._min_confidence = min_confidence
        self._greedy = settings.greedy
        self._product = 1.0
        self.confidences: list[float] = []

    def ends_after(self, logits: Tensor, q: Tensor) -> bool:
        """Whether the next token of the run, from `logits` and `q` [1, vocab], is its last one. The
        host waits for the answer if there is a threshold."""
        if not self._min_confidence:
            return False
        row = torch.softmax(logits.float(), -1) if self._greedy else q
        self.confidences.append(row.max().item())
        self._product *= self.confidences[-1]
        return self._product < self._min_confidence


def probabilities(logits: Tensor, settings: Settings) -> Tensor:
    """Compute the distribution that tokens are drawn from: temperature, then top-k, then top-p.

    logits: [n, vocab], any float dtype. Returns fp32 [n, vocab], each row summing to 1.
    Greedy rows are one-hot at `greedy_ids`.
    On any device but a processor no shape depends on a value, so that a CUDA graph can replay it.
    """
    logits = logits.float()
    if settings.greedy:
        return _one_hot(logits, greedy_ids(logits))
    temperature = max(settings.temperature, TINY)
    if temperature < SAFE_TEMPERATURE:
        logits = logits - logits.amax(-1, keepdim=True)
    p = torch.softmax(logits / temperature, -1)
    if 0 < settings.top_k < p.shape[-1] or settings.top_p < 1.0:
        p = truncated(p, settings.top_k, settings.top_p)
    return p


def sample(logits: Tensor, settings: Settings, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token: return its distribution, fp32 [1, vocab], and its id, int64 [1].

    logits: [1, vocab]. uniform: fp64 [1] in [0, 1).
    """
    if settings.greedy:  # a one-hot row has one possible draw
        drawn = greedy_ids(logits)
        return _one_hot(logits, drawn), drawn
    q = probabilities(logits, settings)
    return q, draw(q, uniform)


def greedy_ids(logits: Tensor) -> Tensor:
    """The id of the highest logit of each row; a tie, also one within rounding (`TIE`), goes to
    the lowest id. fp32 [n, vocab] to int64 [n]."""
    top = logits.amax(-1, keepdim=True)
    return (logits >= top - TIE * top.abs()).to(torch.uint8).argmax(-1)


def _one_hot(logits: Tensor, ids: Tensor) -> Tensor:
    """fp32 rows like `logits` [n, vocab], 1 at `ids` [n]."""
    return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, ids.unsqueeze(-1), 1.0)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw ids by inverse CDF. weights: [..., vocab], not negative, each row with some mass.

    uniform: fp64 [...] in [0, 1). Returns int64 [...]. Never returns an id of weight zero.
    """
    cdf = weights.cumsum(-1, dtype=torch.float64)
    # uniform is at most 1 - 2^-53, so the product stays below the total: an id with mass.
    ids = torch.searchsorted(cdf, uniform.unsqueeze(-1) * cdf[..., -1:], right=True)
    # NaN weights sort past the end: an id inside the vocabulary keeps the models' tables safe
    # until the caller has seen that the logits were not finite.
    return ids.squeeze(-1).clamp_(max=weights.shape[-1] - 1)


def residual(p: Tensor, q: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """norm(max(0, p - q)), [vocab]: the distribution of the token that replaces a rejected one.

    Falls back to `otherwise`, by default p, where rounding leaves no mass (Leviathan et al. 2022,
    arXiv 2211.17192).
    """
    if otherwise is None:
        otherwise = p
    surplus = (p - q).clamp_(min=0.0)
    mass = surplus.sum()
    return torch.where(usable(mass), surplus / mass, otherwise)


def usable(mass: Tensor) -> Tensor:
    """Whether a mass can be normalised: finite and above 0."""
    return torch.isfinite(mass) & (mass > 0)


def uniforms(count: int, source: RandomSource) -> Tensor:
    """Make `count` fp64 draws in [0, 1), on the source's device."""
    if isinstance(source, torch.Generator):
        return torch.rand(count, generator=source, device=source.device, dtype=torch.float64)
    return source.take(count)

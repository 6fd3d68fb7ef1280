"""Pure functions from logits to probabilities, and the one place where drafts are judged.

Everything here is fp32 or better whatever the models' dtype, on any device. On a processor a
call costs more than what it computes for a few rows, and torch's the most, so that some work is
NumPy's there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..settings import Settings
from .wheel import Floats, Wheel

SHORT_LIST = 1024  # entries that top-p looks at before it sorts a whole vocabulary
# Below, logits / temperature could overflow to inf - inf, so the maximum is taken off first.
SAFE = 1e-3
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


class Tape:
    """Uniform draws made beforehand, given out in order, where no generator may run.

    draws: fp64 [n] in [0, 1).
    """

    def __init__(self, draws: Tensor) -> None:
        self._draws = draws
        self._given = 0

    def take(self, count: int) -> Tensor:
        """The next `count` draws."""
        self._given += count
        if self._given > len(self._draws):
            raise IndexError("more draws were asked for than were made")
        return self._draws[self._given - count : self._given]


class Draws(Protocol):
    """A source of uniform draws that is no generator."""

    def take(self, count: int) -> Tensor:
        """The next draws, fp64 [count] in [0, 1)."""
        ...


Source: TypeAlias = torch.Generator | Draws
"""Where uniform draws come from."""

Decide: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Source], Tensor]
"""What judges a draft run: `decide`, or what stands in for it."""


_fixed = ContextVar("_fixed", default=False)


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Within it nothing here looks at a value, on any device, so that a GPU may replay it.

    Top-p then sorts whole rows, and a processor takes the way that a GPU takes.
    """
    before = _fixed.set(True)
    try:
        yield
    finally:
        _fixed.reset(before)


def _here(x: Tensor) -> bool:
    """Whether reading a number of `x` costs nothing and is allowed."""
    return x.is_cpu and not _fixed.get()


def probabilities(logits: Tensor, settings: Settings) -> Tensor:
    """The distribution that tokens are drawn from: temperature, then top-k, then top-p.

    logits: [n, vocab], any float dtype. Returns fp32 [n, vocab], each row summing to 1.
    Greedy rows are one-hot at the argmax; every tie goes to the lowest id.
    """
    logits = logits.float()
    if settings.greedy:
        return _one_hot(logits, likeliest(logits))
    temperature = max(settings.temperature, TINY)
    if temperature < SAFE:
        logits = logits - logits.amax(-1, keepdim=True)
    p = torch.softmax(logits / temperature, -1)
    if 0 < settings.top_k < p.shape[-1] or settings.top_p < 1.0:
        p = _truncated(p, settings.top_k, settings.top_p)
    return p


def sample(logits: Tensor, settings: Settings, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token: its distribution, fp32 [1, vocab], and the id drawn from it, int64 [1].

    logits: [1, vocab]. uniform: fp64 [1] in [0, 1).
    """
    if settings.greedy:  # a one-hot row has one possible draw
        drawn = likeliest(logits)
        return _one_hot(logits, drawn), drawn
    q = probabilities(logits, settings)
    return q, draw(q, uniform)


def _one_hot(logits: Tensor, ids: Tensor) -> Tensor:
    """fp32 rows like `logits` [n, vocab], 1 at `ids` [n]."""
    return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, ids.unsqueeze(-1), 1.0)


def likeliest(rows: Tensor) -> Tensor:
    """The id of the first maximum of each row; [n, vocab] to int64 [n]."""
    if _here(rows):  # NumPy finds a maximum in a quarter of torch's time
        return torch.from_numpy(rows.numpy().argmax(-1))
    return rows.argmax(-1)


def _truncated(p: Tensor, top_k: int, top_p: float) -> Tensor:
    """`p` restricted to its likeliest entries and normalised again; [n, vocab] to [n, vocab].

    Top-p keeps the fewest entries of what top-k left whose share of its mass reaches `top_p`.
    """
    vocab = p.shape[-1]
    k = min(top_k, vocab) or vocab
    # Top-p takes its share of all that top-k leaves, so that is listed whole.
    short = k == vocab and not _fixed.get()
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


def uniforms(count: int, source: Source) -> Tensor:
    """`count` fp64 draws in [0, 1), on the source's device."""
    if isinstance(source, torch.Generator):
        return torch.rand(count, generator=source, device=source.device, dtype=torch.float64)
    return source.take(count)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(0, p - q)), [vocab]: what a rejected position is drawn from.

    Falls back to p where rounding leaves no mass (Leviathan et al. 2022, arXiv 2211.17192).
    """
    left = (p - q).clamp_(min=0.0)
    mass = left.sum()
    usable = torch.isfinite(mass) & (mass > 0)
    return torch.where(usable, left / mass, p)


def verify(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, generator: torch.Generator) -> Verdict:
    """Judge a draft run: keep x with probability min(1, p(x) / q(x)), stop at the first refusal.

    p: fp32 [gamma + 1, vocab], the target's distributions; q: fp32 [gamma, vocab], the very
    rows that `drafted` (int64 [gamma]) was drawn from; u: [gamma], uniform in [0, 1), fp32 or
    fp64 (rounding fp64 draws to fp32 can make a 1, which would refuse a sure token).
    `generator` gives the one further draw: from the residual norm(max(0, p - q)) after a
    rejection, from the last row of p if there was none. The emitted tokens then follow p
    exactly (Leviathan et al. 2022, arXiv 2211.17192, theorem 1).
    """
    return verdict(len(drafted), *decide(p, q, drafted, u, generator).tolist())


def decide(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: Source) -> Tensor:
    """`verify` without leaving the device: int64 [2], how many are accepted and the next id.

    A draft whose u is infinite is never kept; a row of zeros in q, reached without a rejection,
    makes the draw the bonus. Both serve a run of drafts padded to a fixed width.
    """
    if _here(p):
        return _decide_here(p, q, drafted, u, source)
    gamma = drafted.shape[0]
    place = drafted.unsqueeze(-1)
    p_drafted = p[:gamma].gather(-1, place).squeeze(-1)
    q_drafted = q.gather(-1, place).squeeze(-1)
    # Strict: with u = 0 a token that the target rules out (p = 0) must still be refused.
    keep = u < p_drafted / q_drafted
    accepted = keep.long().cumprod(0).sum()
    # A row of zeros under q makes the bonus the same formula as the correction.
    q_ended = torch.cat([q, torch.zeros_like(p[:1])])
    row = accepted.unsqueeze(0)
    left = residual(p.index_select(0, row)[0], q_ended.index_select(0, row)[0])
    return torch.stack([accepted, draw(left, uniforms(1, source)[0])])


def _decide_here(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: Source) -> Tensor:
    """`decide` where reading a number costs nothing."""
    last, wheel = uniforms(1, source).item(), Wheel(p.shape[-1])
    return torch.tensor(decided(p.numpy(), q.numpy(), drafted.tolist(), u.tolist(), last, wheel))


def decided(
    p: Floats, q: Floats, drafted: Sequence[int], u: Sequence[float], last: float, wheel: Wheel
) -> tuple[int, int]:
    """`decide` for rows in the host's memory; `last` is the draw behind those of `u`."""
    accepted = 0
    # Strict: with u = 0 a token that the target rules out (p = 0) must still be refused.
    for place, (token_id, chance) in enumerate(zip(drafted, u, strict=True)):
        if not chance * q.item(place, token_id) < p.item(place, token_id):
            break
        accepted += 1
    mass = 0.0
    if accepted < len(drafted):
        left = np.subtract(p[accepted], q[accepted])
        mass = wheel.load(np.maximum(left, 0.0, out=left))
    if not 0 < mass < np.inf:  # a bonus, or rounding left no mass: see `residual`
        wheel.load(p[accepted])
    return accepted, wheel.place(last)


def decided_greedily(drafted: Sequence[int], likeliest: Sequence[int]) -> tuple[int, int]:
    """`decided` for one-hot rows, where no draw matters: what the target prefers is kept.

    likeliest: the target's ids, one more than were drafted.
    """
    pairs = enumerate(zip(drafted, likeliest, strict=False))
    accepted = next((i for i, (ours, theirs) in pairs if ours != theirs), len(drafted))
    return accepted, likeliest[accepted]


def verdict(gamma: int, accepted: int, next_id: int) -> Verdict:
    """The verdict on `gamma` drafted tokens of which `accepted` were kept."""
    return Verdict(accepted, next_id, "bonus" if accepted == gamma else "corrected")

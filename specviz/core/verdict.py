"""Which drafts are kept, and which token follows them: the one place that decides acceptance.

`decide` is the rule on tensors, on any device, and in CUDA graphs. `decided` and `decided_greedily`
are the same rule for rows in the host's memory, where calls must be few: what runs on a processor.
Tests hold the forms together draw by draw. `rule` gives what the settings name; the other verdicts
are in `verdicts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..kinds import TOKEN, verdict_kind
from ..settings import Settings
from .kinds import resolved
from .sampling import RandomSource, draw, uniforms

Rows: TypeAlias = NDArray[np.float32]

Decide: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, RandomSource], Tensor]
"""The rule that judges a draft run: `decide`, or a benchmark's replacement for it."""


class Verdict(NamedTuple):
    """What `verify` decides about one round.

    accepted: how many leading drafted tokens are kept, 0 to gamma.
    next_id: the id that follows them.
    outcome: "corrected" if it was drawn after a rejection, "bonus" if none was rejected.
    """

    accepted: int
    next_id: int
    outcome: Literal["corrected", "bonus"]


class Draws(Protocol):
    """What draws from one row at a time, such as `numpy_path.InverseCdf`."""

    def load(self, weights: Rows) -> float:
        """Take a row [vocab]; returns its sum."""
        ...

    def draw(self, uniform: float) -> int:
        """The id that `uniform` in [0, 1) falls on."""
        ...


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


def decided(
    p: Rows, q: Rows, drafted: Sequence[int], u: Sequence[float], last: float, cdf: Draws
) -> tuple[int, int]:
    """`decide` for rows in the host's memory; `last` is the draw after those of `u`."""
    accepted = 0
    # Strict: with u = 0 a token that the target rules out (p = 0) must still be rejected.
    for place, (token_id, chance) in enumerate(zip(drafted, u, strict=True)):
        if not chance * q.item(place, token_id) < p.item(place, token_id):
            break
        accepted += 1
    mass = 0.0
    if accepted < len(drafted):
        left = np.subtract(p[accepted], q[accepted])
        mass = cdf.load(np.maximum(left, 0.0, out=left))
    if not 0 < mass < np.inf:  # a bonus, or rounding left no mass: see `residual`
        cdf.load(p[accepted])
    return accepted, cdf.draw(last)


def decided_greedily(drafted: Sequence[int], argmax: Sequence[int]) -> tuple[int, int]:
    """`decided` for one-hot rows, where no draw matters: what the target prefers is kept.

    argmax: the target's ids, one more than were drafted.
    """
    pairs = enumerate(zip(drafted, argmax, strict=False))
    accepted = next((i for i, (ours, theirs) in pairs if ours != theirs), len(drafted))
    return accepted, argmax[accepted]


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


def rule(settings: Settings, token_rule: Decide = decide) -> Decide:
    """The function that judges the drafts of a run. token_rule: for the verdict "token"."""
    if settings.rule == TOKEN:
        return token_rule
    kind = verdict_kind(settings.rule)
    if kind.package is not None:
        from .foreign import checked_decide  # not needed for ours

        return checked_decide(kind)
    found: Decide = resolved(kind.decide)
    return found


def shown_numbers(name: str, p: Tensor, q: Tensor, drafted: Tensor) -> dict[str, Tensor]:
    """What a reader must know of each draft besides p, q and u, [gamma] by field of `Token`."""
    numbers = verdict_kind(name).numbers
    return resolved(numbers)(p, q, drafted) if numbers else {}


def left_after_rejection(
    name: str, p: Tensor, q: Tensor, drafted: Tensor, place: int
) -> Tensor | None:
    """The distribution, fp32 [vocab], of the token that replaces the rejected draft at `place`.

    None where it is p itself.
    """
    kind = verdict_kind(name)
    if not kind.residual:
        return None
    found: Tensor = resolved(kind.after or left_of_p)(p, q, drafted, place)
    return found


def left_of_p(p: Tensor, q: Tensor, drafted: Tensor, place: int) -> Tensor:
    """What the token rule draws a correction from."""
    return residual(p[place], q[place])

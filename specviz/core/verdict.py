"""The rule that decides which drafts are accepted, and which token follows them.

`decide_in_numpy` is the token rule, for rows in the host's memory. It has two more forms, which
tests compare with it draw by draw: `decide_greedily` for greedy runs, and
`tensor_verdict.decide_on_tensors`, on tensors, for GPUs. `sides/verdicts/` has other rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .draws import drawn_id

if TYPE_CHECKING:
    from .types import Floats


def decide_in_numpy(
    p: Floats, q: Floats, drafted: Sequence[int], u: Sequence[float], last: float
) -> tuple[int, int]:
    """Keep a draft x with probability min(1, p(x) / q(x)), and stop at the first rejection. Return
    the number of kept drafts, and the id that follows them.

    p: [gamma + 1, vocab], the target's distributions. q: [gamma, vocab], the very rows that
    `drafted` was drawn from. u: [gamma] uniform draws in [0, 1). last: one more uniform draw; with
    it the next id is drawn from the residual norm(max(0, p - q)) after a rejection, and from the
    last row of p otherwise. The emitted tokens then follow p exactly (Leviathan et al. 2022, arXiv
    2211.17192, theorem 1).
    """
    accepted = 0
    # Strict: with u = 0 a token that the target rules out (p = 0) must still be rejected.
    for position, (token_id, uniform) in enumerate(zip(drafted, u, strict=True)):
        if not uniform * q.item(position, token_id) < p.item(position, token_id):
            break
        accepted += 1
    weights = p[accepted]
    if accepted < len(drafted):
        weights = residual_weights(weights, q[accepted], otherwise=weights)
    return accepted, drawn_id(weights, last)


def residual_weights(p: Floats, q: Floats, otherwise: Floats) -> Floats:
    """max(0, p - q), fp32 [vocab]: the weights of the token that replaces a rejected one, or
    `otherwise` where rounding left no mass."""
    weights = surplus(p, q)
    return weights if 0 < weights.sum() < np.inf else otherwise


def surplus(p: Floats, q: Floats) -> Floats:
    """max(0, p - q), fp32 [vocab]."""
    difference: Floats = np.subtract(p, q)
    np.maximum(difference, 0.0, out=difference)
    return difference


def decide_greedily(drafted: Sequence[int], argmax: Sequence[int]) -> tuple[int, int]:
    """Decide as `decide_in_numpy` does for one-hot rows, where no draw matters: keep the drafts
    that are the target's own choices.

    argmax: the target's choices, gamma + 1 ids.
    """
    accepted = 0
    for token_id, choice in zip(drafted, argmax, strict=False):
        if token_id != choice:
            break
        accepted += 1
    return accepted, argmax[accepted]

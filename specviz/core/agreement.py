"""Where the texts of two greedy lanes first differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .events import DIGITS, Agreement, Divergence, Round, Token


def margin_of(token: Token) -> float | None:
    """How much likelier the target found its first choice than its second, in nats; None if the
    token does not tell."""
    if not token.top_p:
        return None
    first, second = ([c.probability for c in token.top_p] + [0.0])[:2]
    # Listed probabilities are rounded, the second perhaps to 0: the margin is then at least this.
    return math.log(first / max(second, 0.5 * 10**-DIGITS))


def agreement_of(rounds: Sequence[Round], alone: Sequence[Round]) -> Agreement:
    """Where the text of a greedy lane first differs from the baseline's."""
    ours, theirs = ([t for r in lane for t in r.emitted] for lane in (rounds, alone))
    compared = min(len(ours), len(theirs))
    index = next((i for i in range(compared) if ours[i].id != theirs[i].id), None)
    if index is None:
        return Agreement(True, compared)
    return Agreement(False, compared, Divergence(index, margin_of(theirs[index])))

"""The rules of how drafts were judged, for each verdict, and of the token after a rejection.

`core.verdicts` says what the verdicts are. The tolerances cover rounding only.
"""

from __future__ import annotations

import math
from itertools import accumulate

from ..core.events import Round, Token
from ..core.theory import TYPICAL_DELTA, TYPICAL_EPSILON
from ..settings import Settings
from .schema import SLACK, TOP
from .validators import Invalid

ROUNDING = 1e-5  # relative to p / q and to thresholds
JUDGED = ("accepted", "rejected")


def extra_fields(outcome: str, rule: str) -> tuple[set[str], set[str]]:
    """Which fields of a token a verdict adds to those of the token rule, and which it lacks."""
    if rule == "block" and outcome in (*JUDGED, "ignored"):
        return {"p", "u", "weight", "threshold"}, set()
    if rule == "exact-match" and outcome in JUDGED:
        return {"chance"}, set()
    if rule == "typical":
        added = {"threshold", "chance"} if outcome in JUDGED else set()
        return added, {"u", "top_residual"}
    return set(), set()


def check_judged(token: Token, settings: Settings) -> None:
    """Check that a token's numbers allow its outcome; raises `Invalid`.

    Of block verification only a whole round tells: see `check_block`.
    """
    if token.q == 0.0:
        raise Invalid("q is 0, but a draft never draws a token of probability 0")
    if token.u is not None and token.u >= 1.0:
        raise Invalid("u is 1, but a draw is below 1")
    if settings.rule == "token":
        _check_ratio(token)
    elif settings.rule == "exact-match":
        _check_own_draw(token)
    elif settings.rule == "typical":
        _check_typical(token)


def _check_ratio(token: Token) -> None:
    """Check that the token was accepted if and only if u < p / q."""
    p, q, u = token.p, token.q, token.u
    assert p is not None and q is not None and u is not None
    bound = p / q
    accepted = token.outcome == "accepted"
    if _surely_above(u, bound) if accepted else _surely_below(u, bound):
        raise Invalid(f"it was {token.outcome} with u = {u:.6g} and p / q = {bound:.6g}")


def _check_own_draw(token: Token) -> None:
    assert token.p is not None and token.q is not None and token.chance is not None
    impossible = 0.0 if token.outcome == "accepted" else 1.0
    if token.p == impossible:
        raise Invalid(f"it was {token.outcome}, but the target draws it with p = {token.p:.6g}")
    p, q = ({c.id: c.probability for c in top} for top in (token.top_p, token.top_q))
    known = {i: (p[i], q[i]) for i in p.keys() & q.keys()} | {token.id: (token.p, token.q)}
    shared = sum(a * b for a, b in known.values())
    left_p, left_q = (max(0.0, 1.0 - sum(side)) for side in zip(*known.values(), strict=True))
    if not shared - SLACK <= token.chance <= shared + left_p * left_q + SLACK:
        raise Invalid(f"chance is {token.chance:.6g}, which is not the sum of p q")


def _check_typical(token: Token) -> None:
    p, q, threshold, chance = token.p, token.q, token.threshold, token.chance
    assert p is not None and q is not None and threshold is not None and chance is not None
    accepted = token.outcome == "accepted"
    if _surely_below(p, threshold) if accepted else _surely_above(p, threshold, strictly=True):
        raise Invalid(f"it was {token.outcome} with p = {p:.6g} and threshold = {threshold:.6g}")
    listed = [c.probability for c in token.top_p]
    rest = max(0.0, 1.0 - sum(listed))
    # With all that is not listed as one token, the entropy is no more than it was.
    entropy = sum(-x * math.log(x) for x in (*listed, rest) if x > 0)
    most = min(TYPICAL_EPSILON, TYPICAL_DELTA * math.exp(-entropy))
    if threshold > most + SLACK or (rest < SLACK / TOP and threshold < most - 10 * SLACK):
        raise Invalid(f"threshold is {threshold:.6g}, and with this p it is at most {most:.6g}")
    if chance < q - SLACK if accepted else chance > 1.0 - q + SLACK:
        raise Invalid(f"chance is {chance:.6g}, but it is the q of all that would be kept")


def check_block(r: Round) -> None:
    """Check weights and thresholds of a round, and that all up to the last draft with u below its
    threshold were kept; raises `Invalid`."""
    drafted = r.drafted
    ratios = ((t.p or 0.0) / t.q if t.q else math.inf for t in drafted)
    weights = list(accumulate(ratios, lambda w, ratio: min(1.0, w * ratio), initial=1.0))[1:]
    for place, (token, weight) in enumerate(zip(drafted, weights, strict=True), 1):
        name = f"drafted token {place}"
        assert token.weight is not None and token.threshold is not None
        if abs(token.weight - weight) > ROUNDING * max(weight, 1e-30):
            raise Invalid(f"weight is {token.weight:.6g}, and p / q make {weight:.6g}", name)
        # S is at most the weight, and S / (S + 1 - weight) grows with S.
        if token.threshold > weight * (1 + ROUNDING) and weight < 1.0:
            raise Invalid("threshold is above weight", name)
        if place == len(drafted) and abs(token.threshold - weight) > SLACK:
            raise Invalid("threshold is not the weight, but nothing was drafted behind it", name)
    _check_last_passed(r)


def _check_last_passed(r: Round) -> None:
    kept = sum(t.outcome == "accepted" for t in r.drafted)
    was_cut = bool(kept) and r.emitted[-1].outcome == "accepted"
    tests = [(t.u or 0.0, t.threshold or 0.0) for t in r.drafted]
    # A text that ended hides how many more had been kept.
    candidates = tests[kept - 1 :] if was_cut else tests[kept - 1 : kept] if kept else []
    if kept and all(_surely_above(u, bound) for u, bound in candidates):
        raise Invalid(f"it kept {kept} drafts, but the last of them has u above its threshold")
    if not was_cut and any(_surely_below(u, bound) for u, bound in tests[kept:]):
        raise Invalid(f"it kept {kept} drafts, but a later one has u below its threshold")


def check_correction(r: Round, kept: int, corrected: Token, settings: Settings) -> None:
    """Check the token that was drawn where the draft after `kept` ones was rejected.

    It follows norm(max(0, p - q)), or p where rounding leaves no difference between p and q; with
    other verdicts, what `Token.top_residual` says. Raises `Invalid`.
    """
    rejected = r.drafted[kept]
    for field in ("top_p", "top_q", "top_residual"):
        if getattr(rejected, field) != getattr(corrected, field):
            raise Invalid(f"{field} is not that of the rejected token at the same place")
    if settings.rule == "typical":  # drawn from p itself, which may give the same token again
        return
    assert rejected.p is not None
    assert corrected.p is not None and corrected.q is not None
    share = 1.0 if rejected.beta is None else 1.0 - rejected.beta  # at most, where it is unknown
    if settings.rule == "exact-match":
        mass, left = 1.0 - rejected.p, corrected.p
    elif settings.rule == "block" and kept:
        weight, mass = _carried(r.drafted[kept - 1], share)
        left = weight * corrected.p - corrected.q
    else:
        mass, left = share, corrected.p - corrected.q
    if mass < SLACK:
        return
    if corrected.id == rejected.id:
        raise Invalid("it is the token that was rejected at the same place")
    if left <= 0:
        raise Invalid("p is not above q, but a correction is drawn from what p has more than q")
    if rejected.beta is not None:
        _check_share(corrected, left, mass)


def _carried(before: Token, without: float) -> tuple[float, float]:
    """The weight behind a kept draft, and the mass of max(0, weight p - q) there, by its threshold.

    without: that mass if the weight is 1.
    """
    weight, threshold = before.weight or 0.0, before.threshold or 0.0
    if weight >= 1.0 or threshold >= 1.0:
        return weight, without
    return weight, threshold * (1.0 - weight) / (1.0 - threshold)


def _check_share(corrected: Token, left: float, mass: float) -> None:
    listed = {choice.id: choice.probability for choice in corrected.top_residual}
    share = listed.get(corrected.id)
    most = corrected.top_residual[-1].probability if len(listed) == TOP else 0.0
    if (share is None and left > most * mass + SLACK) or (
        share is not None and abs(left - share * mass) > SLACK
    ):
        raise Invalid("top_residual does not agree with p, q and beta")


def _surely_below(value: float, bound: float) -> bool:
    return value < bound * (1 - ROUNDING)


def _surely_above(value: float, bound: float, *, strictly: bool = False) -> bool:
    most = bound * (1 + ROUNDING)
    return value > most if strictly else value >= most

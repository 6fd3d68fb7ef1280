"""The rules that the numbers of one token follow in every real run.

The tolerances cover rounding only: of sums in fp32, and of listed probabilities to `DIGITS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ..core.events import DIGITS, Choice, Round, Token
from ..settings import Settings
from .schema import SLACK, TOP
from .validators import Invalid
from .verdict_rules import JUDGED, ROUNDING, check_judged, extra_fields

LIST_ROUNDING = 10 * 10**-DIGITS
MOST_TOKENS = 2**21  # more than any vocabulary has
DRAFTED = (*JUDGED, "ignored")
FIELDS = (
    *("p", "q", "u", "beta", "soft_p", "soft_q", "top_p", "top_q", "top_residual"),
    *("weight", "threshold", "chance"),
)
# All others must be empty, but for soft_p and soft_q of a greedy run and what a verdict adds.
FIELDS_BY_OUTCOME = {
    "accepted": ("p", "q", "u", "beta", "top_p", "top_q"),
    "rejected": ("p", "q", "u", "beta", "top_p", "top_q", "top_residual"),
    "ignored": ("q", "top_q"),
    "corrected": ("p", "q", "top_p", "top_q", "top_residual"),
    "bonus": ("p", "top_p"),
}


Known: TypeAlias = Literal["all", "listed", "drawn"]
"""What is known of the target's distributions: all of them, their likeliest tokens, or only p of
each draft and of tokens that the target drew."""


def check_token(token: Token, settings: Settings, known: Known = "all") -> None:
    """Check one token's own numbers; raises `Invalid`."""
    _check_fields(token, settings, known)
    if token.outcome in JUDGED:
        check_judged(token, settings)
    if settings.greedy:
        _check_one_hot("p", token.p, token.soft_p, token.top_p, token.id)
        _check_one_hot("q", token.q, token.soft_q, token.top_q, token.id)
    _check_drawn(token)
    _check_lists(token, settings)
    if token.outcome in JUDGED and known != "drawn":
        _check_beta(token, settings)
    _check_seen(token, settings)


def _check_seen(token: Token, settings: Settings) -> None:
    """Check that q is a share of what was counted, in runs whose drafts are counted."""
    counted = settings.drafter == "suffix" and token.outcome in DRAFTED
    if counted != (token.seen is not None):
        raise Invalid("seen is missing" if counted else "seen cannot be known of this token")
    if token.seen is None:
        return
    share = token.soft_q if settings.greedy else token.q
    times = (share or 0.0) * token.seen
    if times < 0.5 or abs(times - round(times)) > ROUNDING * token.seen + SLACK:
        raise Invalid(f"q is {share:.6g}, which is no share of the {token.seen} times in seen")


def check_accepted_copies(r: Round, kept: int) -> None:
    """Check that what a round emitted begins with what it accepted; raises `Invalid`."""
    if r.emitted[:kept] != r.drafted[:kept]:
        raise Invalid("its emitted tokens do not begin with the accepted ones")


def _check_fields(token: Token, settings: Settings, told: Known) -> None:
    added, lacking = extra_fields(token.outcome, settings.rule)
    expected = ({*FIELDS_BY_OUTCOME[token.outcome]} | added) - lacking
    if settings.greedy:
        expected |= {f"soft_{field}" for field in expected & {"p", "q"}}
    if told == "listed" and token.soft_p is None:
        expected.discard("soft_p")
    if told == "drawn" and not settings.greedy and settings.rule == "token":
        expected -= {"beta", "top_p", "top_residual"}
    for field in FIELDS:
        known = getattr(token, field) not in (None, ())
        if field.startswith("soft_") and known != (field in expected):
            if known and not settings.greedy:
                raise Invalid(f"{field} is there although the run is not greedy")
            if not known:
                raise Invalid(f"{field} is missing although the run is greedy")
        if field in expected and not known:
            raise Invalid(f"{field} is missing from a token that was {token.outcome}")
        if known and field not in expected:
            raise Invalid(f"{field} cannot be known of a token that was {token.outcome}")


def _check_beta(token: Token, settings: Settings) -> None:
    """Check beta, the sum of min(p, q), against all of p and q that the token shows.

    Over the tokens that are shown the sum is known; over the rest of the vocabulary it is at most
    what is left of p, and of q. The lists of a greedy run are not of p and q.
    """
    assert token.p is not None and token.q is not None and token.beta is not None
    known = {token.id: (token.p, token.q)}
    if not settings.greedy:
        p, q = ({c.id: c.probability for c in top} for top in (token.top_p, token.top_q))
        known = {i: (p[i], q[i]) for i in p.keys() & q.keys()} | known
    shared = sum(min(pair) for pair in known.values())
    if token.beta < min(token.p, token.q) - SLACK:
        raise Invalid(f"beta is {token.beta:.6g}, less than min(p, q) of this token")
    if token.beta < shared - SLACK:
        raise Invalid(f"beta is {token.beta:.6g}, less than top_p and top_q have in common")
    most = shared + max(0.0, min(1.0 - sum(side) for side in zip(*known.values(), strict=True)))
    if token.beta > most + SLACK:
        raise Invalid(f"beta is {token.beta:.6g}, and with this p and q it is at most {most:.6g}")


def _check_one_hot(
    field: str, value: float | None, soft: float | None, top: Sequence[Choice], token_id: int
) -> None:
    """Check that p, or q, of a greedy run is 1 where its softmax is largest, and 0 elsewhere."""
    if value is None or soft is None:
        return
    if value not in (0.0, 1.0):
        raise Invalid(f"{field} is {value:.6g}, but in a greedy run it is 0 or 1")
    if value == 1.0 and soft < top[0].probability - LIST_ROUNDING:
        raise Invalid(f"{field} is 1 and top_{field} begins with a likelier token")
    second = top[1].probability if len(top) > 1 else 0.0
    if value == 0.0 and top[0].id == token_id and soft > second + LIST_ROUNDING:
        raise Invalid(f"{field} is 0 and top_{field} begins with this token")


def _check_drawn(token: Token) -> None:
    """Check that what was drawn could be drawn: nothing of probability 0 ever is."""
    if token.outcome in ("bonus", "corrected") and token.p == 0.0:
        raise Invalid("p is 0, but no token of probability 0 is ever drawn")
    if token.outcome == "ignored" and token.q == 0.0:
        raise Invalid("q is 0, but a draft never draws a token of probability 0")


def _check_lists(token: Token, settings: Settings) -> None:
    """Check the lists of likeliest tokens, also against this token's own probability."""
    own = (token.soft_p, token.soft_q) if settings.greedy else (token.p, token.q)
    lists = (("p", token.top_p, own[0]), ("q", token.top_q, own[1]))
    for field, top, value in (*lists, ("residual", token.top_residual, None)):
        if not top:
            continue
        listed = {choice.id: choice.probability for choice in top}
        if len(listed) < len(top):
            raise Invalid(f"top_{field} lists a token twice")
        if top[0].probability == 0.0:
            raise Invalid(f"top_{field} begins with a token of probability 0")
        # Shares of what was counted are not truncated.
        whole = settings.greedy or (field == "q" and settings.drafter == "suffix")
        truncated = 0 if whole else settings.top_k
        if truncated and len(top) > settings.top_k:
            raise Invalid(f"top_{field} has {len(top)} entries although top_k is {settings.top_k}")
        complete = len(top) in {*range(TOP), truncated}
        if complete and abs(sum(listed.values()) - 1.0) > SLACK:
            raise Invalid(f"top_{field} holds every possible token and does not add up to 1")
        if value is not None:
            _check_entry(field, value, listed.get(token.id), _least_listed(top, complete))
        if not whole and settings.top_p < 1.0 and field != "residual":
            _check_nucleus(field, min(v for v in (*listed.values(), value) if v), settings)


def _check_entry(field: str, value: float, listed: float | None, most: float) -> None:
    if listed is not None and abs(listed - value) > LIST_ROUNDING:
        raise Invalid(f"{field} is {value:.6g} and top_{field} says {listed:.6g}")
    if listed is None and value > most + LIST_ROUNDING:
        raise Invalid(f"{field} is {value:.6g}, yet top_{field} does not list this token")


def _least_listed(top: Sequence[Choice], complete: bool) -> float:
    """The most that a token has which is not in the list."""
    return 0.0 if complete else top[-1].probability


def _check_nucleus(field: str, share: float, settings: Settings) -> None:
    """Check a probability that top-p has left.

    Of a mass m that is kept, all but its least entry is below top_p: m < top_p / (1 - share). The
    mass 1 - m that was dropped lies in tokens no likelier than m * share, and there are only so
    many.
    """
    dropped = (1.0 - share) / settings.top_p - 1.0 - SLACK  # relative to m, or less
    if share * (settings.top_k or MOST_TOKENS) < dropped:
        raise Invalid(
            f"{field} of {share:.6g} is too little to be kept where top_p is {settings.top_p:g}"
        )

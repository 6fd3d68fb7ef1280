"""The rules that every real run follows, whatever its models: `check_trace`.

The tolerances cover rounding only: of numbers computed in fp32 or added in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

from ..policy import FixedGamma, HeuristicGamma, Policy
from ..settings import Settings
from .events import LANES, End, Lane, Round, Token
from .schema import SLACK, round_name
from .trace import Trace
from .validators import Invalid

CLOCK_TOLERANCE = 1e-6  # seconds, or relative to a clock above 1 second
ROUNDING = 1e-5  # relative to p / q
JUDGED = ("accepted", "rejected")
CUT_BY = ("eos", "stop", "stopped")  # what may end a lane in the middle of a round
FIELDS_BY_OUTCOME = {  # outcome: fields that such a token must have, and fields that must be None
    "accepted": (("p", "q", "u", "beta"), ()),
    "rejected": (("p", "q", "u", "beta"), ()),
    "ignored": (("q",), ("p", "u", "beta")),
    "corrected": (("p", "q"), ("u", "beta")),
    "bonus": (("p",), ("q", "u", "beta")),
}


@dataclass(slots=True)
class _LaneState:
    """A lane after the rounds checked so far. policy: how many tokens its next round may draft."""

    policy: Policy
    rounds: int = 0
    tokens: int = 0
    clock: float = 0.0
    cut: bool = False  # its last round has no corrected or bonus token, so the lane ended there


def check_trace(trace: Trace) -> None:
    """Check all rules; raises `Invalid` with the first one that the trace breaks."""
    settings = trace.header.settings
    lanes = {lane: _LaneState(_policy(lane, settings)) for lane in LANES}
    for r in trace.rounds:
        try:
            _check_sequence(r, lanes[r.lane], settings)
            _check_outcomes(r, lanes[r.lane].policy.gamma)
            if settings.drafter == "ngram":
                _check_ngram_drafts(r)
            for name, tokens in (("drafted", r.drafted), ("emitted", r.emitted)):
                for place, token in enumerate(tokens):
                    _check_token(token, f"{name} token {place + 1}", settings)
        except Invalid as invalid:
            raise invalid.inside(round_name(r.lane, r.index)) from None
        _advance(lanes[r.lane], r)
    _check_order(trace)
    if trace.end is not None:
        for lane in LANES:
            _check_reason(trace.end.reasons[lane], lane, lanes[lane], settings)
        _check_comparison(trace, trace.end)


def _policy(lane: Lane, settings: Settings) -> Policy:
    if lane == "baseline" or settings.drafter == "none":
        return FixedGamma(0)
    # The optimal policy depends on costs that a recording does not hold; gamma is its upper bound.
    adapts = settings.gamma and settings.gamma_policy == "heuristic"
    return (HeuristicGamma if adapts else FixedGamma)(settings.gamma)


def _check_sequence(r: Round, lane: _LaneState, settings: Settings) -> None:
    """Check the index, the clock and the number of tokens against the rounds before."""
    if r.index != lane.rounds:
        raise Invalid(f"it stands where round {lane.rounds + 1} of its lane should")
    if lane.cut:
        raise Invalid("it comes after a round that ended its lane")
    parts = r.draft_seconds + r.verify_seconds + r.overhead_seconds
    if r.clock < lane.clock:
        raise Invalid(f"the clock goes back from {lane.clock:.6g} s to {r.clock:.6g} s")
    if abs(lane.clock + parts - r.clock) > CLOCK_TOLERANCE * max(1.0, r.clock):
        raise Invalid(
            f"the clock moves by {r.clock - lane.clock:.6g} s and the parts of the round add up "
            f"to {parts:.6g} s"
        )
    if lane.tokens + len(r.emitted) > settings.max_new_tokens:
        raise Invalid(f"the lane has emitted more than max_new_tokens, {settings.max_new_tokens}")


def _check_outcomes(r: Round, gamma: int) -> None:
    """Check the order of outcomes.

    Drafted: accepted tokens, then perhaps one rejected and some ignored ones. Emitted: the
    accepted tokens, then at most one corrected or bonus token.
    """
    if len(r.drafted) > gamma:
        raise Invalid(f"it has {len(r.drafted)} drafted tokens where {gamma} may be")
    kept = len(list(takewhile(lambda t: t.outcome == "accepted", r.drafted)))
    not_kept = [t.outcome for t in r.drafted[kept:]]
    rejected = not_kept[:1] == ["rejected"]
    if any(outcome != "ignored" for outcome in not_kept[rejected:]):
        raise Invalid("its drafted tokens are not accepted ones, one rejected, then ignored ones")
    if r.emitted[:kept] != r.drafted[:kept]:
        raise Invalid("its emitted tokens do not begin with the accepted ones")
    own = [t.outcome for t in r.emitted[kept:]]
    expected = "corrected" if rejected else "bonus"
    # If the text ends with an accepted token, the round has no bonus token, and tokens drafted
    # after the end are ignored. A text cannot end between a rejection and its correction.
    if own != [expected] and (own or rejected or not kept):
        raise Invalid(f"after the accepted tokens it must emit one token, {expected}")
    if own and not_kept and not rejected:
        raise Invalid("it emits a bonus although not all drafted tokens were accepted")


def _check_ngram_drafts(r: Round) -> None:
    """Check that q is 1: the n-gram drafter copies tokens, it does not sample them."""
    for place, token in enumerate(r.drafted):
        if token.q != 1.0:
            raise Invalid("q is not 1, yet it was looked up", f"drafted token {place + 1}")


def _check_token(token: Token, name: str, settings: Settings) -> None:
    known, unknown = FIELDS_BY_OUTCOME[token.outcome]
    for field in known:
        if getattr(token, field) is None:
            raise Invalid(f"{field} is missing from a token that was {token.outcome}", name)
    for field in unknown:
        if getattr(token, field) is not None:
            raise Invalid(f"{field} cannot be known of a token that was {token.outcome}", name)
    if settings.greedy and token.p is not None and token.soft_p is None:
        raise Invalid("soft_p is missing although the run is greedy", name)
    if token.outcome in JUDGED:
        _check_verdict(token, name)


def _check_verdict(token: Token, name: str) -> None:
    """Check that the token was accepted if and only if u < p / q, and that beta >= min(p, q)."""
    p, q, u, beta = token.p, token.q, token.u, token.beta
    assert p is not None and q is not None and u is not None and beta is not None
    if q == 0.0:
        raise Invalid("q is 0, but a draft never draws a token of probability 0", name)
    bound = p / q
    accepted = token.outcome == "accepted"
    if (accepted and u >= bound * (1 + ROUNDING)) or (not accepted and u < bound * (1 - ROUNDING)):
        raise Invalid(f"it was {token.outcome} with u = {u:.6g} and p / q = {bound:.6g}", name)
    if beta < min(p, q) - SLACK:
        raise Invalid(f"beta is {beta:.6g}, less than min(p, q) of this token", name)


def _advance(lane: _LaneState, r: Round) -> None:
    lane.rounds += 1
    lane.tokens += len(r.emitted)
    lane.clock = r.clock
    lane.cut = r.emitted[-1].outcome == "accepted"
    lane.policy.observe(len(r.drafted), sum(t.outcome == "accepted" for t in r.drafted))


def _check_order(trace: Trace) -> None:
    """Check that rounds are in the order of their clocks, or one lane after the other."""
    interleaved = trace.header.mode == "interleaved"
    for before, r in pairwise(trace.rounds):
        back = LANES.index(r.lane) < LANES.index(before.lane)
        if (r.clock < before.clock) if interleaved else back:
            raise Invalid(
                f"it stands out of order in a race whose mode is {trace.header.mode}",
                round_name(r.lane, r.index),
            )


def _check_reason(reason: str, lane: Lane, run: _LaneState, settings: Settings) -> None:
    if run.cut and reason not in CUT_BY:
        raise Invalid(f"reasons says {reason} for the {lane} lane, whose last round was cut", "end")
    if reason == "length" and run.tokens != settings.max_new_tokens:
        raise Invalid(
            f"reasons says length for the {lane} lane, which has {run.tokens} of "
            f"{settings.max_new_tokens} tokens",
            "end",
        )
    if (reason == "stop" and not settings.stop) or (reason == "eos" and settings.ignore_eos):
        raise Invalid(f"reasons says {reason} for the {lane} lane, ruled out by settings", "end")


def _check_comparison(trace: Trace, end: End) -> None:
    """Check the end's comparison of the two texts against their ids."""
    stopped = "stopped" in end.reasons.values()
    if end.identical is None and (stopped or not trace.header.settings.greedy):
        if end.compared or end.divergence:
            raise Invalid("it compares the lanes without saying whether they are identical", "end")
        return
    if end.identical is None or not trace.header.settings.greedy:
        raise Invalid("identical must be true or false if the run is greedy, else null", "end")
    ours, theirs = ([t.id for r in trace.lane(lane) for t in r.emitted] for lane in LANES)
    compared = min(len(ours), len(theirs))
    if end.compared != compared:
        raise Invalid(f"compared is {end.compared} and both lanes have {compared} tokens", "end")
    first_difference = next((i for i in range(compared) if ours[i] != theirs[i]), None)
    if end.identical != (first_difference is None):
        said = "true" if end.identical else "false"
        raise Invalid(f"identical is {said} and the tokens of the lanes say otherwise", "end")
    if (end.divergence.index if end.divergence else None) != first_difference:
        raise Invalid("divergence is not where the lanes first differ", "end")

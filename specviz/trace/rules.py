"""What every real run has in common: the rules that rounds keep, whatever the models.

The tolerances cover what rounding can do to a number that was computed in fp32 or summed in
another order, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

from ..policy import FixedGamma, HeuristicGamma, Policy
from ..settings import Settings
from .events import LANES, Divergence, End, Lane, Round, Token
from .schema import SLACK, round_name
from .trace import Trace
from .validators import Wrong

TICK = 1e-6  # seconds, and the same share of a clock
ROUNDING = 1e-5  # share of p / q
JUDGED = ("accepted", "rejected")
CUT_BY = ("eos", "stop", "stopped")  # what may end a lane in the middle of a round
FIELDS_OF = {  # outcome: what a token must know, and what it cannot know
    "accepted": (("p", "q", "u", "beta"), ()),
    "rejected": (("p", "q", "u", "beta"), ()),
    "ignored": (("q",), ("p", "u", "beta")),
    "corrected": (("p", "q"), ("u", "beta")),
    "bonus": (("p",), ("q", "u", "beta")),
}


@dataclass(slots=True)
class _Progress:
    """How far a lane has got, as far as its rounds were read. policy: what its rounds may draft."""

    policy: Policy
    rounds: int = 0
    tokens: int = 0
    clock: float = 0.0
    over: bool = False  # its last round lacks the target's own token


def check_trace(trace: Trace) -> None:
    """Raise `Wrong` with the first rule that the trace breaks."""
    settings = trace.header.settings
    lanes = {lane: _Progress(_policy(lane, settings)) for lane in LANES}
    for r in trace.rounds:
        try:
            _check_place(r, lanes[r.lane], settings)
            _check_pattern(r, lanes[r.lane].policy.gamma)
            if settings.drafter == "ngram":
                _check_looked_up(r)
            for name, tokens in (("drafted", r.drafted), ("emitted", r.emitted)):
                for place, token in enumerate(tokens):
                    _check_token(token, f"{name} token {place + 1}", settings)
        except Wrong as wrong:
            raise wrong.inside(round_name(r.lane, r.index)) from None
        _advance(lanes[r.lane], r)
    _check_order(trace)
    if trace.end is not None:
        for lane in LANES:
            _check_reason(trace.end.reasons[lane], lane, lanes[lane], settings)
        _check_comparison(trace, trace.end)


def _policy(lane: Lane, settings: Settings) -> Policy:
    if lane == "baseline" or settings.drafter == "none":
        return FixedGamma(0)
    # What is optimal rests on prices, which a recording does not hold: gamma bounds it.
    adapts = settings.gamma and settings.gamma_policy == "heuristic"
    return (HeuristicGamma if adapts else FixedGamma)(settings.gamma)


def _check_place(r: Round, lane: _Progress, settings: Settings) -> None:
    """Index, clock and budget follow from the rounds before."""
    if r.index != lane.rounds:
        raise Wrong(f"it stands where round {lane.rounds + 1} of its lane should")
    if lane.over:
        raise Wrong("it comes after a round that ended its lane")
    parts = r.draft_seconds + r.verify_seconds + r.overhead_seconds
    if r.clock < lane.clock:
        raise Wrong(f"the clock goes back from {lane.clock:.6g} s to {r.clock:.6g} s")
    if abs(lane.clock + parts - r.clock) > TICK * max(1.0, r.clock):
        raise Wrong(
            f"the clock moves by {r.clock - lane.clock:.6g} s and the parts of the round add up "
            f"to {parts:.6g} s"
        )
    if lane.tokens + len(r.emitted) > settings.max_new_tokens:
        raise Wrong(f"the lane has emitted more than max_new_tokens, {settings.max_new_tokens}")


def _check_pattern(r: Round, gamma: int) -> None:
    """Accepted drafts, perhaps one rejected, ignored ones; then at most one of the target's."""
    if len(r.drafted) > gamma:
        raise Wrong(f"it has {len(r.drafted)} drafted tokens where {gamma} may be")
    kept = len(list(takewhile(lambda t: t.outcome == "accepted", r.drafted)))
    fallen = [t.outcome for t in r.drafted[kept:]]
    rejected = fallen[:1] == ["rejected"]
    if any(outcome != "ignored" for outcome in fallen[rejected:]):
        raise Wrong("its drafted tokens are not accepted ones, one rejected, then ignored ones")
    if r.emitted[:kept] != r.drafted[:kept]:
        raise Wrong("its emitted tokens do not begin with the accepted ones")
    own = [t.outcome for t in r.emitted[kept:]]
    due = "corrected" if rejected else "bonus"
    # An end may cut the round short of the target's own token, though not after a rejection,
    # and what was drafted past the end is then ignored.
    if own != [due] and (own or rejected or not kept):
        raise Wrong(f"after the accepted tokens it must emit one token, {due}")
    if own and fallen and not rejected:
        raise Wrong("it emits a bonus although not all drafted tokens were accepted")


def _check_looked_up(r: Round) -> None:
    """What is looked up is drafted with certainty."""
    for place, token in enumerate(r.drafted):
        if token.q != 1.0:
            raise Wrong("q is not 1, yet it was looked up", f"drafted token {place + 1}")


def _check_token(token: Token, name: str, settings: Settings) -> None:
    known, unknown = FIELDS_OF[token.outcome]
    for field in known:
        if getattr(token, field) is None:
            raise Wrong(f"{field} is missing from a token that was {token.outcome}", name)
    for field in unknown:
        if getattr(token, field) is not None:
            raise Wrong(f"{field} cannot be known of a token that was {token.outcome}", name)
    if settings.greedy and token.p is not None and token.soft_p is None:
        raise Wrong("soft_p is missing although the run is greedy", name)
    if token.outcome in JUDGED:
        _check_verdict(token, name)


def _check_verdict(token: Token, name: str) -> None:
    """Accepted if and only if u < p / q."""
    p, q, u, beta = token.p, token.q, token.u, token.beta
    assert p is not None and q is not None and u is not None and beta is not None
    if q == 0.0:
        raise Wrong("q is 0: no draft draws what it rules out", name)
    bound = p / q
    accepted = token.outcome == "accepted"
    if (accepted and u >= bound * (1 + ROUNDING)) or (not accepted and u < bound * (1 - ROUNDING)):
        raise Wrong(f"it was {token.outcome} with u = {u:.6g} and p / q = {bound:.6g}", name)
    if beta < min(p, q) - SLACK:
        raise Wrong(f"beta is {beta:.6g}, less than this token's own share of it", name)


def _advance(lane: _Progress, r: Round) -> None:
    lane.rounds += 1
    lane.tokens += len(r.emitted)
    lane.clock = r.clock
    lane.over = r.emitted[-1].outcome == "accepted"
    lane.policy.saw(len(r.drafted), sum(t.outcome == "accepted" for t in r.drafted))


def _check_order(trace: Trace) -> None:
    """Rounds in the order of their clocks, or one lane after the other."""
    interleaved = trace.header.mode == "interleaved"
    for before, r in pairwise(trace.rounds):
        back = LANES.index(r.lane) < LANES.index(before.lane)
        if (r.clock < before.clock) if interleaved else back:
            raise Wrong(
                f"it stands out of order in a race whose mode is {trace.header.mode}",
                round_name(r.lane, r.index),
            )


def _check_reason(reason: str, lane: Lane, run: _Progress, settings: Settings) -> None:
    if run.over and reason not in CUT_BY:
        raise Wrong(f"reasons says {reason} for the {lane} lane, whose last round was cut", "end")
    if reason == "length" and run.tokens != settings.max_new_tokens:
        raise Wrong(
            f"reasons says length for the {lane} lane, which has {run.tokens} of "
            f"{settings.max_new_tokens} tokens",
            "end",
        )
    if (reason == "stop" and not settings.stop) or (reason == "eos" and settings.ignore_eos):
        raise Wrong(f"reasons says {reason} for the {lane} lane, ruled out by settings", "end")


def _check_comparison(trace: Trace, end: End) -> None:
    """What the end says about the two texts is what their ids say."""
    stopped = "stopped" in end.reasons.values()
    if end.identical is None and (stopped or not trace.header.settings.greedy):
        if end.compared or end.divergence:
            raise Wrong("it compares the lanes without saying whether they are identical", "end")
        return
    if end.identical is None or not trace.header.settings.greedy:
        raise Wrong("identical must be true or false if the run is greedy, else null", "end")
    ours, theirs = ([t.id for r in trace.lane(lane) for t in r.emitted] for lane in LANES)
    compared = min(len(ours), len(theirs))
    if end.compared != compared:
        raise Wrong(f"compared is {end.compared} and both lanes have {compared} tokens", "end")
    parting = next((i for i in range(compared) if ours[i] != theirs[i]), None)
    if end.identical != (parting is None):
        said = "true" if end.identical else "false"
        raise Wrong(f"identical is {said} and the tokens of the lanes say otherwise", "end")
    if _index(end.divergence) != parting:
        raise Wrong("divergence is not where the lanes first differ", "end")


def _index(divergence: Divergence | None) -> int | None:
    return divergence.index if divergence else None

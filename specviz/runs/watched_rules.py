"""The rules of a run whose server speculated by itself and was only watched.

Nothing is known of probabilities there. What the server tells must add up: the tokens of its steps
are the text, and no step accepts more than it drafted.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise, takewhile

from ..core.events import UNKNOWN_ID, End, Round, Token
from ..lanes import BASELINE, Lane
from .end_rules import check_comparison
from .schema import round_name
from .trace import Trace
from .validators import Invalid

CLOCK_TOLERANCE = 1e-6  # seconds, or relative to a clock above 1 second
NUMBERS = tuple(f.name for f in fields(Token) if f.name not in ("id", "text", "outcome"))
SERVERS = {"gamma": 0, "drafter": "none", "gamma_policy": "fixed", "verdict": "token"}
"""The settings of a watched run that are the server's own affair, and what stands in their
place."""


def check_watched(trace: Trace) -> None:
    """Check all rules; raises `Invalid` with the first one that the trace breaks."""
    header = trace.header
    for name, value in SERVERS.items():
        if getattr(header.settings, name) != value:
            raise Invalid(f"{name} is not {value}, but a server chooses it", "header", "settings")
    if header.draft is not None or header.memory is not None or header.mode != "sequential":
        raise Invalid("draft and memory must be null, and mode sequential, of a server", "header")
    for before, r in pairwise(trace.rounds):
        if trace.lanes.index(r.lane) < trace.lanes.index(before.lane):
            raise Invalid("it stands out of order", round_name(r.lane, r.index))
    for lane in trace.lanes:
        _check_lane(trace, lane)
    if trace.end is not None:
        _check_end(trace, trace.end)


def _check_lane(trace: Trace, lane: Lane) -> None:
    rounds, clock, wall, tokens = trace.lane(lane), 0.0, 0.0, 0
    for place, r in enumerate(rounds):
        is_last = place == len(rounds) - 1
        try:
            if r.index != place:
                raise Invalid(f"it stands where round {place + 1} of its lane should")
            _check_times(r, clock, wall)
            for name, token in _named(r):
                _check_token(token, name)
            (_check_alone if lane == BASELINE else _check_step)(r, is_last)
            tokens += len(r.emitted)
            if tokens > trace.header.settings.max_new_tokens:
                raise Invalid("the lane has emitted more than max_new_tokens")
        except Invalid as invalid:
            raise invalid.inside(round_name(lane, r.index)) from None
        clock, wall = r.clock, r.wall or 0.0


def _check_times(r: Round, clock: float, wall: float) -> None:
    if r.draft_seconds or r.verify_seconds:
        raise Invalid("it splits its time, but a server tells no parts of it")
    if r.index == 0 and r.clock:
        raise Invalid("its clock is not 0, but it begins with the first tokens that came")
    if abs(clock + r.overhead_seconds - r.clock) > CLOCK_TOLERANCE * max(1.0, r.clock):
        raise Invalid("the clock moves by another time than the round took")
    if r.wall is None or r.wall - wall < (r.clock - clock) * (1 - CLOCK_TOLERANCE):
        raise Invalid("wall is missing or moves by less than the clock")


def _named(r: Round) -> list[tuple[str, Token]]:
    return [
        *((f"drafted token {i}", token) for i, token in enumerate(r.drafted, 1)),
        *((f"emitted token {i}", token) for i, token in enumerate(r.emitted, 1)),
    ]


def _check_token(token: Token, name: str) -> None:
    for field in NUMBERS:
        if getattr(token, field) not in (None, ()):
            raise Invalid(f"{field} cannot be known of a server's token", name)
    if token.outcome in ("rejected", "ignored") and (token.id != UNKNOWN_ID or token.text):
        raise Invalid("a server does not tell what it rejected", name)
    if token.outcome == "accepted" and token.id == UNKNOWN_ID and token.text:
        raise Invalid("its text is told, but not its id", name)


def _check_alone(r: Round, _: bool) -> None:
    if r.drafted or [t.outcome for t in r.emitted] != ["bonus"]:
        raise Invalid("a step of the target alone emits one token and drafts none")


def _check_step(r: Round, is_last: bool) -> None:
    """Check that a step emits its accepted drafts and one token more, whose outcome follows from
    the drafts; only the step that a text ends in may lack it."""
    kept = len(list(takewhile(lambda t: t.outcome == "accepted", r.drafted)))
    rest = [t.outcome for t in r.drafted[kept:]]
    rejected = rest[:1] == ["rejected"]
    if any(outcome != "ignored" for outcome in rest[rejected:]):
        raise Invalid("its drafted tokens are not accepted ones, one rejected, then ignored ones")
    if r.emitted[:kept] != r.drafted[:kept]:
        raise Invalid("its emitted tokens do not begin with the accepted ones")
    own = [t.outcome for t in r.emitted[kept:]]
    if not own:
        if rejected or not kept or not is_last:
            raise Invalid("it emits no token of the target's own, but the text goes on")
        return
    expected = ["corrected"] if rejected else ["bonus"]
    if own != expected and (own != ["untold"] or rest):
        raise Invalid(f"after the accepted tokens it must emit one token, {expected[0]}")
    if rest and not rejected:
        raise Invalid("it emits a bonus although not all drafted tokens were accepted")
    if r.index == 0 and r.drafted:
        raise Invalid("it has drafts, but the first token comes from reading the prompt")


def _check_end(trace: Trace, end: End) -> None:
    most = trace.header.settings.max_new_tokens
    for lane, reason in end.reasons.items():
        count = sum(len(r.emitted) for r in trace.lane(lane))
        if reason == "length" and count != most:
            raise Invalid(f"reasons says length for the {lane} lane, which has {count}", "end")
    if BASELINE in trace.lanes:
        check_comparison(trace, end)
    elif end.identical is not None or end.compared or end.divergence:
        raise Invalid("it compares the lane with a baseline, which is not there", "end")
    if end.counted is not None and end.counted.get("accepted", 0) > end.counted.get("drafted", 0):
        raise Invalid("counted says that more was accepted than drafted", "end")

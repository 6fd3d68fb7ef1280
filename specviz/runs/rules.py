"""The rules that every real run follows, whatever its models: `check_trace`.

Those of a token's numbers are in `token_rules`, those of how drafts were judged in
`verdict_rules`, those of the length of drafts in `draft_rules`, those of the end in `end_rules`,
and those of a watched server in `watched_rules`.
The times of a run cannot be verified, only that they add up: a recording holds nothing else that
depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

from ..core.events import Header, Round
from ..core.policy import Policy
from ..lanes import BASELINE
from ..settings import Settings
from .draft_rules import check_draft_lengths, has_draft_model, policy_of
from .end_rules import check_end, check_texts
from .schema import round_name
from .token_rules import Known, check_accepted_copies, check_token
from .trace import Trace
from .validators import Invalid
from .verdict_rules import check_block, check_correction
from .watched_rules import check_watched

CLOCK_TOLERANCE = 1e-6  # seconds, or relative to a clock above 1 second


@dataclass(slots=True)
class _LaneState:
    """A lane after the rounds checked so far. policy: how many tokens its next round may draft."""

    policy: Policy
    wall: float | None  # before the first round, the seconds of the prefill
    rounds: int = 0
    tokens: int = 0
    clock: float = 0.0
    cut: bool = False  # its last round has no corrected or bonus token, so the lane ended there


def check_trace(trace: Trace) -> None:
    """Check all rules; raises `Invalid` with the first one that the trace breaks."""
    header = trace.header
    if header.source is not None:
        check_watched(trace)
        return
    known = _known_of_target(trace)
    of_lane = {lane: header.settings_of(lane) for lane in trace.lanes}
    lanes = {
        lane: _LaneState(policy_of(lane, own), wall=sum(header.prefill_seconds[lane].values()))
        for lane, own in of_lane.items()
    }
    for r in trace.rounds:
        settings = of_lane[r.lane]
        try:
            _check_sequence(r, lanes[r.lane], settings)
            _check_outcomes(r, lanes[r.lane].policy.gamma)
            if settings.drafter == "ngram":
                _check_ngram_drafts(r)
            _check_tokens(r, settings, known)
            _check_times(r, lanes[r.lane])
        except Invalid as invalid:
            raise invalid.inside(round_name(r.lane, r.index)) from None
        _advance(lanes[r.lane], r)
    _check_order(trace)
    _check_header(header)
    for lane in header.speculative:
        check_draft_lengths(trace, lane)
    check_texts(trace)
    if trace.end is not None:
        check_end(trace, trace.end)


def _known_of_target(trace: Trace) -> Known:
    """What the tokens tell of the target's distributions.

    A server that drew by itself has told none of them, of any token.
    """
    if not trace.header.on_server:
        return "all"
    judged = [t for r in trace.rounds for t in (*r.drafted, *r.emitted) if t.p is not None]
    return "drawn" if judged and not any(t.top_p for t in judged) else "listed"


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
    check_accepted_copies(r, kept)
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


def _check_tokens(r: Round, settings: Settings, known: Known) -> None:
    kept = sum(t.outcome == "accepted" for t in r.drafted)
    # Accepted tokens stand in both lists, and are the same there.
    own = enumerate(r.emitted[kept:], kept + 1)
    named = [(f"drafted token {i}", token) for i, token in enumerate(r.drafted, 1)]
    for name, token in [*named, *((f"emitted token {i}", token) for i, token in own)]:
        try:
            check_token(token, settings, known)
            if token.outcome == "corrected":
                check_correction(r, kept, token, settings)
        except Invalid as invalid:
            raise invalid.inside(name) from None
    if settings.rule == "block":
        check_block(r)


def _check_times(r: Round, lane: _LaneState) -> None:
    """Check that what was done took time, and that the wall clock is never behind."""
    if r.verify_seconds == 0.0:
        raise Invalid("verify_seconds is 0, but every pass takes time")
    if r.drafted and r.draft_seconds == 0.0:
        raise Invalid("draft_seconds is 0, but drafting takes time")
    if (r.wall is None) != (lane.wall is None) and lane.rounds:
        raise Invalid("wall must be in all rounds of a lane or in none")
    before = lane.wall or 0.0
    if r.wall is not None and r.wall - before < (r.clock - lane.clock) * (1 - CLOCK_TOLERANCE):
        raise Invalid(
            f"wall moves by {r.wall - before:.6g} s and the clock, which counts less, by "
            f"{r.clock - lane.clock:.6g} s"
        )


def _advance(lane: _LaneState, r: Round) -> None:
    lane.rounds += 1
    lane.tokens += len(r.emitted)
    lane.clock, lane.wall = r.clock, r.wall
    lane.cut = r.emitted[-1].outcome == "accepted"
    lane.policy.observe(len(r.drafted), sum(t.outcome == "accepted" for t in r.drafted))


def _check_order(trace: Trace) -> None:
    """Check that rounds are in the order of their clocks, or one lane after the other."""
    interleaved = trace.header.mode == "interleaved"
    for before, r in pairwise(trace.rounds):
        back = trace.lanes.index(r.lane) < trace.lanes.index(before.lane)
        if (r.clock < before.clock) if interleaved else back:
            raise Invalid(
                f"it stands out of order in a race whose mode is {trace.header.mode}",
                round_name(r.lane, r.index),
            )


def _check_header(header: Header) -> None:
    """Check that a model is named as the draft, and has read the prompt, if one drafts."""
    prefill = header.prefill_seconds
    drafters = {header.settings_of(lane).drafter for lane in header.speculative}
    if header.memory is not None and "suffix" not in drafters:
        raise Invalid("memory is given, which no drafter reads", "header")
    for lane in header.speculative:
        drafts = has_draft_model(header.settings_of(lane))
        if (header.draft_of(lane) is not None) != drafts:
            raise Invalid(f"draft must be {'a model' if drafts else 'null'} by settings", "header")
        if ("draft" in prefill[lane]) != drafts or "draft" in prefill[BASELINE]:
            raise Invalid("prefill_seconds are not those of the models that run", "header")

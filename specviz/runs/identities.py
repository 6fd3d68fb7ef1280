"""Check identities that hold for the numbers of every recording, because the page computes with
them.

Counts add up, clocks only grow, and a draft was kept exactly where the rule says so. They cannot
show whether a recording is of the run that it names: `rerun` runs it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from ..base.errors import ADVICE, SettingsError, TraceError
from ..core.events import (
    UNKNOWN_ID,
    Agreement,
    Divergence,
    End,
    Header,
    Outcome,
    Round,
    Token,
    agreement_of,
)
from ..core.lanes import BASELINE, Lane
from ..core.settings import Settings
from ..core.several import check_shared
from .schema import round_name
from .trace import Trace
from .uncertainty import seconds_of

CLOCK_TOLERANCE = 1e-6  # seconds, or relative to a clock above 1 second
ROUNDING = 1e-5  # relative to p / q
MARGIN_ROUNDING = 1e-6  # nats


def check_trace(trace: Trace) -> None:
    """Raise `TraceError` with the first contradiction in a trace."""
    _check_header(trace.header)
    _check_rounds(trace)
    _check_order(trace)
    if trace.end is not None:
        _check_end(trace, trace.end)


def _fault(problem: str, *where: str) -> TraceError:
    return TraceError(f"{', '.join(where)}: {problem}; {ADVICE}.")


def _check_header(header: Header) -> None:
    is_watched = header.source is not None
    if not is_watched:
        if not header.prompt_ids or not header.threads:
            raise _fault("prompt_ids is empty, or threads is 0", "header")
        if not {"torch", "transformers"} <= header.versions.keys():
            raise _fault("torch or transformers is missing", "header", "versions")
    if header.question is not None and header.question not in header.prompt:
        raise _fault("prompt does not contain question", "header")
    if header.messages is not None and len(header.messages) < 2:
        raise _fault("messages has fewer than two turns", "header")
    lanes = header.lanes
    are_same = lanes.keys() == header.drafts.keys()
    if not lanes or BASELINE in lanes or not are_same:
        raise _fault("lanes and drafts must name the same lanes, without the baseline", "header")
    try:
        check_shared(lanes)
    except SettingsError as error:
        raise _fault(str(error).rstrip("."), "header", "lanes") from None
    prefill = header.prefill_seconds
    _check_lanes(header, prefill, "header", "prefill_seconds")
    for seconds in prefill.values():
        has_target = "target" in seconds
        if has_target == is_watched:
            raise _fault(
                "target is missing, or is given for a watched server", "header", "prefill_seconds"
            )
    if header.lane_threads:
        _check_lanes(header, header.lane_threads, "header", "lane_threads")


def _check_lanes(header: Header, by_lane: Mapping[Lane, Any], *where: str) -> None:
    if by_lane.keys() != set(header.all_lanes):
        raise _fault(f"the lanes must be {', '.join(header.all_lanes)}", *where)


def _check_rounds(trace: Trace) -> None:
    """Check each round against the previous round of its lane."""
    header = trace.header
    is_watched = header.source is not None
    is_drawn = _is_drawn_by_server(trace)
    last_rounds: dict[Lane, Round] = {}
    emitted: Counter[Lane] = Counter()
    for number, r in enumerate(trace.rounds, 1):
        if r.lane not in trace.lanes:
            lanes = ", ".join(trace.lanes)
            raise _fault(f"lane is not one of {lanes}", f"entry {number} of the rounds")
        settings = header.settings_of(r.lane)
        name = round_name(r.lane, r.index)
        last = last_rounds.get(r.lane)
        emitted[r.lane] += len(r.emitted)
        fault = ""
        if not is_watched:
            fault = _length_fault(r, settings)
        fault = fault or _times_fault(r, last) or _counts_fault(r, last)
        if not fault and emitted[r.lane] > settings.max_new_tokens:
            fault = f"the lane emitted more tokens than max_new_tokens, {settings.max_new_tokens}"
        if fault:
            raise _fault(fault, name)
        for position, token in enumerate(r.tokens, 1):
            if is_watched:
                fault = _watched_token_fault(token)
            else:
                fault = _token_fault(token, settings, is_drawn=is_drawn)
            if fault:
                raise _fault(fault, name, f"token {position}")
        last_rounds[r.lane] = r


def _length_fault(r: Round, settings: Settings) -> str:
    """The fault in the number of a round's drafted tokens; empty if there is none."""
    max_drafted = settings.gamma
    if r.lane == BASELINE:
        max_drafted = 0
    if len(r.drafted) > max_drafted:
        return f"it has {len(r.drafted)} drafted tokens, and the limit is {max_drafted}"
    return ""


def _is_drawn_by_server(trace: Trace) -> bool:
    """Whether the target's server drew the tokens and reported no distributions. The draft's lists
    are recorded, unless all lists were left out."""
    tokens = [token for r in trace.rounds for token in r.tokens]
    lists_q = any(token.top_q for token in tokens)
    lists_p = any(token.top_p for token in tokens)
    return trace.header.on_server and lists_q and not lists_p


def _times_fault(r: Round, last: Round | None) -> str:
    """The fault in a round's times after the previous round of its lane; empty if there is none."""
    begin = 0.0
    wall_begin = 0.0
    if last is not None:
        begin = last.clock
        wall_begin = last.wall or 0.0
    seconds = seconds_of(r)
    if r.clock < begin:
        return f"the clock runs backwards, from {begin:.6g} s to {r.clock:.6g} s"
    tolerance = CLOCK_TOLERANCE * max(1.0, r.clock)
    if abs(begin + seconds - r.clock) > tolerance:
        return (
            f"the clock advances by {r.clock - begin:.6g} s and the parts of the round add up to "
            f"{seconds:.6g} s"
        )
    if r.wall is not None and r.wall < wall_begin:
        return "wall, the wall clock, runs backwards"
    return ""


def _counts_fault(r: Round, last: Round | None) -> str:
    """The fault in the outcomes of a round's tokens; empty if there is none. Drafted tokens come
    first: accepted ones, then perhaps one rejected and some ignored. One more token follows, which
    only the last round of a lane may lack."""
    index = 0
    if last is not None:
        index = last.index + 1
    if r.index != index:
        return f"round {index + 1} of its lane should be here"
    if last is not None and last.last is None:
        return "it comes after a round that ended its lane"
    drafted = [token.outcome for token in r.drafted]
    accepted = list(takewhile(lambda outcome: outcome == "accepted", drafted))
    after_accepted = drafted[len(accepted) :]
    is_rejected = after_accepted[:1] == ["rejected"]
    ignored = after_accepted
    if is_rejected:
        ignored = after_accepted[1:]
    if any(outcome != "ignored" for outcome in ignored):
        return "its drafted tokens must be accepted ones, then one rejected, then ignored ones"
    return _last_token_fault(r, after_accepted)


def _last_token_fault(r: Round, after_accepted: Sequence[Outcome]) -> str:
    """The fault in the outcome of a round's last token; empty if there is none. after_accepted: the
    outcomes of the drafted tokens after the accepted ones."""
    is_rejected = "rejected" in after_accepted
    has_accepted = len(r.drafted) > len(after_accepted)
    if r.last is None and has_accepted and not is_rejected:
        return ""  # the text ended in its drafts
    if r.last is not None and r.last.outcome == "untold" and not after_accepted:
        return ""
    expected = "bonus"
    if is_rejected:
        expected = "corrected"
    if r.last is None or r.last.outcome != expected:
        return f"the outcome of its last token must be {expected}"
    if expected == "bonus" and after_accepted:
        return "it emits a bonus token although not all drafted tokens were accepted"
    return ""


def _watched_token_fault(token: Token) -> str:
    """The fault in a token of a watched server; empty if there is none."""
    if token != Token(token.id, token.text, token.outcome):
        return "it has probabilities, which a watched server does not report"
    return ""


def _token_fault(token: Token, settings: Settings, *, is_drawn: bool) -> str:
    """The fault in a token; empty if there is none. is_drawn: whether the target's server drew
    it."""
    if token.id == UNKNOWN_ID:
        return "id is missing"
    if is_drawn and (token.beta is not None or token.top_residual):
        return "beta and top_residual cannot be known if the server draws the tokens"
    if token.outcome in ("accepted", "rejected"):
        return _judgement_fault(token, settings)
    return ""


def _judgement_fault(token: Token, settings: Settings) -> str:
    """The fault in the numbers of a judged token; empty if there is none. It has p, q and u, and
    was accepted exactly if u < min(1, p / q) (the verdict "token"; other verdicts compare values
    that no single token holds)."""
    p = token.p
    q = token.q
    u = token.u
    lacks_u = u is None and settings.effective_verdict != "typical"
    if p is None or q is None or lacks_u:
        return f"p, q or u is missing, and the token was {token.outcome}"
    if q == 0.0:
        return "q is 0, but a draft never draws a token of probability 0"
    if settings.effective_verdict != "token" or u is None:
        return ""
    threshold = p / q
    if token.outcome == "accepted":
        is_right = u < threshold * (1 + ROUNDING)
    else:
        is_right = u >= threshold * (1 - ROUNDING)
    if not is_right:
        return f"it was {token.outcome} with u = {u:.6g} and p / q = {threshold:.6g}"
    return ""


def _check_order(trace: Trace) -> None:
    """Check that rounds are in the order of clocks, or one lane after another."""
    mode = trace.header.mode
    for before, r in pairwise(trace.rounds):
        if mode == "interleaved":
            is_back = r.clock < before.clock
        else:
            lane_index = trace.lanes.index(r.lane)
            is_back = lane_index < trace.lanes.index(before.lane)
        if is_back:
            fault = f"it is out of order for a race in the mode {mode}"
            raise _fault(fault, round_name(r.lane, r.index))


def _check_end(trace: Trace, end: End) -> None:
    """Check that each lane has an end reason, and that the agreement of texts is right."""
    header = trace.header
    counted = end.counted
    _check_lanes(header, end.reasons, "end", "reasons")
    if counted is not None and counted["accepted"] > counted["drafted"]:
        raise _fault("more tokens were accepted than drafted", "end", "counted")
    if end.lanes is not None and end.lanes.keys() != set(header.speculative):
        raise _fault("the lanes differ from those in the header", "end")
    for lane in header.speculative:
        _check_agreement(trace, end, lane)


def _check_agreement(trace: Trace, end: End, lane: Lane) -> None:
    """Check the recorded comparison of a lane's text with the baseline's."""
    recorded = end.agreement(lane)
    can_compare = trace.header.settings.greedy and BASELINE in trace.lanes
    is_stopped = "stopped" in end.reasons.values()
    if recorded == Agreement() and (not can_compare or is_stopped):
        return
    if not can_compare or recorded.identical is None:
        raise _fault("identical must be true or false for a greedy run, and null for others", "end")
    counted = agreement_of(trace.lane(lane), trace.lane(BASELINE))
    if (recorded.identical, recorded.compared) != (counted.identical, counted.compared):
        raise _fault("identical or compared contradicts the tokens of the lanes", "end")
    if _index_of(recorded.divergence) != _index_of(counted.divergence):
        raise _fault("divergence is not at the first token that differs", "end")
    apart = abs(_margin_of(recorded.divergence) - _margin_of(counted.divergence))
    if apart > MARGIN_ROUNDING:
        raise _fault("margin is not the gap between the token's two likeliest choices", "end")


def _index_of(divergence: Divergence | None) -> int | None:
    if divergence is None:
        return None
    return divergence.index


def _margin_of(divergence: Divergence | None) -> float:
    if divergence is None or divergence.margin is None:
        return 0.0
    return divergence.margin

"""What holds of the numbers of every recording, because the page computes with it: `check_trace`.

Counts add up, clocks only grow, and a draft was kept exactly where the rule says so. Whether a
recording is of the run that it names cannot be seen in it: `rerun` runs it again.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, takewhile
from typing import Any

from ..core.events import UNKNOWN_ID, Agreement, End, Header, Round, Token, agreement_of
from ..errors import ADVICE, SettingsError, TraceError
from ..lanes import BASELINE, Lane
from ..settings import Settings
from ..several import check_shared
from .schema import round_name
from .trace import Trace
from .uncertainty import seconds_of

CLOCK_TOLERANCE = 1e-6  # seconds, or relative to a clock above 1 second
ROUNDING = 1e-5  # relative to p / q
MARGIN_ROUNDING = 1e-6  # nats


def check_trace(trace: Trace) -> None:
    """Raise `TraceError` with the first thing in a trace that contradicts another."""
    header, lanes = trace.header, trace.lanes
    _check_header(header)
    watched = header.source is not None
    # A server that drew the tokens told none of the target's distributions. The draft's lists are
    # there, unless somebody left out all of them.
    tokens = [t for r in trace.rounds for t in r.tokens]
    listed = any(t.top_q for t in tokens) and not any(t.top_p for t in tokens)
    drawn = header.on_server and listed
    last: dict[Lane, Round] = {}
    emitted: Counter[Lane] = Counter()
    for place, r in enumerate(trace.rounds, 1):
        if r.lane not in lanes:
            raise _fault(f"lane is not one of {', '.join(lanes)}", f"entry {place} of the rounds")
        settings, where = header.settings_of(r.lane), round_name(r.lane, r.index)
        most = 0 if r.lane == BASELINE else settings.gamma
        emitted[r.lane] += len(r.emitted)
        said = f"it has {len(r.drafted)} drafted tokens where {most} may be"
        if watched or len(r.drafted) <= most:
            said = _times_fault(r, last.get(r.lane)) or _counts_fault(r, last.get(r.lane))
        if not said and emitted[r.lane] > settings.max_new_tokens:
            said = f"the lane has emitted more than max_new_tokens, {settings.max_new_tokens}"
        if said:
            raise _fault(said, where)
        for number, token in enumerate(r.tokens, 1):
            if said := _token_fault(token, settings, watched=watched, drawn=drawn):
                raise _fault(said, where, f"token {number}")
        last[r.lane] = r
    for before, r in pairwise(trace.rounds):  # in the order of clocks, or one lane after another
        is_back = lanes.index(r.lane) < lanes.index(before.lane)
        if r.clock < before.clock if header.mode == "interleaved" else is_back:
            said = f"it stands out of order in a race whose mode is {header.mode}"
            raise _fault(said, round_name(r.lane, r.index))
    if trace.end is not None:
        _check_end(trace, trace.end)


def _fault(what: str, *places: str) -> TraceError:
    return TraceError(f"{', '.join(places)}: {what}; {ADVICE}.")


def _check_header(header: Header) -> None:
    is_watched = header.source is not None
    if not (is_watched or (header.prompt_ids and header.threads)):
        raise _fault("prompt_ids is empty or threads is 0", "header")
    if not is_watched and not {"torch", "transformers"} <= header.versions.keys():
        raise _fault("torch or transformers is missing", "header", "versions")
    if header.question is not None and header.question not in header.prompt:
        raise _fault("question is no part of prompt", "header")
    lanes = header.lanes
    if not lanes or BASELINE in lanes or lanes.keys() != header.drafts.keys():
        raise _fault("lanes and drafts are not of the same lanes with drafts", "header")
    try:
        check_shared(lanes)
    except SettingsError as error:
        raise _fault(str(error).rstrip("."), "header", "lanes") from None
    prefill = header.prefill_seconds
    _check_lanes(header, prefill, "header", "prefill_seconds")
    if any(("target" in seconds) == is_watched for seconds in prefill.values()):
        raise _fault("target is missing, or told by a server", "header", "prefill_seconds")
    _check_lanes(header, header.lane_threads or prefill, "header", "lane_threads")


def _check_lanes(header: Header, by_lane: dict[Lane, Any], *places: str) -> None:
    if by_lane.keys() != set(header.all_lanes):
        raise _fault(f"the lanes are not {', '.join(header.all_lanes)}", *places)


def _times_fault(r: Round, last: Round | None) -> str:
    """What is wrong with a round's times after the last one of its lane; empty if nothing is."""
    before, parts = last.clock if last else 0.0, seconds_of(r)
    if r.clock < before:
        return f"the clock goes back from {before:.6g} s to {r.clock:.6g} s"
    if abs(before + parts - r.clock) > CLOCK_TOLERANCE * max(1.0, r.clock):
        moved = f"the clock moves by {r.clock - before:.6g} s"
        return f"{moved} and the parts of the round add up to {parts:.6g} s"
    back = last is not None and r.wall is not None and r.wall < (last.wall or 0.0)
    return "wall, the clock on the wall, goes back" if back else ""


def _counts_fault(r: Round, last: Round | None) -> str:
    """The same of its tokens. Drafted: accepted ones, then perhaps one rejected and some ignored.
    Then one more, which only the last round of a lane may lack."""
    due = last.index + 1 if last else 0
    if r.index != due:
        return f"it stands where round {due + 1} of its lane should"
    if last and last.last is None:
        return "it comes after a round that ended its lane"
    outcomes = [t.outcome for t in r.drafted]
    kept = len(list(takewhile(lambda outcome: outcome == "accepted", outcomes)))
    is_rejected = outcomes[kept : kept + 1] == ["rejected"]
    if any(outcome != "ignored" for outcome in outcomes[kept + is_rejected :]):
        return "its drafted tokens are not accepted ones, one rejected, ignored ones"
    own = r.last and r.last.outcome
    expected = "corrected" if is_rejected else "bonus"
    is_untold = own == "untold" and kept == len(outcomes)
    if own != expected and not is_untold and (own or is_rejected or not kept):
        return f"its last token must be one that is {expected}"
    if own and len(outcomes) > kept and not is_rejected:
        return "it emits a bonus although not all drafted tokens were accepted"
    return ""


def _token_fault(token: Token, settings: Settings, *, watched: bool, drawn: bool) -> str:
    """The same of a token. A judged one has what judged it, and was accepted exactly where
    u < min(1, p / q) (the verdict "token"; what the others compare is in no single token)."""
    if watched:
        plain = token == Token(token.id, token.text, token.outcome)
        return "" if plain else "it has numbers, which no watched server tells"
    if token.id == UNKNOWN_ID:
        return "id is missing"
    if drawn and (token.beta is not None or token.top_residual):
        return "beta and top_residual cannot be known where the server draws"
    if token.outcome not in ("accepted", "rejected"):
        return ""
    p, q, u = token.p, token.q, token.u
    if p is None or q is None or (u is None and settings.rule != "typical"):
        return f"p, q or u is missing from a token that was {token.outcome}"
    if q == 0.0:
        return "q is 0, but a draft never draws a token of probability 0"
    if settings.rule != "token" or u is None:
        return ""
    surely = 1 + ROUNDING if token.outcome == "accepted" else 1 - ROUNDING
    kept = u < p / q * surely
    said = f"it was {token.outcome} with u = {u:.6g} and p / q = {p / q:.6g}"
    return "" if kept == (token.outcome == "accepted") else said


def _check_end(trace: Trace, end: End) -> None:
    """That each lane has a reason, and what is said of their texts is so."""
    header, counted = trace.header, end.counted
    _check_lanes(header, end.reasons, "end", "reasons")
    if counted is not None and counted["accepted"] > counted["drafted"]:
        raise _fault("more tokens were accepted than drafted", "end", "counted")
    if end.lanes is not None and end.lanes.keys() != set(header.speculative):
        raise _fault("lanes are not those of the header", "end")
    is_compared = header.settings.greedy and BASELINE in trace.lanes
    for lane in header.speculative:
        said, found = end.agreement(lane), agreement_of(trace.lane(lane), trace.lane(BASELINE))
        if said == Agreement() and (not is_compared or "stopped" in end.reasons.values()):
            continue
        if not is_compared or said.identical is None:
            raise _fault("identical must be true or false if the run is greedy, else null", "end")
        if (said.identical, said.compared) != (found.identical, found.compared):
            raise _fault("identical or compared is not what the tokens of the lanes say", "end")
        ours, theirs = said.divergence, found.divergence
        if (ours and ours.index) != (theirs and theirs.index):
            raise _fault("divergence is not where the lanes first differ", "end")
        margins = [(one and one.margin) or 0.0 for one in (ours, theirs)]
        if abs(margins[0] - margins[1]) > MARGIN_ROUNDING:
            raise _fault("margin is not that of the token's two likeliest choices", "end")

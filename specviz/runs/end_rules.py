"""The rules of how lanes end, and of what the end says about both texts."""

from __future__ import annotations

from ..core.agreement import margin_of
from ..core.events import Agreement, End, Token
from ..lanes import BASELINE, Lane
from .draft_rules import length_of, target_context
from .trace import Trace
from .validators import Invalid

UNFINISHED = "\ufffd"  # how a text ends that was cut off inside a character
CUT_BY = ("eos", "stop", "stopped")  # what may end a lane in the middle of a round
MARGIN_ROUNDING = 1e-6  # nats


def check_texts(trace: Trace) -> None:
    """Check that no lane went on after a stop text, or past a full context; raises `Invalid`."""
    context = target_context(trace)
    for lane in trace.lanes:
        tokens = _tokens(trace, lane)
        before = "".join(t.text for t in tokens[:-1])
        stop = next((s for s in trace.header.settings.stop if s in before), None)
        if stop is not None:
            raise Invalid(f"the {lane} lane goes on after a stop text of its settings")
        if context is not None and length_of(trace, lane) > context + 1:
            raise Invalid(f"the {lane} lane goes on after the target's context is full")


def check_end(trace: Trace, end: End) -> None:
    """Check that each lane ended for the reason that is given, and the comparison of both texts.

    Raises `Invalid`.
    """
    for lane in trace.lanes:
        try:
            _check_reason(trace, lane, end)
        except Invalid as invalid:
            raise invalid.inside("end") from None
    _check_end_of_text(trace, end)
    check_comparison(trace, end)


def _check_reason(trace: Trace, lane: Lane, end: End) -> None:
    reason, settings = end.reasons[lane], trace.header.settings
    tokens, most = _tokens(trace, lane), settings.max_new_tokens
    said = f"reasons says {reason} for the {lane} lane"
    # A round that ends with an accepted token was cut: else the target's own token follows.
    if tokens and tokens[-1].outcome == "accepted" and reason not in CUT_BY:
        raise Invalid(f"{said}, whose last round was cut")
    if reason == "length" and len(tokens) != most:
        raise Invalid(f"{said}, which has {len(tokens)} of {most} tokens")
    if (reason == "stop" and not settings.stop) or (reason == "eos" and settings.ignore_eos):
        raise Invalid(f"{said}, ruled out by settings")
    if reason in ("eos", "stop") and not tokens:
        raise Invalid(f"{said}, which is empty")
    if reason == "context" and len(tokens) == most:
        raise Invalid(f"{said}, which has all of {most} tokens")
    context = target_context(trace)
    if reason == "context" and context is not None and length_of(trace, lane) != context + 1:
        raise Invalid(f"{said}, whose context of {context} tokens is not full")
    text = "".join(t.text for t in tokens)
    stopped = any(stop in text for stop in settings.stop)
    if reason == "stop" and not stopped:
        raise Invalid(f"{said}, which holds no stop text")
    # What is left of a character when the text is over may look like a stop text, and is none.
    if reason != "stop" and stopped and not text.endswith(UNFINISHED):
        raise Invalid(f"{said}, which ends with a stop text")


def _check_end_of_text(trace: Trace, end: End) -> None:
    """Check that a token which ended a text stands nowhere before the end of either."""
    lanes = {lane: [t.id for t in _tokens(trace, lane)] for lane in trace.lanes}
    ends = {ids[-1] for lane, ids in lanes.items() if end.reasons[lane] == "eos"}
    for lane, ids in lanes.items():
        place = next((i for i, token_id in enumerate(ids[:-1]) if token_id in ends), None)
        if place is not None:
            raise Invalid(
                f"the {lane} lane goes on after token {place + 1}, which reasons says ends a text",
                "end",
            )


def check_comparison(trace: Trace, end: End) -> None:
    """Check the end's comparison of each text with the baseline's against their ids; raises
    `Invalid`."""
    stopped = "stopped" in end.reasons.values()
    greedy = trace.header.settings.greedy
    if end.identical is None and (stopped or not greedy):
        if end.compared or end.divergence or end.lanes:
            raise Invalid("it compares the lanes without saying whether they are identical", "end")
        return
    if end.identical is None or not greedy:
        raise Invalid("identical must be true or false if the run is greedy, else null", "end")
    first, *others = trace.header.speculative
    if (end.lanes is not None) != (trace.header.lanes is not None):
        raise Invalid("lanes must be there if the lanes have names of their own, else not", "end")
    if end.lanes is not None and end.lanes[first] != Agreement(
        end.identical, end.compared, end.divergence
    ):
        raise Invalid("it compares the first lane in two ways", "end")
    for lane in (first, *others):
        _check_agreement(trace, lane, end.agreement(lane))


def _check_agreement(trace: Trace, lane: Lane, said: Agreement) -> None:
    ours, theirs = _tokens(trace, lane), _tokens(trace, BASELINE)
    compared = min(len(ours), len(theirs))
    if said.identical is None:
        raise Invalid("identical must be true or false if the run is greedy, else null", "end")
    if said.compared != compared:
        raise Invalid(f"compared is {said.compared} and both lanes have {compared} tokens", "end")
    different = next((i for i in range(compared) if ours[i].id != theirs[i].id), None)
    if said.identical != (different is None):
        told = "true" if said.identical else "false"
        raise Invalid(f"identical is {told} and the tokens of the lanes say otherwise", "end")
    where = said.divergence
    if (where.index if where else None) != different:
        raise Invalid("divergence is not where the lanes first differ", "end")
    if where is not None:
        _check_margin(where.margin, margin_of(theirs[where.index]))


def _check_margin(said: float | None, listed: float | None) -> None:
    if said is None and listed is None:
        return
    if said is None or listed is None or abs(said - listed) > MARGIN_ROUNDING:
        raise Invalid("margin is not that of the token's two likeliest choices", "end, divergence")


def _tokens(trace: Trace, lane: Lane) -> list[Token]:
    return [t for r in trace.lane(lane) for t in r.emitted]

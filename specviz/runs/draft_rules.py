"""How many tokens a round drafts: as many as its policy asks for and its room allows."""

from __future__ import annotations

from itertools import accumulate

from ..core.events import Header, Round
from ..core.policy import FixedGamma, HeuristicGamma, Policy
from ..lanes import BASELINE, Lane
from ..settings import Settings
from .schema import round_name
from .trace import Trace
from .validators import Invalid

UNLIMITED = 10**9  # tokens, more than any context holds


def policy_of(lane: Lane, settings: Settings) -> Policy:
    """The policy of a lane; gamma of the optimal one is only its upper bound.

    It depends on costs that a recording does not hold.
    """
    if lane == BASELINE or settings.drafter == "none":
        return FixedGamma(0)
    adapts = settings.gamma and settings.gamma_policy == "heuristic"
    return (HeuristicGamma if adapts else FixedGamma)(settings.gamma)


def check_draft_lengths(trace: Trace, lane: Lane) -> None:
    """Check that no round of a lane drafted more than it had room for, or fewer than were due.

    Fewer may be drafted by the optimal policy and by the drafter "suffix", which stops where it is
    not confident, and none by the n-gram drafter, if it finds no match, or by a head, as long as
    the target has read no token. The room ends with the length, or with a context, which old
    recordings do not tell: all rounds must then agree on where it may be. Of a translated draft
    not even the room is known: its context counts tokens of its own. Raises `Invalid`.
    """
    settings = trace.header.settings_of(lane)
    rounds = trace.lane(lane)
    starts = _starts(trace, rounds)
    budget = len(trace.header.prompt_ids) + settings.max_new_tokens
    limit, certain = _last_place(trace, lane)
    seen = _seen(trace, lane, rounds, starts)
    policy = policy_of(lane, settings)
    for r, start in zip(rounds, starts, strict=True):
        count = len(r.drafted)
        due = max(0, min(policy.gamma, budget - 1 - start, limit - start))
        if count > due:
            more = f"it has {count} drafted tokens where {due} have room"
            raise Invalid(more, round_name(r.lane, r.index))
        finds_none = settings.drafter == "ngram" or (settings.drafter == "head" and start == 1)
        may_be_fewer = (
            (finds_none and not count)
            or settings.drafter == "suffix"
            or settings.gamma_policy == "optimal"
            or is_translated(trace.header, lane)
        )
        is_cut_off = not certain and start + count >= seen
        if count < due and not may_be_fewer and not is_cut_off:
            fewer = f"it has {count} drafted tokens where {due} were due"
            raise Invalid(fewer, round_name(r.lane, r.index))
        policy.observe(count, sum(t.outcome == "accepted" for t in r.drafted))


def _last_place(trace: Trace, lane: Lane) -> tuple[int, bool]:
    """The length that a text may reach with its drafts, by the models' contexts, and whether the
    recording tells all that it depends on."""
    target, draft = target_context(trace), trace.header.draft_of(lane)
    limit, certain = target or UNLIMITED, target is not None
    own_context = trace.header.settings_of(lane).drafter == "model"
    if own_context and draft is not None and not is_translated(trace.header, lane):
        # The last drafted token is never fed, so it may lie one past the draft's context.
        limit = min(limit, (draft.get("context") or UNLIMITED) + 1)
        certain = certain and "context" in draft
    return limit, certain


def target_context(trace: Trace) -> int | None:
    """How many tokens the target can see; None if neither header nor end tells."""
    if "context" in trace.header.target:
        return trace.header.target["context"] or UNLIMITED
    reasons = trace.end.reasons if trace.end else {}
    full = (lane for lane, reason in reasons.items() if reason == "context")
    # A lane ends with a full context when it has one token more than the context holds.
    return next((length_of(trace, lane) - 1 for lane in full), None)


def length_of(trace: Trace, lane: Lane) -> int:
    """The tokens of the prompt and of a lane."""
    return len(trace.header.prompt_ids) + sum(len(r.emitted) for r in trace.lane(lane))


def is_translated(header: Header, lane: Lane) -> bool:
    """Whether the draft model of a lane has another tokenizer than the target."""
    return "shared" in (header.draft_of(lane) or {})


def has_draft_model(settings: Settings) -> bool:
    """Whether the settings make a model draft, some of the target's layers, or a head."""
    return settings.gamma > 0 and settings.drafter in ("model", "early-exit", "head")


def _starts(trace: Trace, rounds: list[Round]) -> list[int]:
    """How many tokens were committed before each round."""
    counts = [len(trace.header.prompt_ids), *(len(r.emitted) for r in rounds)]
    return list(accumulate(counts))[:-1]


def _seen(trace: Trace, lane: Lane, rounds: list[Round], starts: list[int]) -> int:
    """The greatest length that the run shows to have had room in this lane."""
    drafting = [start + len(r.drafted) for r, start in zip(rounds, starts, strict=True)]
    if trace.header.settings_of(lane).drafter != "model":
        # Only the target's context counts, and it had room for all that was read.
        baseline = _starts(trace, trace.lane(BASELINE))
        return max([*drafting, *baseline], default=0)
    # A draft model may have the shorter context: rounds without drafts go on past its end.
    drafted = (end for end, r in zip(drafting, rounds, strict=True) if r.drafted)
    return max(drafted, default=0)

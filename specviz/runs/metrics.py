"""The metrics of a run, derived from its rounds only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.events import OUTCOMES, Round
from ..core.policy import predicted_tau
from ..errors import TraceError, shown
from ..lanes import BASELINE, Lane
from .trace import Trace

FEWEST = 2  # tokens and rounds of a lane from which its speed is compared


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of a trace; None where nothing has been measured yet.

    All fields describe one speculative lane, but for the dicts, which are by lane: of this one and
    of the baseline. The predictions are those of Leviathan et al. 2022 (see `core.policy`),
    averaged over the rounds.

    Of a watched server (see `Header.source`) speeds and tau leave out the first token, which came
    from reading the prompt; beta and c are unknown, and so are alpha, efficiency and the
    predictions where the server does not tell how many tokens it drafted. `drafted` has then only
    the accepted ones.

    counts: tokens by outcome; drafted = accepted + rejected + ignored and
        emitted = accepted + corrected + bonus. rounds: target passes.
    alpha: accepted / (accepted + rejected). efficiency: accepted / drafted.
    beta: mean over judged positions of the probability that a draft drawn from q is kept, an
        estimate of alpha: the sum over the vocabulary of min(p, q), or `Token.chance` with the
        verdicts exact-match and typical. Block verification has no such probability for a single
        position: beta is then that of the token rule.
    tau: emitted tokens per target pass. tau_predicted: from alpha, if acceptances were
        independent.
    c: seconds of a draft step / seconds of a one-token target pass (of the baseline lane).
    speedup: baseline seconds per token / speculative seconds per token, without prefill.
    speedup_end_to_end: the same with prefill. speedup_wall: the same on the wall clock: with
        prefill, engines, texts and lists of likeliest tokens (see `Round.wall`). All three are
        None if a lane has fewer than `FEWEST` rounds or tokens: too few to compare.
    speedup_predicted: from alpha, c and gamma.
    tokens, seconds, tokens_per_second: by lane, without prefill. wall_seconds: by lane, on the
        wall clock; None if the trace does not tell.
    draft_seconds, verify_seconds, overhead_seconds: of all rounds together.
    alpha_by_position: entry i is alpha of the drafted tokens at position i of their round, from 0.
    """

    counts: dict[str, int]
    drafted: int
    emitted: int
    rounds: int
    alpha: float | None
    efficiency: float | None
    beta: float | None
    tau: float | None
    tau_predicted: float | None
    c: float | None
    speedup: float | None
    speedup_end_to_end: float | None
    speedup_wall: float | None
    speedup_predicted: float | None
    tokens: dict[Lane, int]
    seconds: dict[Lane, float]
    tokens_per_second: dict[Lane, float | None]
    wall_seconds: dict[Lane, float | None]
    draft_seconds: float
    verify_seconds: float
    overhead_seconds: float
    alpha_by_position: tuple[float | None, ...]


def compute_metrics(trace: Trace, lane: Lane | None = None) -> Metrics:
    """The metrics of a speculative lane against the baseline; None: the first lane's.

    The trace may be of an unfinished run. Raises `TraceError` if it has no such lane.
    """
    if not isinstance(trace, Trace):
        raise TraceError(f"the trace is {shown(trace)}: pass a Trace, as Trace.load(FILE) gives.")
    name = trace.speculative_lane(lane)
    rounds, alone = trace.lane(name), trace.lane(BASELINE)
    own = [r for r in rounds if not r.reads_prompt]
    drafted = [t for r in rounds for t in r.drafted]
    seen = Counter(t.outcome for r in rounds for t in r.tokens)
    counts: dict[str, int] = {outcome: seen[outcome] for outcome in OUTCOMES}
    is_told = not seen["untold"]
    judged = counts["accepted"] + counts["rejected"]
    alpha = ratio(counts["accepted"], judged) if is_told else None
    betas = [t.beta if t.chance is None else t.chance for t in drafted if t.beta is not None]
    c = _cost_ratio(rounds, alone)
    costs = [len(r.drafted) * c + 1 for r in rounds] if c is not None else []
    return Metrics(
        counts=counts if is_told else counts | {"untold": seen["untold"]},
        drafted=len(drafted),
        emitted=sum(len(r.emitted) for r in rounds),
        rounds=len(rounds),
        alpha=alpha,
        efficiency=ratio(counts["accepted"], len(drafted)) if is_told else None,
        beta=ratio(sum(betas), len(betas)),
        tau=ratio(sum(len(r.emitted) for r in own), len(own)),
        tau_predicted=_predicted(own, alpha, len(own)),
        c=c,
        speedup_predicted=_predicted(rounds, alpha, sum(costs)),
        draft_seconds=sum(r.draft_seconds for r in rounds),
        verify_seconds=sum(r.verify_seconds for r in rounds),
        overhead_seconds=sum(r.overhead_seconds for r in rounds),
        alpha_by_position=_alpha_by_position(rounds) if is_told else (),
        **_speeds(trace, name, {name: rounds, BASELINE: alone}),
    )


def _speeds(trace: Trace, name: Lane, lanes: Mapping[Lane, Sequence[Round]]) -> dict[str, Any]:
    """The fields of `Metrics` by lane, and how much faster the lane is than the baseline."""
    tokens = {one: sum(len(r.emitted) for r in rounds) for one, rounds in lanes.items()}
    timed, seconds, wall, whole = dict(tokens), {}, {}, {}
    for one, rounds in lanes.items():
        seconds[one] = rounds[-1].clock if rounds else 0.0
        wall[one] = rounds[-1].wall if rounds else None
        prefill = sum(trace.header.prefill_seconds.get(one, {}).values())
        if rounds and rounds[0].reads_prompt:
            timed[one] -= len(rounds[0].emitted)
            prefill = rounds[0].wall or 0.0
        whole[one] = seconds[one] + prefill
    can_compare = min(*tokens.values(), *map(len, lanes.values())) >= FEWEST
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": {one: ratio(timed[one], seconds[one]) for one in lanes},
        "wall_seconds": wall,
        "speedup": _speedup(seconds, timed, name) if can_compare else None,
        "speedup_end_to_end": _speedup(whole, tokens, name) if can_compare else None,
        "speedup_wall": _speedup(wall, tokens, name) if can_compare else None,
    }


def best_lane(by_lane: Mapping[Lane, Metrics]) -> Lane | None:
    """The lane with the highest measured speed-up; None if none has one."""
    known = {lane: m.speedup for lane, m in by_lane.items() if m.speedup is not None}
    return max(known, key=known.__getitem__, default=None)


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None if `whole` is 0."""
    return part / whole if whole else None


def _speedup(
    seconds: Mapping[Lane, float | None], tokens: Mapping[Lane, int], lane: Lane
) -> float | None:
    slow, fast = (ratio(seconds[one] or 0.0, tokens[one]) for one in (BASELINE, lane))
    return slow / fast if slow and fast else None


def _cost_ratio(rounds: Sequence[Round], alone: Sequence[Round]) -> float | None:
    drafting = [r for r in rounds if r.drafted]
    step = ratio(sum(r.draft_seconds for r in drafting), sum(len(r.drafted) for r in drafting))
    target_pass = ratio(sum(r.verify_seconds for r in alone), len(alone))
    return step / target_pass if step and target_pass else None


def _predicted(rounds: Sequence[Round], alpha: float | None, cost: float) -> float | None:
    """The tokens that rounds should emit for a unit of their cost."""
    # With the number of tokens that each round drafted: it may differ from gamma if a policy adapts
    # it, if the n-gram drafter finds no match, and in the last rounds.
    if alpha is None:
        return None
    return ratio(sum(predicted_tau(alpha, len(r.drafted)) for r in rounds), cost)


def _alpha_by_position(rounds: Sequence[Round]) -> tuple[float | None, ...]:
    judged: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for r in rounds:
        for place, token in enumerate(r.drafted):
            judged[place] += token.outcome in ("accepted", "rejected")
            accepted[place] += token.outcome == "accepted"
    return tuple(ratio(accepted[place], judged[place]) for place in range(len(judged)))

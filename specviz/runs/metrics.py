"""The metrics of a run, derived from its rounds only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..base.errors import TraceError, shown
from ..core.events import OUTCOMES, Round, Token
from ..core.lanes import BASELINE, Lane
from ..core.policy import predicted_tau
from .trace import Trace

MIN_COMPARED = 2  # tokens and rounds of a lane from which its speed is compared


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of a trace; None where nothing has been measured yet.

    All fields describe one speculative lane, but for the dicts, which are by lane: of this one and
    of the baseline. The predictions are those of Leviathan et al. 2022 (see `core.policy`),
    averaged over the rounds. For a watched server (see `Header.source`) speeds and tau leave out
    the first token, which came from the prefill; beta and c are unknown, and so are alpha,
    efficiency and the predictions where the server does not report how many tokens it drafted.
    `drafted` then has only the accepted ones.

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
        None if a lane has fewer than `MIN_COMPARED` rounds or tokens: too few to compare.
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
        raise TraceError(
            f"the trace is {shown(trace)}: pass a Trace, such as Trace.load(FILE) returns."
        )
    name = trace.speculative_lane(lane)
    rounds = trace.lane(name)
    baseline_rounds = trace.lane(BASELINE)
    timed_rounds = [r for r in rounds if not r.reads_prompt]
    drafted = [token for r in rounds for token in r.drafted]

    outcomes = Counter(token.outcome for r in rounds for token in r.tokens)
    counts: dict[str, int] = {outcome: outcomes[outcome] for outcome in OUTCOMES}
    knows_drafts = not outcomes["untold"]
    alpha = None
    efficiency = None
    alpha_by_position: tuple[float | None, ...] = ()
    if knows_drafts:
        alpha = ratio(counts["accepted"], counts["accepted"] + counts["rejected"])
        efficiency = ratio(counts["accepted"], len(drafted))
        alpha_by_position = _alpha_by_position(rounds)
    else:
        counts["untold"] = outcomes["untold"]

    chances = [_chance(token) for token in drafted if token.beta is not None]
    c = _cost_ratio(rounds, baseline_rounds)
    cost = 0.0  # in target passes; 0 if that of a draft step is unknown: nothing is predicted then
    if c is not None:
        cost = sum(len(r.drafted) * c + 1 for r in rounds)

    speculative = _totals(trace, name)
    baseline = _totals(trace, BASELINE)
    lanes = {name: speculative, BASELINE: baseline}
    speedups = _speedups(baseline, speculative)
    return Metrics(
        counts=counts,
        drafted=len(drafted),
        emitted=speculative.tokens,
        rounds=len(rounds),
        alpha=alpha,
        efficiency=efficiency,
        beta=ratio(sum(chances), len(chances)),
        tau=_tau(timed_rounds),
        tau_predicted=_predicted(timed_rounds, alpha, len(timed_rounds)),
        c=c,
        speedup=speedups.without_prefill,
        speedup_end_to_end=speedups.with_prefill,
        speedup_wall=speedups.on_the_wall,
        speedup_predicted=_predicted(rounds, alpha, cost),
        tokens={lane: totals.tokens for lane, totals in lanes.items()},
        seconds={lane: totals.seconds for lane, totals in lanes.items()},
        tokens_per_second={
            lane: ratio(totals.timed_tokens, totals.seconds) for lane, totals in lanes.items()
        },
        wall_seconds={lane: totals.wall_seconds for lane, totals in lanes.items()},
        draft_seconds=sum(r.draft_seconds for r in rounds),
        verify_seconds=sum(r.verify_seconds for r in rounds),
        overhead_seconds=sum(r.overhead_seconds for r in rounds),
        alpha_by_position=alpha_by_position,
    )


@dataclass(frozen=True, slots=True)
class _Totals:
    """A lane's tokens and times. timed_tokens: the tokens that its clock covers. seconds: on its
    clock. prefill_seconds: for reading the prompt. wall_seconds: on the wall clock; None if the
    trace does not tell.
    """

    rounds: int = 0
    tokens: int = 0
    timed_tokens: int = 0
    seconds: float = 0.0
    prefill_seconds: float = 0.0
    wall_seconds: float | None = None

    @property
    def can_compare(self) -> bool:
        """Whether the lane is long enough to compare its speed."""
        return min(self.rounds, self.tokens) >= MIN_COMPARED

    @property
    def pace(self) -> float | None:
        """Seconds per token, without prefill."""
        return ratio(self.seconds, self.timed_tokens)

    @property
    def pace_with_prefill(self) -> float | None:
        """Seconds per token, with prefill."""
        return ratio(self.seconds + self.prefill_seconds, self.tokens)

    @property
    def pace_on_the_wall(self) -> float | None:
        """Seconds per token, on the wall clock."""
        return ratio(self.wall_seconds or 0.0, self.tokens)


def _totals(trace: Trace, lane: Lane) -> _Totals:
    rounds = trace.lane(lane)
    prefill_seconds = sum(trace.header.prefill_seconds.get(lane, {}).values())
    if not rounds:
        return _Totals(prefill_seconds=prefill_seconds)
    tokens = sum(len(r.emitted) for r in rounds)
    timed_tokens = tokens
    if rounds[0].reads_prompt:
        timed_tokens -= len(rounds[0].emitted)
        prefill_seconds = rounds[0].wall or 0.0
    return _Totals(
        rounds=len(rounds),
        tokens=tokens,
        timed_tokens=timed_tokens,
        seconds=rounds[-1].clock,
        prefill_seconds=prefill_seconds,
        wall_seconds=rounds[-1].wall,
    )


class _Speedups(NamedTuple):
    """The speed-ups by the clock without and with prefill, and by the wall clock; None if they are
    unknown."""

    without_prefill: float | None = None
    with_prefill: float | None = None
    on_the_wall: float | None = None


def _speedups(baseline: _Totals, speculative: _Totals) -> _Speedups:
    if not baseline.can_compare or not speculative.can_compare:
        return _Speedups()
    return _Speedups(
        without_prefill=_speedup(baseline.pace, speculative.pace),
        with_prefill=_speedup(baseline.pace_with_prefill, speculative.pace_with_prefill),
        on_the_wall=_speedup(baseline.pace_on_the_wall, speculative.pace_on_the_wall),
    )


def _speedup(baseline: float | None, speculative: float | None) -> float | None:
    """The speed-up from two paces in seconds per token; None if either is unknown."""
    if not baseline or not speculative:
        return None
    return baseline / speculative


def best_lane(by_lane: Mapping[Lane, Metrics]) -> Lane | None:
    """The lane with the highest measured speed-up; None if none has one."""
    speedups = {lane: m.speedup for lane, m in by_lane.items() if m.speedup is not None}
    return max(speedups, key=speedups.__getitem__, default=None)


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None if `whole` is 0."""
    return part / whole if whole else None


def _tau(rounds: Sequence[Round]) -> float | None:
    tokens = sum(len(r.emitted) for r in rounds)
    return ratio(tokens, len(rounds))


def _chance(token: Token) -> float:
    """The probability that a draft at the position of a judged token is kept."""
    if token.chance is not None:
        return token.chance
    assert token.beta is not None
    return token.beta


def _cost_ratio(rounds: Sequence[Round], baseline_rounds: Sequence[Round]) -> float | None:
    drafting = [r for r in rounds if r.drafted]
    steps = sum(len(r.drafted) for r in drafting)
    draft_seconds = sum(r.draft_seconds for r in drafting)
    step = ratio(draft_seconds, steps)
    pass_seconds = sum(r.verify_seconds for r in baseline_rounds)
    target_pass = ratio(pass_seconds, len(baseline_rounds))
    if not step or not target_pass:
        return None
    return step / target_pass


def _predicted(rounds: Sequence[Round], alpha: float | None, cost: float) -> float | None:
    """The predicted tokens of rounds per unit of cost."""
    # Each round counts with its number of drafted tokens: it may differ from gamma if a policy
    # adapts it, if the n-gram drafter finds no match, and in the last rounds.
    if alpha is None:
        return None
    tokens = sum(predicted_tau(alpha, len(r.drafted)) for r in rounds)
    return ratio(tokens, cost)


def _alpha_by_position(rounds: Sequence[Round]) -> tuple[float | None, ...]:
    judged: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for r in rounds:
        for position, token in enumerate(r.drafted):
            judged[position] += token.outcome in ("accepted", "rejected")
            accepted[position] += token.outcome == "accepted"
    positions = range(len(judged))
    return tuple(ratio(accepted[position], judged[position]) for position in positions)

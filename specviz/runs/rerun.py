"""Rerun a recorded run: did these models really write it?

A seeded run repeats exactly on one machine. So the same prompt, settings, seed and lanes give the
same tokens, verdicts and numbers again, within the rounding of another processor or version of
torch; edited values do not. Times are not compared: they are two measurements.

Here two runs are compared, lane by lane. Where the two lanes of one run diverge is another
question, which needs the models: `inspect.difference`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ..base.errors import TraceError
from ..core.events import Choice, EndReason, Event, Header, Round, Token, margin_of
from ..core.lanes import Lane, label_of
from ..core.pair import Pair
from ..core.race import race
from .metrics import compute_metrics
from .schema import round_name
from .tables import shown_number
from .terminal import label_width
from .trace import TOPS, Trace

EXACT = ("id", "text", "outcome", "seen")
NUMBERS = ("p", "q", "u", "beta", "soft_p", "soft_q", "weight", "threshold", "chance")
# Smaller deviations of probabilities mean nothing: processors round fp32 sums that differently.
MIN_ROUNDING = 1e-5
MAX_ROUNDING = {"float32": 1e-3}  # deviation that rounding may cause between machines,
MAX_ROUNDING_HALF = 0.05  # and of 16 bits or fewer
TIMES_USUAL = 30.0  # rounding's factor above a run's usual deviation
NEAR = 0.1  # nats between two tokens that count as equally likely
MODEL = ("name", "parameters", "revision", "context", "shared", "products")
VERSIONS = ("specviz", "torch", "transformers", "cuda")
MAX_LISTED = 5  # differences


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the recording and the second run. where: its position in words.
    recorded, again: both values. lane, index: of its round; None for the header and the end.
    tokens: the recorded token and the second run's; None if the difference is not in a token.
    """

    where: str
    recorded: str
    again: str
    lane: Lane | None = None
    index: int | None = None
    tokens: tuple[Token, Token] | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.recorded} in the recording, {self.again} here"

    @property
    def is_of_other_tokens(self) -> bool:
        """Whether the second run has another token there, or another verdict on it."""
        return self.tokens is not None and not _is_same_token(*self.tokens)


@dataclass(frozen=True, slots=True)
class Rerun:
    """The comparison of a recording with a second run. changes: differences in the order of the
    file. elsewhere: values of the recording's machine that differ here."""

    recorded: Trace
    again: Trace
    changes: tuple[Change, ...]
    elsewhere: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether all tokens, verdicts, draws and probabilities are the same within rounding."""
        return not self.changes

    @property
    def summary(self) -> str:
        """The result in a sentence or two."""
        if self.same:
            return "The same run, token for token."
        return f"Not the same run. First {self.changes[0]}. {self.cause}"

    @property
    def cause(self) -> str:
        """The likely cause of the differences."""
        if any(change.where.startswith("header") for change in self.changes):
            return "This is not the pair that the recording names, or the recording was edited."
        if self._agrees_behind():
            return "After it both agree again, which no model does: the recording was edited."
        header = self.recorded.header
        policies = {header.settings_of(lane).gamma_policy for lane in header.speculative}
        if not policies.isdisjoint(("optimal", "confidence")):
            return (
                "Its policy drafts by the expected cost of a pass here, so draft lengths may "
                "differ."
            )
        if not self.elsewhere:
            return (
                "Versions and processor are the same: the weights differ, or the recording was "
                "edited."
            )
        machine = "; ".join(self.elsewhere)
        if self._is_tie():
            return f"It was a near tie, which rounding decides: {machine}."
        return f"The weights or the machine differ, or the recording was edited: {machine}."

    def _agrees_behind(self) -> bool:
        """Whether most rounds after the first that differs are equal again."""
        lane = self.changes[0].lane
        index = self.changes[0].index
        if lane is None or index is None:
            return True  # all rounds are equal: only then are ends compared
        rounds_behind = sum(r.index > index for r in self.recorded.lane(lane))
        changed = {change.index for change in self.changes if change.lane == lane}
        changed_behind = len(changed) - 1  # without the first
        return rounds_behind > 0 and changed_behind <= rounds_behind // 2

    def _is_tie(self) -> bool:
        """Whether the first tokens that differ were about equally likely, or drawn where both runs
        list the same probabilities."""
        first = self.changes[0]
        for change in self.changes:
            is_of_first_round = change.lane == first.lane and change.index == first.index
            if not is_of_first_round or not change.is_of_other_tokens:
                continue
            assert change.tokens is not None
            if not self.recorded.header.settings.greedy:
                return True  # all earlier values agreed, or they would be the first change
            _, token = change.tokens
            margin = margin_of(token)
            return margin is not None and margin < NEAR
        return False


def rerun(recorded: Trace, pair: Pair) -> Rerun:
    """Run a recorded race once more with this pair, and compare. Raises as `rerun_events` does."""
    again = Trace.from_events(rerun_events(recorded.header, pair))
    return compared(recorded, again)


def rerun_events(header: Header, pair: Pair) -> Iterator[Event]:
    """The events of a second run of a recorded race.

    Raises `TraceError` for runs that cannot be repeated: a server's own speculation, and drafts
    from earlier texts, which a recording does not hold.
    """
    if header.source is not None:
        raise TraceError(
            "this run was only watched, so its server drew the tokens and would draw others now: "
            "rerun a race of two models."
        )
    if header.memory is not None:
        raise TraceError(
            "this run drafted from earlier texts, which a recording does not contain: rerun one "
            "without them."
        )
    mode: Any = header.mode
    return race(pair, list(header.prompt_ids), dict(header.lanes), mode=mode)


def compared(recorded: Trace, again: Trace, *, lists: bool = True) -> Rerun:
    """Compare a recording with a second run of the same prompt, settings and lanes.

    lists: whether the recording has the likeliest tokens of each position.
    """
    numbers: tuple[str, ...] = NUMBERS
    if lists:
        numbers += TOPS
    rounding = _rounding(recorded, again)
    changes = list(_changed("header", _facts(recorded.header), _facts(again.header)))
    for lane in recorded.lanes:
        changes += _lane_changes(recorded, again, lane, rounding, numbers)
    if not changes:
        changes += _changed("end", _end_facts(recorded), _end_facts(again))
    elsewhere = _elsewhere(_machine(recorded.header), _machine(again.header))
    return Rerun(
        recorded=recorded,
        again=again,
        changes=tuple(changes),
        elsewhere=tuple(elsewhere),
    )


def rerun_lines(comparison: Rerun) -> Iterator[str]:
    """The report for a terminal: the result, the differences, and the times of both runs."""
    changes = comparison.changes
    yield comparison.summary
    for change in changes[1:MAX_LISTED]:
        yield f"  then {change}"
    if len(changes) > MAX_LISTED:
        yield f"  and {len(changes) - MAX_LISTED} more"
    if comparison.same and comparison.elsewhere:
        yield f"  although {'; '.join(comparison.elsewhere)}"
    recorded = comparison.recorded
    again = comparison.again
    width = label_width(recorded)
    for lane in recorded.lanes:
        was = _seconds(recorded, lane)
        now = _seconds(again, lane)
        yield f"  {label_of(lane):{width}} {was:.3f} s recorded, {now:.3f} s here"
    for lane in recorded.header.speculative:
        speedup = shown_number(compute_metrics(recorded, lane).speedup, 2)
        speedup_here = shown_number(compute_metrics(again, lane).speedup, 2)
        label = label_of(lane)
        yield f"  {'speed-up':{width}} {speedup} recorded, {speedup_here} here ({label})"


def _seconds(trace: Trace, lane: Lane) -> float:
    return max((r.clock for r in trace.lane(lane)), default=0.0)


def _facts(header: Header) -> dict[str, object]:
    """The header's values of the prompt and the models, by a name in words."""
    facts: dict[str, object] = {"prompt": header.prompt[:40]}
    models = {"target": header.target}
    for lane in header.speculative:
        models[f"draft of {lane}"] = header.draft_of(lane) or {}
    for role, model in models.items():
        facts[role] = bool(model)
        for field in MODEL:
            if field in model:  # older recordings lack some of them
                facts[f"{role}, {field}"] = model[field]
    for lane, seconds in header.prefill_seconds.items():
        facts[f"prefill of the {lane} lane"] = " and ".join(seconds)
    return facts


def _end_facts(trace: Trace) -> dict[str, object]:
    """The end's values of the lanes, by a name in words; empty for a stopped run."""
    end = trace.end
    if end is None or "stopped" in end.reasons.values():
        return {}
    facts: dict[str, object] = {}
    for lane, reason in end.reasons.items():
        facts[f"reason of the {lane} lane"] = reason
    for lane in trace.header.speculative:
        facts[f"identical of the {lane} lane"] = end.agreement(lane).identical
    return facts


def _changed(
    part: str, recorded: Mapping[str, object], again: Mapping[str, object]
) -> Iterator[Change]:
    for name, fact in recorded.items():
        fact_again = again.get(name)
        if fact != fact_again:
            yield Change(f"{part}, {name}", str(fact), str(fact_again))


def _machine(header: Header) -> dict[str, object]:
    """The machine and the versions of a run."""
    facts: dict[str, object] = {
        "device": header.device,
        "processor": header.processor,
        "dtype": header.dtype,
    }
    for name in VERSIONS:
        facts[name] = header.versions.get(name)
    facts["engine"] = header.target["form"]
    return facts


def _elsewhere(recorded: Mapping[str, object], here: Mapping[str, object]) -> Iterator[str]:
    for name, fact in recorded.items():
        if fact != here[name]:
            made_with = fact or "unknown"
            is_here = here[name] or "none"
            yield f"it was made with {name} {made_with}, and here {name} is {is_here}"


def _is_same_token(recorded: Token, again: Token) -> bool:
    return (recorded.id, recorded.outcome) == (again.id, again.outcome)


def _rounding(recorded: Trace, again: Trace) -> float:
    """The largest deviation of two probabilities that rounding explains: 30 times the ninth decile
    of this run's deviations, within fixed bounds."""
    deviations: list[float] = []
    for token, other_token in _tokens_of_both(recorded, again):
        if token.id == other_token.id:
            deviations += _deviations(token, other_token)
    usual = 0.0
    if deviations:
        ninth_decile = len(deviations) * 9 // 10
        usual = sorted(deviations)[ninth_decile]
    limit = MAX_ROUNDING.get(recorded.header.dtype, MAX_ROUNDING_HALF)
    return max(MIN_ROUNDING, min(TIMES_USUAL * usual, limit))


def _tokens_of_both(recorded: Trace, again: Trace) -> Iterator[tuple[Token, Token]]:
    """The tokens of two runs at the same place of the same lane."""
    for lane in recorded.lanes:
        for r, other in zip(recorded.lane(lane), again.lane(lane), strict=False):
            yield from zip(r.tokens, other.tokens, strict=False)


def _deviations(token: Token, other: Token) -> Iterator[float]:
    """The deviations between the probabilities of one token in two runs."""
    for field in ("p", "q", "beta"):
        was = getattr(token, field)
        now = getattr(other, field)
        if was is not None and now is not None:
            yield abs(was - now)


def _lane_changes(
    recorded: Trace, again: Trace, lane: Lane, rounding: float, numbers: Sequence[str]
) -> Iterator[Change]:
    rounds = recorded.lane(lane)
    other_rounds = again.lane(lane)
    reason: EndReason = "stopped"
    if recorded.end is not None:
        reason = recorded.end.reasons.get(lane, reason)
    if reason == "stopped":
        other_rounds = other_rounds[: len(rounds)]
    for r, other in zip_longest(rounds, other_rounds):
        if r is None:
            name = round_name(lane, other.index)
            yield Change(name, "missing", "present", lane=lane, index=other.index)
            return
        if other is None:
            name = round_name(lane, r.index)
            yield Change(name, "present", "missing", lane=lane, index=r.index)
            return
        yield from _round_changes(r, other, rounding, numbers)


def _round_changes(
    r: Round, other: Round, rounding: float, numbers: Sequence[str]
) -> Iterator[Change]:
    name = round_name(r.lane, r.index)
    for position, tokens in enumerate(zip(r.tokens, other.tokens, strict=False), 1):
        token, other_token = tokens
        token_name = f"drafted token {position}"
        if position > len(r.drafted):
            token_name = f"the {token.outcome} token"
        for field, was, now in _token_changes(token, other_token, rounding, numbers):
            where = f"{name}, {token_name}, {field}"
            yield Change(where, was, now, r.lane, r.index, tokens)
        if not _is_same_token(token, other_token):
            return  # the rest follows another text
    count = len(r.tokens)
    other_count = len(other.tokens)
    if count != other_count:
        yield Change(name, f"{count} tokens", str(other_count), r.lane, r.index)


def _token_changes(
    token: Token, other: Token, rounding: float, numbers: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """The fields that differ, with both values."""
    for field in EXACT:
        was = getattr(token, field)
        now = getattr(other, field)
        if was != now:
            yield field, repr(was)[:60], repr(now)[:60]
    if not _is_same_token(token, other):
        return  # its other numbers belong to another token
    for field in numbers:
        was = getattr(token, field)
        now = getattr(other, field)
        if was == now:
            continue
        if field in TOPS:
            if not _alike(was, now, rounding):
                yield field, "another list", "its own"
        elif was is None or now is None or abs(was - now) > rounding:
            yield field, _shown(was), _shown(now)


def _shown(number: float | None) -> str:
    if number is None:
        return "none"
    return f"{number:.6g}"


def _alike(top: Sequence[Choice], other: Sequence[Choice], rounding: float) -> bool:
    """Whether two lists agree; which of nearly equal tokens comes first, or last, is rounding."""
    if len(top) != len(other):
        return False
    if not top:
        return True
    # What a list leaves out is at most as likely as its last entry.
    least = max(top[-1].probability, other[-1].probability)
    if not _is_within(top, other, least, rounding):
        return False
    return _is_within(other, top, least, rounding)


def _is_within(
    top: Sequence[Choice], other: Sequence[Choice], least: float, rounding: float
) -> bool:
    """least: the probability of what `other` leaves out."""
    by_id = {choice.id: choice for choice in other}
    for choice in top:
        left_out = Choice(choice.id, choice.text, least)
        same = by_id.get(choice.id, left_out)
        deviation = abs(choice.probability - same.probability)
        if deviation > rounding or same.text != choice.text:
            return False
    return True

"""A recorded run, run again: is it the run of these models that it says it is?

A seeded run repeats exactly on one machine. So the same prompt, settings, seed and lanes give the
same tokens, verdicts and numbers again, within the rounding of another processor or version of
torch; whatever was edited does not. Times are no part of it: they are two measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ..core.events import Choice, Event, Header, Round, Token, margin_of
from ..core.pair import Pair
from ..core.race import race
from ..errors import TraceError
from ..lanes import Lane, label_of
from .metrics import compute_metrics
from .schema import round_name
from .tables import shown_number
from .terminal import label_width
from .trace import TOPS, Trace

EXACT = ("id", "text", "outcome", "seen")
NUMBERS = ("p", "q", "u", "beta", "soft_p", "soft_q", "weight", "threshold", "chance")
# Deviations of probabilities below this say nothing: processors round sums in fp32 as far apart.
LEAST = 1e-5
MOST = {"float32": 1e-3}  # what rounding of these numbers may do between machines,
MOST_HALF = 0.05  # and of 16 bits or fewer
TIMES_USUAL = 30.0  # how far above the usual deviation of a run rounding may lie
MODEL = ("name", "parameters", "revision", "context", "shared")
VERSIONS = ("specviz", "torch", "transformers", "cuda")
SHOWN = 5  # differences that are listed


@dataclass(frozen=True, slots=True)
class Change:
    """Something that the recording and the second run say differently. where: in words. lane,
    index: of its round; None if it is of the header or the end."""

    where: str
    recorded: str
    found: str
    lane: Lane | None = None
    index: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.recorded} in the recording, {self.found} here"


@dataclass(frozen=True, slots=True)
class Rerun:
    """A recording beside a second run of it. changes: in the order of the file; empty if they are
    the same. elsewhere: what the recording says of its machine that is different here."""

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
        """The answer in a sentence or two."""
        if self.same:
            return "The same run, token for token."
        return f"Not the same run. First {self.changes[0]}. {self.cause}"

    @property
    def cause(self) -> str:
        """What the differences point to."""
        if any(change.where.startswith("header") for change in self.changes):
            return "The pair at hand is not the one that the recording names, or it was edited."
        if self._goes_on():
            return "Behind it both agree again, as no model does: the recording was edited."
        header = self.recorded.header
        if any(header.settings_of(one).gamma_policy == "optimal" for one in header.speculative):
            return (
                "Its policy drafts by costs that are measured on each machine: lengths may differ."
            )
        if not self.elsewhere:
            return "Versions and processor are the same: the weights are others, or it was edited."
        tied = "Both were about to: rounding decides, and"
        why = tied if self._is_tie() else "Other weights, an edit, or another machine:"
        return f"{why} {'; '.join(self.elsewhere)}."

    def _goes_on(self) -> bool:
        """Whether most rounds behind the first that differs are the same again."""
        lane, index = self.changes[0].lane, self.changes[0].index
        if lane is None or index is None:
            return True  # all rounds are the same: an end is compared only then
        behind = sum(r.index > index for r in self.recorded.lane(lane))
        changed = {c.index for c in self.changes if c.lane == lane} - {index}
        return behind > 0 and len(changed) <= behind // 2

    def _is_tie(self) -> bool:
        """Whether the first tokens that differ were as good as equally likely, or drawn where
        both runs list the same probabilities."""
        lane, index = self.changes[0].lane or "", self.changes[0].index
        for at, _, one, other in _pairs(self.recorded.lane(lane), self.again.lane(lane)):
            if at == index and (one.id, one.outcome) != (other.id, other.outcome):
                margin = margin_of(other)
                is_near = margin is not None and margin < 2 * MOST_HALF
                # In a sampled run all before it agreed, or it would be the first change.
                return is_near or not self.recorded.header.settings.greedy
        return False


def rerun(recorded: Trace, pair: Pair) -> Rerun:
    """Run a recorded race once more with this pair, and compare. Raises as `rerun_events` does."""
    return compared(recorded, Trace.from_events(rerun_events(recorded.header, pair)))


def rerun_events(header: Header, pair: Pair) -> Iterator[Event]:
    """The events of a second run of a recorded race.

    Raises `TraceError` for what cannot be run again: a server's own speculation, and drafts from
    earlier texts, which a recording does not hold.
    """
    if header.source is not None:
        raise TraceError(
            "this run was only watched: its server drew the tokens, and would draw others again."
        )
    if header.memory is not None:
        raise TraceError(
            "this run drafted from earlier texts, which a recording does not hold: it cannot be "
            "run again."
        )
    mode: Any = header.mode
    return race(pair, list(header.prompt_ids), dict(header.lanes), mode=mode)


def compared(recorded: Trace, again: Trace, *, lists: bool = True) -> Rerun:
    """Compare a recording with a second run of the same prompt, settings and lanes. lists: whether
    the recording has the likeliest tokens of each place."""
    measured = (*NUMBERS, *TOPS) if lists else NUMBERS
    rounding = _rounding(recorded, again)
    changes = list(_changed("header", _facts(recorded.header), _facts(again.header)))
    for lane in recorded.lanes:
        changes += _lane_changes(recorded, again, lane, rounding, measured)
    if not changes:
        changes += _changed("end", _said_at_the_end(recorded), _said_at_the_end(again))
    ours, theirs = _machine(recorded.header), _machine(again.header)
    elsewhere = tuple(
        f"it was made with {name} {was or 'unknown'}, and here it is {theirs[name] or 'none'}"
        for name, was in ours.items()
        if was != theirs[name]
    )
    return Rerun(recorded, again, tuple(changes), elsewhere)


def rerun_lines(found: Rerun) -> Iterator[str]:
    """What to say in a terminal: the answer, where the runs differ, and the times of both."""
    yield found.summary
    for change in found.changes[1:SHOWN]:
        yield f"  then {change}"
    if len(found.changes) > SHOWN:
        yield f"  and {len(found.changes) - SHOWN} more"
    if found.same and found.elsewhere:
        yield f"  although {'; '.join(found.elsewhere)}"
    runs = (found.recorded, found.again)
    width = label_width(found.recorded)
    for lane in found.recorded.lanes:
        was, now = (max((r.clock for r in run.lane(lane)), default=0.0) for run in runs)
        yield f"  {label_of(lane):{width}} {was:.3f} s recorded, {now:.3f} s here"
    for lane in found.recorded.header.speculative:
        said = [shown_number(compute_metrics(run, lane).speedup, 2) for run in runs]
        yield f"  {'speed-up':{width}} {said[0]} recorded, {said[1]} here ({label_of(lane)})"


def _facts(header: Header) -> dict[str, object]:
    """What a header says of the models, by a name in words."""
    found: dict[str, object] = {"prompt": header.prompt[:40]}
    drafts = {f"draft of {lane}": header.draft_of(lane) or {} for lane in header.speculative}
    for role, model in {"target": header.target, **drafts}.items():
        found[role] = bool(model)
        # Older recordings lack some of them.
        found |= {f"{role}, {field}": model[field] for field in MODEL if field in model}
    prefill = header.prefill_seconds.items()
    return found | {f"prefill of the {lane} lane": " and ".join(by) for lane, by in prefill}


def _said_at_the_end(trace: Trace) -> dict[str, object]:
    end = trace.end
    if end is None or "stopped" in end.reasons.values():
        return {}
    lanes = trace.header.speculative
    return {
        **{f"reason of the {lane} lane": reason for lane, reason in end.reasons.items()},
        **{f"identical of the {lane} lane": end.agreement(lane).identical for lane in lanes},
    }


def _changed(part: str, ours: dict[str, object], theirs: dict[str, object]) -> Iterator[Change]:
    for name, was in ours.items():
        if was != theirs.get(name):
            yield Change(f"{part}, {name}", str(was), str(theirs.get(name)))


def _machine(header: Header) -> dict[str, object]:
    """Where and with what a run was made."""
    facts = {name: getattr(header, name) for name in ("device", "processor", "dtype")}
    facts |= {name: header.versions.get(name) for name in VERSIONS}
    return facts | {"engine": header.target["form"]}


def _pairs(
    ours: Sequence[Round], theirs: Sequence[Round]
) -> Iterator[tuple[int, str, Token, Token]]:
    """The tokens that stand at one place in both: the round's index, their name, and they."""
    for one, other in zip(ours, theirs, strict=False):
        for place, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False), 1):
            is_last = place > len(one.drafted)
            name = f"the {a.outcome} token" if is_last else f"drafted token {place}"
            yield one.index, name, a, b


def _rounding(recorded: Trace, again: Trace) -> float:
    """How far apart two probabilities may be: as far as rounding moves those of this very run
    (30 times what nine of ten stay below), but no further than it can."""
    apart: list[float] = []
    for lane in recorded.lanes:
        for *_, a, b in _pairs(recorded.lane(lane), again.lane(lane)):
            values = ((a.p, b.p), (a.q, b.q), (a.beta, b.beta)) if a.id == b.id else ()
            apart += [abs(x - y) for x, y in values if x is not None and y is not None]
    usual = sorted(apart)[len(apart) * 9 // 10] if apart else 0.0
    return max(LEAST, min(TIMES_USUAL * usual, MOST.get(recorded.header.dtype, MOST_HALF)))


def _lane_changes(
    recorded: Trace, again: Trace, lane: Lane, rounding: float, measured: Sequence[str]
) -> Iterator[Change]:
    ours, theirs = recorded.lane(lane), again.lane(lane)
    if recorded.end is None or recorded.end.reasons.get(lane, "stopped") == "stopped":
        theirs = theirs[: len(ours)]
    for one, other in zip_longest(ours, theirs):
        index = (one or other).index
        place = round_name(lane, index)
        if one is None or other is None:
            was, now = ("it is there" if r else "it is not there" for r in (one, other))
            yield Change(place, was, now, lane, index)
            return
        for _, name, a, b in _pairs([one], [other]):
            for field, was, now in _token_changes(a, b, rounding, measured):
                yield Change(f"{place}, {name}, {field}", was, now, lane, index)
            if (a.id, a.outcome) != (b.id, b.outcome):
                break
        else:
            if len(one.tokens) != len(other.tokens):
                many, others = f"{len(one.tokens)} tokens", str(len(other.tokens))
                yield Change(place, many, others, lane, index)


def _token_changes(
    ours: Token, theirs: Token, rounding: float, measured: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Which fields differ, and what both runs say."""
    if (ours.id, ours.outcome) != (theirs.id, theirs.outcome):
        measured = ()  # its numbers are those of another token
    for field in (*EXACT, *measured):
        was, now = getattr(ours, field), getattr(theirs, field)
        if was == now:
            continue
        if field in EXACT:
            yield field, repr(was)[:60], repr(now)[:60]
        elif field in TOPS and not _alike(was, now, rounding):
            yield field, "another list", "its own"
        elif field in NUMBERS and (None in (was, now) or abs(was - now) > rounding):
            was, now = ("none" if one is None else f"{one:.6g}" for one in (was, now))
            yield field, was, now


def _alike(ours: Sequence[Choice], theirs: Sequence[Choice], rounding: float) -> bool:
    """Whether two lists agree; which of nearly equal tokens comes first, or last, is rounding."""
    last = max((some[-1].probability for some in (ours, theirs) if some), default=0.0)
    if len(ours) != len(theirs):
        return False
    for one, other in ((ours, theirs), (theirs, ours)):
        known = {c.id: c for c in other}
        for choice in one:
            same = known.get(choice.id, Choice(choice.id, choice.text, last))
            if abs(choice.probability - same.probability) > rounding or same.text != choice.text:
                return False
    return True

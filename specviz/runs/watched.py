"""What is said of a run whose server speculated by itself: figures, as far as they are told, and
what they mean."""

from __future__ import annotations

from collections.abc import Iterator

from ..lanes import BASELINE
from .metrics import Metrics
from .trace import Trace
from .words import comparison_line, shown_number

NOT_TOLD = (
    "The server drafted and judged by itself. It does not tell p, q and the draws, nor what it "
    "rejected: only how many tokens."
)
UNTOLD_STEPS = (
    "It does not tell how many tokens its steps drafted either: each chunk of its stream is taken "
    "as a step, and all but its last token as accepted."
)
WALL_CLOCK = (
    "Times are the client's, from chunk to chunk: the network and the server's other users are in "
    "them."
)
TWO_DEPLOYMENTS = "a measured ratio of two deployments, whose streams ran one after the other"
NO_BASELINE = "no baseline was measured: name a second server of the target alone"


def watched_rows(trace: Trace, m: Metrics) -> Iterator[str]:
    """The figures of the watched lane, one line for each."""
    has_baseline = BASELINE in trace.lanes
    ratio = TWO_DEPLOYMENTS if has_baseline else NO_BASELINE
    if has_baseline and m.speedup is None:
        ratio = "too short to compare"
    rows = {"speed-up": (shown_number(m.speedup, 2), ratio)}
    if has_baseline:
        first = "with the time to the first token"
        rows["  with prefill"] = (shown_number(m.speedup_end_to_end, 2), first)
    told = "" if m.alpha is not None else ": not told by the server"
    rows |= {
        "alpha": (shown_number(m.alpha, 3), f"of judged drafts were accepted{told}"),
        "efficiency": (shown_number(m.efficiency, 3), f"of all drafts were accepted{told}"),
        "tau": (shown_number(m.tau, 2), "tokens per step, without the first token"),
    }
    for name, (value, meaning) in rows.items():
        yield f"{name:15} {value}  {meaning}"
    yield f"{'counts':15} " + "  ".join(f"{name} {count}" for name, count in m.counts.items())
    if trace.end and trace.end.identical is not None:
        yield comparison_line(trace.end.agreement(trace.header.speculative[0]))


def watched_lines(trace: Trace, m: Metrics) -> Iterator[str]:
    """What the figures mean, and which server they are of."""
    yield NOT_TOLD
    if any(r.untold for r in trace.lane(trace.header.speculative[0])):
        yield UNTOLD_STEPS
    if said := counters_line(trace, m):
        yield said
    yield WALL_CLOCK
    baseline = trace.header.versions.get("baseline")
    yield f"on {trace.header.source}" + (f"; the target alone on {baseline}" if baseline else "")


def counters_line(trace: Trace, m: Metrics) -> str:
    """How the server's own counters compare with this stream; empty if it has none."""
    counted = trace.end.counted if trace.end else None
    if counted is None:
        return ""
    moved = (
        f"{counted['drafted']} tokens drafted and {counted['accepted']} accepted in "
        f"{counted['steps']} steps"
    )
    rounds = trace.lane(trace.header.speculative[0])
    if any(r.untold for r in rounds):
        return f"Its counters moved by {moved} meanwhile, with those of its other users."
    steps = sum(bool(r.drafted) for r in rounds)
    # What was accepted behind the end of the text is ignored here, and accepted for the server.
    cut = len([t for t in rounds[-1].drafted if t.outcome == "ignored"]) if rounds else 0
    fits = (
        counted["steps"] == steps
        and counted["drafted"] == m.drafted
        and 0 <= counted["accepted"] - m.counts["accepted"] <= cut
    )
    if fits:
        return f"Its counters agree: {moved}."
    return (
        f"Its counters moved by {moved} meanwhile, this stream by {m.drafted} and "
        f"{m.counts['accepted']} in {steps}: others may have used it too."
    )

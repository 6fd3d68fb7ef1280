"""What is said in a terminal of runs with a server: what its requests cost where it holds the
target, and as far as it tells where it speculated by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ..lanes import BASELINE, label_of
from .metrics import Metrics
from .tables import shown_number
from .trace import Trace

PER_REQUEST = (
    "The target is on a server: times are those of requests, with the network, the server's queue "
    "and its other users. The ratio is per request, and says nothing of the server's own speed."
)
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


def request_lines(trace: Trace) -> Iterator[str]:
    """Means of bytes that went and came, of the seconds of a target pass as this machine sees it,
    and of those that the server says that it worked."""
    for lane in trace.lanes:
        asked = [r for r in trace.lane(lane) if r.exchanged]
        if not asked:
            continue
        sent = sum(r.exchanged or 0 for r in asked) / len(asked) / 1e3
        seconds = sum(r.verify_seconds for r in asked) / len(asked)
        own = [r.server_seconds for r in asked if r.server_seconds is not None]
        worked = f", of which the server worked {sum(own) / len(asked) * 1e3:.1f} ms"
        told = worked if len(own) == len(asked) else ""
        yield f"{label_of(lane):15} {sent:.1f} kB and {seconds * 1e3:.1f} ms per request{told}"
    rate = trace.header.streaming_rate
    if rate is not None:
        yield f"{'the server':15} streams {rate:.1f} tokens/s by itself"
    yield PER_REQUEST


def watched_rows(trace: Trace, m: Metrics) -> dict[str, tuple[str, str]]:
    """The figures of a watched lane with what they mean, by name."""
    has_baseline = BASELINE in trace.lanes
    ratio = "no baseline was measured: name a second server of the target alone"
    if has_baseline:
        two = "a measured ratio of two deployments, whose streams ran one after the other"
        ratio = "too short to compare" if m.speedup is None else two
    rows = {"speed-up": (shown_number(m.speedup, 2), ratio)}
    if has_baseline:
        first = "with the time to the first token"
        rows["  with prefill"] = (shown_number(m.speedup_end_to_end, 2), first)
    told = "" if m.alpha is not None else ": not told by the server"
    return rows | {
        "alpha": (shown_number(m.alpha, 3), f"of judged drafts were accepted{told}"),
        "efficiency": (shown_number(m.efficiency, 3), f"of all drafts were accepted{told}"),
        "tau": (shown_number(m.tau, 2), "tokens per step, without the first token"),
    }


def watched_lines(trace: Trace, m: Metrics) -> Iterator[str]:
    """What these figures mean, and which server they are of."""
    yield NOT_TOLD
    if any(r.untold for r in trace.lane(trace.header.speculative[0])):
        yield UNTOLD_STEPS
    if said := _counters_line(trace, m):
        yield said
    yield WALL_CLOCK
    baseline = trace.header.versions.get("baseline")
    yield f"on {trace.header.source}" + (f"; the target alone on {baseline}" if baseline else "")


def _counters_line(trace: Trace, m: Metrics) -> str:
    """How the server's own counters compare with this stream; empty if it has none."""
    counted = trace.end.counted if trace.end else None
    if counted is None:
        return ""
    drafted, accepted = counted["drafted"], counted["accepted"]
    moved = f"{drafted} tokens drafted and {accepted} accepted in {counted['steps']} steps"
    rounds = trace.lane(trace.header.speculative[0])
    if any(r.untold for r in rounds):
        return f"Its counters moved by {moved} meanwhile, with those of its other users."
    steps, ours = sum(bool(r.drafted) for r in rounds), m.counts["accepted"]
    # What was accepted behind the end of the text is ignored here, and accepted for the server.
    cut = len([t for t in rounds[-1].drafted if t.outcome == "ignored"]) if rounds else 0
    if (counted["steps"], drafted) == (steps, m.drafted) and 0 <= accepted - ours <= cut:
        return f"Its counters agree: {moved}."
    return (
        f"Its counters moved by {moved} meanwhile, this stream by {m.drafted} and {ours} in "
        f"{steps}: others may have used it too."
    )

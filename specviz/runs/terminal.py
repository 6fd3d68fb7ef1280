"""A race in a terminal: one line per round, then the metrics; of a server, what its requests cost
or what it tells of its own speculation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..console import escaped
from ..core.events import OUTCOMES, UNKNOWN_ID, Agreement, Event, Header, Outcome, Round
from ..core.registry import verdict_kind
from ..lanes import BASELINE, LANES, Lane, label_of
from ..vocabulary import OUTCOMES as WORDS
from .metrics import Metrics, best_lane, compute_metrics
from .tables import shown_number
from .trace import Trace
from .uncertainty import DOUBTS, NEAR, uncertainty

END_TO_END = "on the wall clock: with prefill, text and all that is recorded"
UNSEEN = "?"  # in the place of a token that a server rejected without telling it
STYLES: dict[Outcome, str] = {  # ANSI attributes; marks distinguish outcomes without colour
    "accepted": "4;38;5;32",
    "rejected": "9;38;5;166",
    "ignored": "2;38;5;245",
    "corrected": "4;38;5;175",
    "bonus": "4;38;5;36",
    "untold": "4;38;5;245",
}


def legend(*, color: bool) -> str:
    """One line that shows every outcome in its style."""
    return "  ".join(styled(o, o, color) for o in OUTCOMES)


def event_line(event: Event, *, color: bool, width: int = 0) -> str | None:
    """The line to print for an event: the prompt or a speculative round; None for others. width:
    letters of the longest name of a lane."""
    if isinstance(event, Header):
        return f"     │ {printable(event.question or event.prompt)}"
    if isinstance(event, Round) and event.lane != BASELINE:
        return round_line(event, color=color, width=width)
    return None


def round_line(result: Round, *, color: bool, width: int = 0) -> str:
    """The line for a round: its tokens in the order in which they were judged, after the lane's
    name if it has one of its own, which takes so much width."""
    shown = "" if result.lane in LANES else f"{result.lane:{width}} "
    shown += f"{result.index + 1:4} │ "
    for token in result.tokens:
        text = printable(token.text) if token.id != UNKNOWN_ID else UNSEEN
        if not color:
            text = {"rejected": f"[-{text}-]", "ignored": f"({text})"}.get(token.outcome, text)
        shown += styled(token.outcome, text, color)
    return shown


def printable(text: str) -> str:
    """A text within one line, with a sign for the end of a line and for a tab."""
    return escaped(text.replace("\n", "⏎").replace("\t", "⇥"))


def styled(outcome: Outcome, text: str, color: bool) -> str:
    marked = WORDS[outcome]["mark"] + text
    return f"\x1b[{STYLES[outcome]}m{marked}\x1b[0m" if color else marked


def metric_lines(trace: Trace) -> Iterator[str]:
    """The metrics of a trace, one line for each; of several speculative lanes, a table with a line
    for each of them."""
    # A server, too, has named a model in them.
    return map(escaped, _metric_lines(trace))


def _metric_lines(trace: Trace) -> Iterator[str]:
    head = trace.header
    by_lane = {lane: compute_metrics(trace, lane) for lane in head.speculative}
    first = by_lane[head.speculative[0]]
    width = label_width(trace)
    for lane in trace.lanes:
        m = by_lane.get(lane, first)
        rate = shown_number(m.tokens_per_second[lane], 1)
        told = f"{m.tokens[lane]:4} tokens  {m.seconds[lane]:7.3f} s  {rate} tokens/s"
        yield f"{label_of(lane):{width}} {told}"
    if len(by_lane) == 1:
        yield from _one_lane(trace, head.speculative[0], first)
    else:
        yield from _several_lanes(trace, by_lane)
    if changing := [label_of(one) for one in by_lane if not head.settings_of(one).exact]:
        rule = next(own.rule for own in map(head.settings_of, by_lane) if not own.exact)
        yield f"{', '.join(changing)}: {verdict_kind(rule).warning}"
    if head.source is not None:
        yield from watched_lines(trace, first)
        return
    if head.on_server:
        yield from request_lines(trace)
    by_lane_threads = head.lane_threads or dict.fromkeys(head.all_lanes, head.threads)
    *with_draft, alone = (by_lane_threads[lane] for lane in head.all_lanes)
    threads = " and ".join(map(str, dict.fromkeys([alone, *with_draft])))
    yield f"on {head.device}, {head.dtype}, threads: {threads}, torch {head.versions['torch']}"


def label_width(trace: Trace) -> int:
    """Letters of the first column of what is told of a trace."""
    return max(15, *(len(label_of(lane)) for lane in trace.lanes))


def _one_lane(trace: Trace, lane: Lane, m: Metrics) -> Iterator[str]:
    is_watched = trace.header.source is not None
    for name, (value, meaning) in (watched_rows if is_watched else _rows)(trace, m).items():
        yield f"{name:15} {value}  {meaning}"
        doubt = _doubt_of(trace, lane) if name == "speed-up" else ""
        yield from [f"{'  uncertain':15} {doubt}"] if doubt else []
    yield f"{'counts':15} " + "  ".join(f"{name} {count}" for name, count in m.counts.items())
    if trace.end and trace.end.identical is not None:
        yield _comparison(trace.end.agreement(lane))


def _paid(speedup: float | None) -> str:
    if speedup is None:
        return "too short to compare"
    if abs(speedup - 1) < NEAR:
        return "as good as even"
    return "drafting pays" if speedup > 1 else "drafting costs more than it saves"


def _rows(trace: Trace, m: Metrics) -> dict[str, tuple[str, str]]:
    """The figures of a lane with what they mean, by name."""
    predicted = f"tokens per target pass; {shown_number(m.tau_predicted, 2)} predicted"
    return {
        "speed-up": (shown_number(m.speedup, 2), _paid(m.speedup)),
        "  with prefill": (shown_number(m.speedup_end_to_end, 2), "of the prompt"),
        "  end to end": (shown_number(m.speedup_wall, 2), END_TO_END),
        "alpha": (shown_number(m.alpha, 3), "of judged drafts were accepted"),
        "efficiency": (shown_number(m.efficiency, 3), "of all drafts were accepted"),
        "beta": (shown_number(m.beta, 3), verdict_kind(trace.header.settings.rule).beta),
        "tau": (shown_number(m.tau, 2), predicted),
        "c": (shown_number(m.c, 3), "a draft step, in target steps"),
    }


COLUMNS = ("speed-up", "end to end", "alpha", "efficiency", "tau", "c")


def _several_lanes(trace: Trace, by_lane: Mapping[Lane, Metrics]) -> Iterator[str]:
    width = max(map(len, by_lane))
    yield " ".join([" " * width, *(f"{name:>10}" for name in COLUMNS)])
    for lane, m in by_lane.items():
        values = (m.speedup, m.speedup_wall, m.alpha, m.efficiency, m.tau, m.c)
        yield " ".join([f"{lane:{width}}", *(f"{shown_number(one, 3):>10}" for one in values)])
    best = best_lane(by_lane)
    if best is not None:
        yield f"best: {best}, {shown_number(by_lane[best].speedup, 2)} times the target alone"
    for lane in by_lane:
        if doubt := _doubt_of(trace, lane):
            yield f"{lane}: uncertain, {doubt}"
        if trace.end and trace.end.identical is not None:
            yield f"{lane}: {_comparison(trace.end.agreement(lane))}"


def _doubt_of(trace: Trace, lane: Lane) -> str:
    """Why a lane's speed-up is uncertain; empty if it is not."""
    found = uncertainty(trace, lane)
    return DOUBTS[found.doubt] if found is not None and found.doubt is not None else ""


def _comparison(said: Agreement) -> str:
    """How the texts of two lanes compare, in a clause."""
    where = said.divergence
    if where is None:
        return f"{said.compared}/{said.compared} tokens identical to the baseline"
    margin = shown_number(where.margin, 4)
    return (
        f"the lanes part at token {where.index + 1}: the target's top two are {margin} nats apart"
    )


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
    rows = {}
    ratio = "no baseline was measured: name a second server of the target alone"
    if BASELINE in trace.lanes:
        two = "a measured ratio of two deployments, whose streams ran one after the other"
        ratio = "too short to compare" if m.speedup is None else two
        first = "with the time to the first token"
        rows["  with prefill"] = (shown_number(m.speedup_end_to_end, 2), first)
    told = "" if m.alpha is not None else ": not told by the server"
    return {
        "speed-up": (shown_number(m.speedup, 2), ratio),
        **rows,
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

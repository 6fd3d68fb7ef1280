"""A race in a terminal: one line per round, then the metrics; for a server, also the cost of its
requests or its own speculation figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ..base.console import escaped
from ..core.events import OUTCOMES, UNKNOWN_ID, Agreement, Event, Header, Outcome, Round, Token
from ..core.lanes import BASELINE, LANES, SPECULATIVE, Lane, label_of
from ..core.registry import verdict_kind
from .metrics import Metrics, best_lane, compute_metrics
from .tables import shown_number
from .trace import Trace
from .uncertainty import DOUBTS, NEAR, uncertainty
from .vocabulary import OUTCOMES as WORDS

SPEEDUP = "speed-up"
END_TO_END = "on the wall clock, with prefill, decoding of text and recording"
UNSEEN = "?"  # the mark of a rejected token that a server did not report
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
    return "  ".join(styled(outcome, outcome, color) for outcome in OUTCOMES)


def print_race(events: Iterable[Event], *, color: bool) -> Trace:
    """Print a race as it runs: the legend, a line for each round, the texts and the figures."""
    print(legend(color=color))
    events_so_far: list[Event] = []
    width = 0  # letters of the longest name of a lane

    def show(event: Event) -> None:
        line = event_line(event, color=color, width=width)
        if line:
            print(line, flush=True)

    for event in events:
        if isinstance(event, Header):
            width = max(map(len, event.speculative))
        # A watched server may report its drafts at the end, by sending the same rounds again.
        is_untold = isinstance(event, Round) and event.untold
        if event not in events_so_far and not is_untold:
            show(event)
        events_so_far.append(event)
    trace = Trace.from_events(events_so_far)
    for r in trace.rounds:
        if r.untold:
            show(r)
    for lane in trace.header.speculative:
        _print_text(trace, lane)
    print("", *metric_lines(trace), sep="\n")
    return trace


def _print_text(trace: Trace, lane: Lane) -> None:
    """Print the text of a lane, after the prompt unless that was a question."""
    print()
    if lane != SPECULATIVE:
        print(f"{lane}:")
    text = trace.text(lane)
    if trace.header.question is None:
        text = trace.header.prompt + text
    print(escaped(text, lines=True))


def event_line(event: Event, *, color: bool, width: int = 0) -> str | None:
    """The line to print for an event: the prompt or a speculative round; None for others. width:
    letters of the longest name of a lane."""
    if isinstance(event, Header):
        return f"     │ {printable(event.question or event.prompt)}"
    if isinstance(event, Round) and event.lane != BASELINE:
        return round_line(event, color=color, width=width)
    return None


def round_line(r: Round, *, color: bool, width: int = 0) -> str:
    """The line for a round: its tokens in the order of judgement, after the lane's name, padded to
    `width`, if the lane has one."""
    lane = "" if r.lane in LANES else f"{r.lane:{width}} "
    tokens = "".join(_shown_token(token, color) for token in r.tokens)
    return f"{lane}{r.index + 1:4} │ {tokens}"


def _shown_token(token: Token, color: bool) -> str:
    text = printable(token.text)
    if token.id == UNKNOWN_ID:
        text = UNSEEN
    if not color and token.outcome == "rejected":
        text = f"[-{text}-]"
    if not color and token.outcome == "ignored":
        text = f"({text})"
    return styled(token.outcome, text, color)


def printable(text: str) -> str:
    """A text in one line, with signs for line ends and tabs."""
    return escaped(text.replace("\n", "⏎").replace("\t", "⇥"))


def styled(outcome: Outcome, text: str, color: bool) -> str:
    """A token's text after the mark of its outcome, in colour if the terminal has it."""
    marked = WORDS[outcome]["mark"] + text
    if not color:
        return marked
    return f"\x1b[{STYLES[outcome]}m{marked}\x1b[0m"


def metric_lines(trace: Trace) -> Iterator[str]:
    """The metrics of a trace, one per line; for several speculative lanes, a table with a line for
    each lane."""
    # A server, too, has named a model in them.
    return map(escaped, _metric_lines(trace))


def _metric_lines(trace: Trace) -> Iterator[str]:
    header = trace.header
    by_lane = {lane: compute_metrics(trace, lane) for lane in header.speculative}
    first_lane = header.speculative[0]
    first = by_lane[first_lane]
    width = label_width(trace)
    for lane in trace.lanes:
        m = by_lane.get(lane, first)
        label = label_of(lane)
        rate = shown_number(m.tokens_per_second[lane], 1)
        counts = f"{m.tokens[lane]:4} tokens  {m.seconds[lane]:7.3f} s"
        yield f"{label:{width}} {counts}  {rate} tokens/s"
    if len(by_lane) == 1:
        yield from _one_lane(trace, first_lane, first)
    else:
        yield from _several_lanes(trace, by_lane)
    yield from _inexact_line(header)
    if header.source is not None:
        yield from watched_lines(trace, first)
        return
    if header.on_server:
        yield from request_lines(trace)
    torch = header.versions["torch"]
    yield f"on {header.device}, {header.arithmetic}, threads: {_threads(header)}, torch {torch}"


def _inexact_line(header: Header) -> Iterator[str]:
    """A line that names the lanes whose verdict changes the target's distribution, if there are
    any."""
    inexact = [lane for lane in header.speculative if not header.settings_of(lane).exact]
    if inexact:
        names = ", ".join(label_of(lane) for lane in inexact)
        verdict = header.settings_of(inexact[0]).effective_verdict
        yield f"{names}: {verdict_kind(verdict).warning}"


def _threads(header: Header) -> str:
    """The numbers of threads of the lanes, each once, the baseline's first."""
    by_lane = header.lane_threads or dict.fromkeys(header.all_lanes, header.threads)
    *speculative, baseline = (by_lane[lane] for lane in header.all_lanes)
    numbers = dict.fromkeys([baseline, *speculative])
    return " and ".join(map(str, numbers))


class Figure(NamedTuple):
    """A line of a lane's figures: its name, its value and what it means."""

    name: str
    value: str
    meaning: str


def label_width(trace: Trace) -> int:
    """The width of the first column of a trace's figures."""
    widths = [len(label_of(lane)) for lane in trace.lanes]
    return max([15, *widths])


def _one_lane(trace: Trace, lane: Lane, m: Metrics) -> Iterator[str]:
    if trace.header.source is not None:
        figures = watched_figures(trace, m)
    else:
        figures = _figures(trace, m)
    doubt = _doubt_of(trace, lane)
    for figure in figures:
        yield f"{figure.name:15} {figure.value}  {figure.meaning}"
        if figure.name == SPEEDUP and doubt:
            yield f"{'  uncertain':15} {doubt}"
    counts = "  ".join(f"{name} {count}" for name, count in m.counts.items())
    yield f"{'counts':15} {counts}"
    if trace.end and trace.end.identical is not None:
        yield _comparison(trace.end.agreement(lane))


def _in_words(speedup: float | None) -> str:
    if speedup is None:
        return "too short to compare"
    if abs(speedup - 1) < NEAR:
        return "about even"
    if speedup > 1:
        return "drafting pays"
    return "drafting costs more than it saves"


def _figures(trace: Trace, m: Metrics) -> list[Figure]:
    beta = verdict_kind(trace.header.settings.effective_verdict).beta_label
    predicted = f"tokens per target pass; {shown_number(m.tau_predicted, 2)} predicted"
    return [
        Figure(SPEEDUP, shown_number(m.speedup, 2), _in_words(m.speedup)),
        Figure("  with prefill", shown_number(m.speedup_end_to_end, 2), "of the prompt"),
        Figure("  end to end", shown_number(m.speedup_wall, 2), END_TO_END),
        Figure("alpha", shown_number(m.alpha, 3), "of judged drafts were accepted"),
        Figure("efficiency", shown_number(m.efficiency, 3), "of all drafts were accepted"),
        Figure("beta", shown_number(m.beta, 3), beta),
        Figure("tau", shown_number(m.tau, 2), predicted),
        Figure("c", shown_number(m.c, 3), "a draft step, in target steps"),
    ]


COLUMNS: dict[str, Callable[[Metrics], float | None]] = {
    "speed-up": lambda m: m.speedup,
    "end to end": lambda m: m.speedup_wall,
    "alpha": lambda m: m.alpha,
    "efficiency": lambda m: m.efficiency,
    "tau": lambda m: m.tau,
    "c": lambda m: m.c,
}
"""The columns of the table of several lanes, each with its figure."""


def _several_lanes(trace: Trace, by_lane: Mapping[Lane, Metrics]) -> Iterator[str]:
    width = max(map(len, by_lane))
    heads = [f"{name:>10}" for name in COLUMNS]
    yield " ".join([" " * width, *heads])
    for lane, m in by_lane.items():
        cells = [f"{shown_number(figure(m), 3):>10}" for figure in COLUMNS.values()]
        yield " ".join([f"{lane:{width}}", *cells])
    best = best_lane(by_lane)
    if best is not None:
        speedup = shown_number(by_lane[best].speedup, 2)
        yield f"best: {best}, {speedup} times the target alone"
    for lane in by_lane:
        doubt = _doubt_of(trace, lane)
        if doubt:
            yield f"{lane}: uncertain, {doubt}"
        if trace.end and trace.end.identical is not None:
            yield f"{lane}: {_comparison(trace.end.agreement(lane))}"


def _doubt_of(trace: Trace, lane: Lane) -> str:
    """Why a lane's speed-up is uncertain; empty if it is not."""
    doubted = uncertainty(trace, lane)
    if doubted is None or doubted.doubt is None:
        return ""
    return DOUBTS[doubted.doubt]


def _comparison(agreement: Agreement) -> str:
    """A clause that compares the texts of two lanes."""
    divergence = agreement.divergence
    if divergence is None:
        compared = agreement.compared
        return f"{compared}/{compared} tokens identical to the baseline"
    margin = shown_number(divergence.margin, 4)
    return (
        f"the lanes diverge at token {divergence.index + 1}: the target's top two tokens are "
        f"{margin} nats apart"
    )


PER_REQUEST = (
    "The target is on a server: times are those of requests and include the network, the server's "
    "queue and its other users. The ratio is per request and says nothing about the server's own "
    "speed."
)
NOT_TOLD = (
    "The server drafted and judged on its own. It reports how many tokens it rejected, but not "
    "which, and no p, q or draws."
)
UNTOLD_STEPS = (
    "It does not report how many tokens its steps drafted either: each chunk of its stream counts "
    "as a step, and all but its last token count as accepted."
)
WALL_CLOCK = (
    "Times are measured by the client from chunk to chunk and include the network and the server's "
    "other users."
)


def request_lines(trace: Trace) -> Iterator[str]:
    """Means of bytes sent and received, of the seconds of a target pass measured here, and of the
    server's own seconds."""
    for lane in trace.lanes:
        requests = [r for r in trace.lane(lane) if r.exchanged]
        if not requests:
            continue
        count = len(requests)
        kilobytes = sum(r.exchanged or 0 for r in requests) / count / 1e3
        seconds = sum(r.verify_seconds for r in requests) / count
        line = f"{label_of(lane):15} {kilobytes:.1f} kB and {seconds * 1e3:.1f} ms per request"
        worked = [r.server_seconds for r in requests if r.server_seconds is not None]
        if len(worked) == count:
            milliseconds = sum(worked) / count * 1e3
            line += f", {milliseconds:.1f} ms of it on the server"
        yield line
    rate = trace.header.streaming_rate
    if rate is not None:
        yield f"{'the server':15} streams {rate:.1f} tokens/s on its own"
    yield PER_REQUEST


def watched_figures(trace: Trace, m: Metrics) -> list[Figure]:
    """The figures of a watched lane with what they mean."""
    speedup = shown_number(m.speedup, 2)
    figures = [Figure(SPEEDUP, speedup, _watched_speedup(trace, m))]
    if BASELINE in trace.lanes:
        with_prefill = shown_number(m.speedup_end_to_end, 2)
        figures.append(Figure("  with prefill", with_prefill, "with the time to the first token"))
    alpha = "of judged drafts were accepted"
    efficiency = "of all drafts were accepted"
    if m.alpha is None:
        alpha += ": not reported by the server"
        efficiency += ": not reported by the server"
    return [
        *figures,
        Figure("alpha", shown_number(m.alpha, 3), alpha),
        Figure("efficiency", shown_number(m.efficiency, 3), efficiency),
        Figure("tau", shown_number(m.tau, 2), "tokens per step, without the first token"),
    ]


def _watched_speedup(trace: Trace, m: Metrics) -> str:
    if BASELINE not in trace.lanes:
        return "no baseline was measured: name a second server that runs the target alone"
    if m.speedup is None:
        return "too short to compare"
    return "the measured ratio of two deployments, streamed one after the other"


def watched_lines(trace: Trace, m: Metrics) -> Iterator[str]:
    """Notes on a watched lane's figures: their meaning, and the server's name."""
    header = trace.header
    yield NOT_TOLD
    if any(r.untold for r in trace.lane(header.speculative[0])):
        yield UNTOLD_STEPS
    counters = _counters_line(trace, m)
    if counters:
        yield counters
    yield WALL_CLOCK
    servers = f"on {header.source}"
    baseline = header.versions.get("baseline")
    if baseline:
        servers += f"; the target alone on {baseline}"
    yield servers


def _counters_line(trace: Trace, m: Metrics) -> str:
    """A line that compares the server's own counters with this stream; empty if it has none."""
    if trace.end is None or trace.end.counted is None:
        return ""
    counted = trace.end.counted
    steps = counted["steps"]
    drafted = counted["drafted"]
    accepted = counted["accepted"]
    moved = f"{drafted} tokens drafted and {accepted} accepted in {steps} steps"
    rounds = trace.lane(trace.header.speculative[0])
    if any(r.untold for r in rounds):
        return f"Its counters rose by {moved} meanwhile, including its other users."
    steps_here = sum(bool(r.drafted) for r in rounds)
    accepted_here = m.counts["accepted"]
    # A token accepted after the end of the text counts as ignored here, and as accepted for the
    # server.
    cut = 0
    if rounds:
        cut = sum(token.outcome == "ignored" for token in rounds[-1].drafted)
    agrees = steps == steps_here and drafted == m.drafted
    more_accepted = accepted - accepted_here
    if agrees and 0 <= more_accepted <= cut:
        return f"Its counters agree: {moved}."
    return (
        f"Its counters rose by {moved} meanwhile, and this stream had {m.drafted} and "
        f"{accepted_here} in {steps_here}: others may have used the server too."
    )

"""A race in a terminal: one line per round, then the metrics."""

from __future__ import annotations

from collections.abc import Iterator

from ..settings import CHANGES_THE_TEXT
from ..trace import LANE_LABELS, LANES, End, Event, Header, Outcome, Round, Token, Trace
from .metrics import Metrics, compute_metrics
from .uncertainty import DOUBTS, uncertainty

END_TO_END = "on the wall clock: with prefill, text and all that is recorded"
FINAL = ("corrected", "bonus")  # outcomes of the last token of a round
# outcome: (mark, ANSI attributes); the mark distinguishes outcomes without colour
STYLES: dict[Outcome, tuple[str, str]] = {
    "accepted": ("", "4;38;5;32"),
    "rejected": ("✗", "9;38;5;166"),
    "ignored": ("", "2;38;5;245"),
    "corrected": ("↳", "4;38;5;175"),
    "bonus": ("★", "4;38;5;36"),
}


def legend(*, color: bool) -> str:
    """One line that shows every outcome in its style."""
    return "  ".join(_styled(o, STYLES[o][0] + o, color) for o in STYLES)


def event_line(event: Event, *, color: bool) -> str | None:
    """The line to print for an event: the prompt or a speculative round; None for others."""
    if isinstance(event, Header):
        return f"     │ {_printable(event.prompt)}"
    if isinstance(event, Round) and event.lane == "speculative":
        return round_line(event, color=color)
    return None


def round_line(result: Round, *, color: bool) -> str:
    """The line for a round: its tokens in the order in which they were judged."""
    tail = result.emitted[-1:] if result.emitted and result.emitted[-1].outcome in FINAL else ()
    shown = "".join(_token(t, color) for t in (*result.drafted, *tail))
    return f"{result.index + 1:4} │ {shown}"


def _token(token: Token, color: bool) -> str:
    mark = STYLES[token.outcome][0]
    text = _printable(token.text)
    if not color:
        text = {"rejected": f"[-{text}-]", "ignored": f"({text})"}.get(token.outcome, text)
    return _styled(token.outcome, mark + text, color)


def _printable(text: str) -> str:
    # Control characters in a model's text must neither break the line nor control the terminal.
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else "�" for c in shown)


def _styled(outcome: Outcome, text: str, color: bool) -> str:
    return f"\x1b[{STYLES[outcome][1]}m{text}\x1b[0m" if color else text


def _meaning_of_beta(rule: str) -> str:
    if rule in ("exact-match", "typical"):
        return "mean probability that the rule keeps a draft"
    token_rule = ", as the token rule has it" if rule == "block" else ""
    return f"mean overlap of the two distributions{token_rule}"


def metric_lines(trace: Trace) -> Iterator[str]:
    """The metrics of a trace, one line for each."""
    m, head = compute_metrics(trace), trace.header
    for lane in LANES:
        rate = shown_number(m.tokens_per_second[lane], 1)
        label = LANE_LABELS[lane]
        yield f"{label:15} {m.tokens[lane]:4} tokens  {m.seconds[lane]:7.3f} s  {rate} tokens/s"
    rows = {
        "speed-up": (shown_number(m.speedup, 2), _verdict(m)),
        "  with prefill": (shown_number(m.speedup_end_to_end, 2), "of the prompt"),
        "  end to end": (shown_number(m.speedup_wall, 2), END_TO_END),
        "alpha": (shown_number(m.alpha, 3), "of judged drafts were accepted"),
        "efficiency": (shown_number(m.efficiency, 3), "of all drafts were accepted"),
        "beta": (shown_number(m.beta, 3), _meaning_of_beta(head.settings.rule)),
        "tau": (
            shown_number(m.tau, 2),
            f"tokens per target pass; {shown_number(m.tau_predicted, 2)} predicted",
        ),
        "c": (shown_number(m.c, 3), "a draft step, in target steps"),
    }
    for name, (value, meaning) in rows.items():
        yield f"{name:15} {value}  {meaning}"
        if name == "speed-up":
            yield from _doubt_lines(trace)
    yield f"{'counts':15} " + "  ".join(f"{name} {count}" for name, count in m.counts.items())
    if trace.end and trace.end.identical is not None:
        yield _comparison(trace.end)
    if not head.settings.exact:
        yield CHANGES_THE_TEXT
    yield f"on {head.device}, {head.dtype}, {_threads(head)}, torch {head.versions['torch']}"


def _threads(head: Header) -> str:
    by_lane = head.lane_threads or dict.fromkeys(LANES, head.threads)
    alone, with_draft = (by_lane[lane] for lane in LANES[::-1])
    return f"threads: {alone}" if alone == with_draft else f"threads: {alone} and {with_draft}"


def _doubt_lines(trace: Trace) -> Iterator[str]:
    found = uncertainty(trace)
    if found is not None and found.doubt is not None:
        yield f"{'  uncertain':15} {DOUBTS[found.doubt]}"


def _comparison(end: End) -> str:
    where = end.divergence
    if where is None:
        return f"{end.compared}/{end.compared} tokens identical to the baseline"
    margin = shown_number(where.margin, 4)
    return (
        f"the lanes part at token {where.index + 1}: the target's top two are {margin} nats apart"
    )


def _verdict(m: Metrics) -> str:
    if m.speedup is None:
        return "too short to compare"
    return "the draft pays" if m.speedup > 1 else "the draft costs more than it saves"


def shown_number(value: float | None, places: int) -> str:
    """A shown_number with `places` decimals, or a dash for None."""
    return "–" if value is None else f"{value:.{places}f}"

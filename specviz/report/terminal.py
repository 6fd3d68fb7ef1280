"""A race in a terminal: one line per round, then the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..kinds import verdict_kind
from ..lanes import label_of
from ..trace import (
    BASELINE,
    LANES,
    UNKNOWN_ID,
    Event,
    Header,
    Lane,
    Outcome,
    Round,
    Token,
    Trace,
)
from .guesses import UNITS, Guess, Guesses
from .metrics import Metrics, best_lane, compute_metrics
from .parting import Difference
from .requests import request_lines
from .uncertainty import DOUBTS, uncertainty
from .watched import watched_lines, watched_rows
from .words import comparison_line
from .words import shown_milliseconds as shown_milliseconds  # others import them from here
from .words import shown_number as shown_number

END_TO_END = "on the wall clock: with prefill, text and all that is recorded"
UNSEEN = "?"  # in the place of a token that a server rejected without telling it
FINAL = ("corrected", "bonus", "untold")  # outcomes of the last token of a round
# outcome: (mark, ANSI attributes); the mark distinguishes outcomes without colour
STYLES: dict[Outcome, tuple[str, str]] = {
    "accepted": ("", "4;38;5;32"),
    "rejected": ("✗", "9;38;5;166"),
    "ignored": ("", "2;38;5;245"),
    "corrected": ("↳", "4;38;5;175"),
    "bonus": ("★", "4;38;5;36"),
}
# Not in the legend of a run that is judged here: the end of a watched server's step.
UNTOLD_STYLE = ("·", "4;38;5;245")


def legend(*, color: bool) -> str:
    """One line that shows every outcome in its style."""
    return "  ".join(_styled(o, STYLES[o][0] + o, color) for o in STYLES)


def event_line(event: Event, *, color: bool) -> str | None:
    """The line to print for an event: the prompt or a speculative round; None for others."""
    if isinstance(event, Header):
        return f"     │ {_printable(event.prompt)}"
    if isinstance(event, Round) and event.lane != BASELINE:
        return round_line(event, color=color)
    return None


def round_line(result: Round, *, color: bool) -> str:
    """The line for a round: its tokens in the order in which they were judged, after the lane's
    name if it has one of its own."""
    tail = result.emitted[-1:] if result.emitted and result.emitted[-1].outcome in FINAL else ()
    shown = "".join(_token(t, color) for t in (*result.drafted, *tail))
    name = "" if result.lane in LANES else f"{result.lane:14} "
    return f"{name}{result.index + 1:4} │ {shown}"


def _token(token: Token, color: bool) -> str:
    mark = STYLES.get(token.outcome, UNTOLD_STYLE)[0]
    text = _printable(token.text) if token.id != UNKNOWN_ID else UNSEEN
    if not color:
        text = {"rejected": f"[-{text}-]", "ignored": f"({text})"}.get(token.outcome, text)
    return _styled(token.outcome, mark + text, color)


def _printable(text: str) -> str:
    # Control characters in a model's text must neither break the line nor control the terminal.
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else "�" for c in shown)


def _styled(outcome: Outcome, text: str, color: bool) -> str:
    style = STYLES.get(outcome, UNTOLD_STYLE)[1]
    return f"\x1b[{style}m{text}\x1b[0m" if color else text


def metric_lines(trace: Trace) -> Iterator[str]:
    """The metrics of a trace, one line for each; of several speculative lanes, a table with a line
    for each of them."""
    head = trace.header
    by_lane = {lane: compute_metrics(trace, lane) for lane in head.speculative}
    first = by_lane[head.speculative[0]]
    for lane in trace.lanes:
        m = by_lane.get(lane, first)
        rate = shown_number(m.tokens_per_second[lane], 1)
        label = label_of(lane)
        yield f"{label:15} {m.tokens[lane]:4} tokens  {m.seconds[lane]:7.3f} s  {rate} tokens/s"
    if head.source is not None:
        yield from watched_rows(trace, first)
    elif len(by_lane) == 1:
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
    yield f"on {head.device}, {head.dtype}, {_threads(head)}, torch {head.versions['torch']}"


def _one_lane(trace: Trace, lane: Lane, m: Metrics) -> Iterator[str]:
    rows = {
        "speed-up": (shown_number(m.speedup, 2), _verdict(m)),
        "  with prefill": (shown_number(m.speedup_end_to_end, 2), "of the prompt"),
        "  end to end": (shown_number(m.speedup_wall, 2), END_TO_END),
        "alpha": (shown_number(m.alpha, 3), "of judged drafts were accepted"),
        "efficiency": (shown_number(m.efficiency, 3), "of all drafts were accepted"),
        "beta": (shown_number(m.beta, 3), verdict_kind(trace.header.settings_of(lane).rule).beta),
        "tau": (
            shown_number(m.tau, 2),
            f"tokens per target pass; {shown_number(m.tau_predicted, 2)} predicted",
        ),
        "c": (shown_number(m.c, 3), "a draft step, in target steps"),
    }
    for name, (value, meaning) in rows.items():
        yield f"{name:15} {value}  {meaning}"
        if name == "speed-up":
            doubt = _doubt_of(trace, lane)
            yield from [f"{'  uncertain':15} {doubt}"] if doubt else []
    yield f"{'counts':15} " + "  ".join(f"{name} {count}" for name, count in m.counts.items())
    if trace.end and trace.end.identical is not None:
        yield comparison_line(trace.end.agreement(lane))


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
        doubt = _doubt_of(trace, lane)
        if doubt:
            yield f"{lane}: uncertain, {doubt}"
        if trace.end and trace.end.identical is not None:
            yield f"{lane}: {comparison_line(trace.end.agreement(lane))}"


def difference_lines(found: Difference) -> Iterator[str]:
    """Why two greedy lanes part: each way of scoring the place, the control, the answer."""
    ours, theirs = (_printable(text) for text in (found.ours, found.theirs))
    yield f"token {found.index + 1}: “{ours}” with drafts, “{theirs}” from the target alone"
    for one in found.scored:
        yield (
            f"  {one.name:32} “{ours}” {one.p_ours:.4f}  “{theirs}” {one.p_theirs:.4f}  "
            f"apart {one.apart:+.2g} nats"
        )
    yield f"  rounding moves logits by up to {found.rounding:.2g} nats here"
    yield f"  control, the target drafting for itself: {found.held} of {found.judged} guesses held"
    yield found.summary
    yield from (f"  since {reason}" for reason in found.reasons)


def guess_lines(found: Guesses, gamma: int, gammas: Sequence[int], *, color: bool) -> Iterator[str]:
    """The would-be rounds at `gamma`, as those of a run are shown, then what each of `gammas` would
    have brought."""
    if found.before:
        yield f"     │ {_printable(found.before)}"
    start = 0
    for index, count in enumerate(found.would_be(gamma).rounds):
        *kept, own = found.places[start : start + count]
        start += count
        drafted = count <= gamma and start < len(found.places)
        yield f"{index + 1:4} │ {_would_be_line(kept, own, drafted, color)}"
    right, places = found.right, len(found.places)
    yield f"\n{found.draft} had {right} of {places} places right ({right / places:.2f})"
    if found.left_out:
        yield f"the last {found.left_out} tokens of the text were left out"
    yield f"{'gamma':>7}{'rounds':>9}{'alpha':>8}{'tau':>8}"
    for one in gammas:
        its = found.would_be(one)
        alpha, tau = shown_number(its.alpha, 3), shown_number(its.tau, 2)
        yield f"{one:7}{len(its.rounds):9}{alpha:>8}{tau:>8}"
    yield UNITS


def _would_be_line(kept: Sequence[Guess], own: Guess, drafted: bool, color: bool) -> str:
    """A would-be round. drafted: whether the place of the target's own token was guessed too."""
    shown = "".join(_styled("accepted", _printable(one.text), color) for one in kept)
    if not drafted:
        return shown + _styled("bonus", STYLES["bonus"][0] + _printable(own.text), color)
    wrong = _printable(own.guess)
    shown += _styled(
        "rejected", STYLES["rejected"][0] + (wrong if color else f"[-{wrong}-]"), color
    )
    return shown + _styled("corrected", STYLES["corrected"][0] + _printable(own.text), color)


def _threads(head: Header) -> str:
    by_lane = head.lane_threads or dict.fromkeys(head.all_lanes, head.threads)
    alone, *with_draft = (by_lane[lane] for lane in head.all_lanes[::-1])
    counts = dict.fromkeys([alone, *with_draft[::-1]])
    return f"threads: {' and '.join(map(str, counts))}"


def _doubt_of(trace: Trace, lane: Lane) -> str:
    """Why a lane's speed-up is uncertain; empty if it is not."""
    found = uncertainty(trace, lane)
    return DOUBTS[found.doubt] if found is not None and found.doubt is not None else ""


def _verdict(m: Metrics) -> str:
    if m.speedup is None:
        return "too short to compare"
    return "the draft pays" if m.speedup > 1 else "the draft costs more than it saves"

"""A race as it runs: in a cell of a notebook, or as lines in a terminal."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

from ..core.events import Event, Outcome, Round, Token
from ..core.lanes import BASELINE, Lane, label_of
from .metrics import compute_metrics
from .palette import PALETTE
from .tables import shown_number
from .terminal import metric_lines, print_race
from .trace import Trace
from .vocabulary import OUTCOMES as WORDS

PAUSE = 0.2  # seconds between two pictures of a race
MAX_SHOWN = 400  # the last tokens of a lane, in a picture
WRITING = "All lanes are writing."
STYLES: dict[Outcome, str] = {
    "accepted": "border-bottom: 2px solid {accepted}",
    "rejected": "text-decoration: line-through; color: {rejected}",
    "ignored": "opacity: .45; border-bottom: 2px dotted",
    "corrected": "border-bottom: 4px double {corrected}",
    "bonus": "border-bottom: 2px solid {bonus}",
    "untold": "border-bottom: 2px solid",
}
"""The CSS of each token mark: letters keep the colour of the notebook's theme."""


def watch(events: Iterable[Event]) -> Trace:
    """Show a race while it runs, and return it: `watch(race(pair, prompt))`.

    In a cell of a notebook one picture is updated, and the returned trace shows itself as a player
    that plays the race again; elsewhere rounds are printed as lines.
    """
    display = _notebook_display()
    close: Any = closing if hasattr(events, "close") else nullcontext
    with close(events):
        if display is None:
            return print_race(events, color=sys.stdout.isatty())
        return _shown_in_cell(events, display)


def _notebook_display() -> Any:
    """IPython's `display`, if this is the kernel of a notebook, else None. IPython is never
    imported: a notebook has imported it already."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    shell = ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return display


def _shown_in_cell(events: Iterable[Event], display: Any) -> Trace:
    picture = Picture()
    handle = display(picture, display_id=True)
    events_so_far: list[Event] = []
    shown_at = 0.0
    for event in events:
        events_so_far.append(event)
        if time.monotonic() - shown_at >= PAUSE:
            picture.trace = Trace.from_events(events_so_far)
            handle.update(picture)
            shown_at = time.monotonic()
    picture.trace = Trace.from_events(events_so_far)
    handle.update(picture)
    return picture.trace


class Picture:
    """A race at one moment. trace: the events so far; None during the prefill."""

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace

    def __repr__(self) -> str:
        if self.trace is None:
            return "reading the prompt"
        if self.trace.end is None:
            return repr(self.trace)
        return "\n".join(metric_lines(self.trace))

    def _repr_html_(self) -> str:
        if self.trace is None:
            return "<p>The lanes are reading the prompt.</p>"
        return "".join(_parts(self.trace))


def _parts(trace: Trace) -> Iterator[str]:
    """The pieces of a picture in HTML: the ratio, then the lanes side by side."""
    yield f"<p>{_headline(trace)}</p>"
    yield '<div style="display: flex; flex-wrap: wrap; gap: 2em; align-items: start">'
    for lane in trace.lanes:
        yield from _lane(trace, lane)
    yield "</div>"


def _headline(trace: Trace) -> str:
    is_over = trace.end is not None
    if len(trace.header.speculative) > 1:
        if is_over:
            return "Times the speed of the target alone, by lane."
        return WRITING
    speedup = compute_metrics(trace).speedup
    if speedup is None:
        if is_over:
            return "Too short to compare."
        return WRITING
    ratio = f'<b style="font-size: 2em">{shown_number(speedup, 2)}×</b>'
    headline = f"{ratio} the speed of the target alone"
    if is_over:
        return headline
    return f"{headline}, so far"


def _lane(trace: Trace, lane: Lane) -> Iterator[str]:
    rounds = trace.lane(lane)
    tokens = [token for r in rounds for token in r.tokens]
    yield '<div style="flex: 1 1 20em; min-width: 0">'
    yield f"<p><b>{html.escape(label_of(lane))}</b> {_pace(trace, lane, rounds)}</p>"
    yield '<p style="white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.8">'
    if len(tokens) > MAX_SHOWN:
        yield "…"
    for token in tokens[-MAX_SHOWN:]:
        if lane == BASELINE:
            yield html.escape(token.text)
        else:
            yield _marked(token)
    yield "</p></div>"


def _pace(trace: Trace, lane: Lane, rounds: Sequence[Round]) -> str:
    """The tokens of a lane and their rate."""
    written = sum(len(r.emitted) for r in rounds)
    parts = [f"{written} tokens"]
    if rounds and rounds[-1].clock:
        rate = written / rounds[-1].clock
        parts.append(f"{rate:.1f} tokens/s")
    if len(trace.header.speculative) > 1 and lane != BASELINE:
        speedup = compute_metrics(trace, lane).speedup
        parts.append(f"{shown_number(speedup, 2)}×")
    return ", ".join(parts)


def _marked(token: Token) -> str:
    """A token with the mark of its outcome."""
    style = STYLES[token.outcome].format(**PALETTE["light"])
    meaning = html.escape(WORDS[token.outcome]["meaning"])
    return f'<span title="{meaning}" style="{style}">{html.escape(token.text)}</span>'

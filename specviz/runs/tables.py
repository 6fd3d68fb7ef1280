"""Tables: a run as CSV, and any rows as text for a terminal or in Markdown."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..core.events import UNKNOWN_ID
from .trace import Trace
from .uncertainty import Spread

TOKEN_COLUMNS = (
    *("lane", "round", "place", "outcome", "position", "id", "text"),
    *("p", "q", "u", "beta", "soft_p", "soft_q", "clock", "weight", "threshold", "chance"),
)
ROUND_COLUMNS = (
    *("lane", "round", "drafted", "accepted", "rejected", "ignored", "emitted", "text"),
    *("draft_seconds", "verify_seconds", "overhead_seconds", "clock"),
)
# A spreadsheet runs a cell that begins with one of these as a formula; some also accept the
# full-width forms.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def tokens_csv(trace: Trace) -> str:
    """A table with one row for each token, in the order of the rounds.

    round, place, position: counted from 1: the round in its lane, the token in its round, and the
    token among all emitted tokens of its lane (empty if it was not emitted). id: empty if a watched
    server did not tell it. clock: seconds at the end of the round. A text that a spreadsheet would
    run as a formula gets an apostrophe in front.
    """
    emitted: Counter[str] = Counter()
    rows: list[list[object]] = []
    for r in trace.rounds:
        for place, token in enumerate(r.tokens, 1):
            is_emitted = token.outcome not in ("rejected", "ignored")
            emitted[r.lane] += is_emitted
            own = {
                **{"lane": r.lane, "round": r.index + 1, "place": place, "clock": r.clock},
                "position": emitted[r.lane] if is_emitted else None,
                "id": None if token.id == UNKNOWN_ID else token.id,
                "text": harmless(token.text),
            }
            rows.append([own[n] if n in own else getattr(token, n) for n in TOKEN_COLUMNS])
    return csv_text(TOKEN_COLUMNS, rows)


def rounds_csv(trace: Trace) -> str:
    """A table with one row for each round: its tokens by outcome, its text and its seconds.

    Texts that a spreadsheet would run as a formula get an apostrophe in front.
    """
    rows: list[list[object]] = []
    for r in trace.rounds:
        seen = Counter(token.outcome for token in r.drafted)
        counts = (len(r.drafted), seen["accepted"], seen["rejected"], seen["ignored"])
        seconds = (r.draft_seconds, r.verify_seconds, r.overhead_seconds, r.clock)
        said = (len(r.emitted), harmless(r.text))
        rows.append([r.lane, r.index + 1, *counts, *said, *seconds])
    return csv_text(ROUND_COLUMNS, rows)


def harmless(text: str) -> str:
    """The text with an apostrophe in front if a spreadsheet would run it as a formula."""
    return "'" + text if text.startswith(FORMULA_STARTS) else text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV."""
    # None becomes an empty cell. Rows end with CR LF, as RFC 4180 says, so a text with line ends
    # of either kind stays unchanged.
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows with columns of one width each: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  " + "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(head)} |".replace("|  |", "| |")
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def rate_line(name: str, rate: Spread, width: int, more: str = "") -> str:
    """A rate in tokens per second with its quartiles, or with `more` in their place."""
    tail = more or f"({rate.low:.1f} - {rate.high:.1f})"
    return f"  {name:{width}} {rate.median:7.1f} tokens/s  {tail}"


def shown_number(value: float | None, places: int) -> str:
    """A number with so many decimals, or a dash for None."""
    return "–" if value is None else f"{value:.{places}f}"


def shown_milliseconds(seconds: float | None) -> str:
    """Seconds as text in milliseconds: "1.52 ms", or a dash for None."""
    return "–" if seconds is None else f"{seconds * 1e3:.2f} ms"

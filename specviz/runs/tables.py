"""Tables: a run as CSV, and any rows as text for a terminal or in Markdown."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..core.events import UNKNOWN_ID
from .trace import Trace
from .uncertainty import Spread

TOKEN_COLUMNS = (
    "lane",
    "round",
    "place",
    "outcome",
    "position",
    "id",
    "text",
    "p",
    "q",
    "u",
    "beta",
    "soft_p",
    "soft_q",
    "clock",
    "weight",
    "threshold",
    "chance",
)
ROUND_COLUMNS = (
    "lane",
    "round",
    "drafted",
    "accepted",
    "rejected",
    "ignored",
    "emitted",
    "text",
    "draft_seconds",
    "verify_seconds",
    "overhead_seconds",
    "clock",
)
# A spreadsheet runs a cell that begins with one of these as a formula; some also accept the
# full-width forms.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def tokens_csv(trace: Trace) -> str:
    """A table with one row for each token, in the order of the rounds.

    round, place, position: counted from 1: the round in its lane, the token in its round, and the
    token among all emitted tokens of its lane (empty if it was not emitted). id: empty if a watched
    server did not report it. clock: seconds at the end of the round. A text that a spreadsheet
    would run as a formula gets an apostrophe in front.
    """
    emitted: Counter[str] = Counter()
    rows: list[dict[str, object]] = []
    for r in trace.rounds:
        for place, token in enumerate(r.tokens, 1):
            position: int | None = None
            if token.outcome not in ("rejected", "ignored"):
                emitted[r.lane] += 1
                position = emitted[r.lane]
            token_id: int | None = token.id
            if token_id == UNKNOWN_ID:
                token_id = None
            rows.append(
                {
                    "lane": r.lane,
                    "round": r.index + 1,
                    "place": place,
                    "outcome": token.outcome,
                    "position": position,
                    "id": token_id,
                    "text": harmless(token.text),
                    "p": token.p,
                    "q": token.q,
                    "u": token.u,
                    "beta": token.beta,
                    "soft_p": token.soft_p,
                    "soft_q": token.soft_q,
                    "clock": r.clock,
                    "weight": token.weight,
                    "threshold": token.threshold,
                    "chance": token.chance,
                }
            )
    return _named_csv(TOKEN_COLUMNS, rows)


def rounds_csv(trace: Trace) -> str:
    """A table with one row for each round: its tokens by outcome, its text and its seconds.

    Texts that a spreadsheet would run as a formula get an apostrophe in front.
    """
    rows: list[dict[str, object]] = []
    for r in trace.rounds:
        outcomes = Counter(token.outcome for token in r.drafted)
        rows.append(
            {
                "lane": r.lane,
                "round": r.index + 1,
                "drafted": len(r.drafted),
                "accepted": outcomes["accepted"],
                "rejected": outcomes["rejected"],
                "ignored": outcomes["ignored"],
                "emitted": len(r.emitted),
                "text": harmless(r.text),
                "draft_seconds": r.draft_seconds,
                "verify_seconds": r.verify_seconds,
                "overhead_seconds": r.overhead_seconds,
                "clock": r.clock,
            }
        )
    return _named_csv(ROUND_COLUMNS, rows)


def _named_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A table as CSV. rows: values by column."""
    cells = []
    for row in rows:
        cells.append([row[name] for name in columns])
    return csv_text(columns, cells)


def harmless(text: str) -> str:
    """The text with an apostrophe in front if a spreadsheet would run it as a formula."""
    if text.startswith(FORMULA_STARTS):
        return f"'{text}"
    return text


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
    columns = zip(*rows, strict=True)
    first_width, *widths = [max(map(len, column)) for column in columns]
    for first, *other_cells in rows:
        cells = [first.ljust(first_width)]
        for cell, width in zip(other_cells, widths, strict=True):
            cells.append(cell.rjust(width))
        line = "  ".join(cells)
        yield "  " + line.rstrip()


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(head)} |".replace("|  |", "| |")
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def rate_line(name: str, rate: Spread, width: int, more: str = "") -> str:
    """A rate in tokens per second with its quartiles, or with `more` instead of them."""
    tail = more or f"({rate.low:.1f} - {rate.high:.1f})"
    return f"  {name:{width}} {rate.median:7.1f} tokens/s  {tail}"


def shown_number(value: float | None, places: int) -> str:
    """A number with `places` decimals, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:.{places}f}"


def shown_milliseconds(seconds: float | None) -> str:
    """Seconds as text in milliseconds: "1.52 ms", or a dash for None."""
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.2f} ms"

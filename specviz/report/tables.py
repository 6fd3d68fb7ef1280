"""A run as tables, for a spreadsheet or a data frame."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence

from ..trace import Round, Token, Trace

TOKEN_COLUMNS = (
    *("lane", "round", "place", "outcome", "position", "id", "text"),
    *("p", "q", "u", "beta", "soft_p", "soft_q", "clock"),
)
ROUND_COLUMNS = (
    *("lane", "round", "drafted", "accepted", "rejected", "ignored", "emitted", "text"),
    *("draft_seconds", "verify_seconds", "overhead_seconds", "clock"),
)
# A spreadsheet runs a cell that begins with one of these; some also read the full-width forms.
RUNNABLE = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def tokens_csv(trace: Trace) -> str:
    """One row for each token, in the order of the rounds; an accepted one has one row.

    round, place, position: counted from 1: the round in its lane, the token in its round, and
    among all that its lane emitted (empty if it was not). clock: seconds at the round's end.
    Texts that a spreadsheet would run as a formula begin with an apostrophe.
    """
    emitted: Counter[str] = Counter()
    rows: list[list[object]] = []
    for r in trace.rounds:
        own = [t for t in r.emitted if t.outcome != "accepted"]
        for place, token in enumerate([*r.drafted, *own], 1):
            position: int | None = None
            if token.outcome not in ("rejected", "ignored"):
                emitted[r.lane] += 1
                position = emitted[r.lane]
            rows.append([r.lane, r.index + 1, place, *_token_cells(token, position), r.clock])
    return _csv(TOKEN_COLUMNS, rows)


def rounds_csv(trace: Trace) -> str:
    """One row for each round: its tokens counted by outcome, what it added, its seconds."""
    return _csv(ROUND_COLUMNS, map(_round_cells, trace.rounds))


def _token_cells(token: Token, position: int | None) -> list[object]:
    told = (token.p, token.q, token.u, token.beta, token.soft_p, token.soft_q)
    return [token.outcome, position, token.id, _harmless(token.text), *told]


def _round_cells(r: Round) -> list[object]:
    seen = Counter(token.outcome for token in r.drafted)
    counts = [seen[outcome] for outcome in ("accepted", "rejected", "ignored")]
    added = _harmless("".join(token.text for token in r.emitted))
    seconds = (r.draft_seconds, r.verify_seconds, r.overhead_seconds, r.clock)
    return [r.lane, r.index + 1, len(r.drafted), *counts, len(r.emitted), added, *seconds]


def _harmless(text: str) -> str:
    return "'" + text if text.startswith(RUNNABLE) else text


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    # None becomes an empty cell, and the standard's own line ends keep texts with either kind.
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()

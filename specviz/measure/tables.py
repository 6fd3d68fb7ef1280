"""Tables as text: with columns of fixed width for a terminal, or in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..runs.intervals import Spread


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

"""A sweep in a terminal: a table, a line of progress, the recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...pairs.sizes import shown_bytes
from ...runs.terminal import shown_number
from .types import Estimate, Progress, Rate, Row, SweepResult

HEADS = (
    *("row", "", "speed-up", "predicted", "tokens/s", "alone", "alpha", "by position"),
    *("efficiency", "tau", "predicted", "c", "memory", "runs"),
)
MARKS = {"best": "best", "tied": "as good", "open": "may be better", None: ""}
MOST_POSITIONS = 4  # that the table shows


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as a table of fixed columns, the temperatures one after another."""
    for temperature in dict.fromkeys(row.configuration.temperature for row in rows):
        group = [row for row in rows if row.configuration.temperature == temperature]
        yield f"temperature {temperature:g}"
        grid = [HEADS, *(cells(row) for row in group if row.status != "left out")]
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        for line in grid:
            first, *others = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            yield "  " + "  ".join([line[0].ljust(len(first)), *others]).rstrip()
        for note in dict.fromkeys(row.note for row in group if row.note):
            yield f"  left out: {note}"
        yield ""


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row, in the order of `HEADS`; a dash where nothing is known."""
    m, p = row.measured, row.predicted
    state = MARKS[row.mark] or ("slower" if row.status == "eliminated" else "behind")
    memory = shown_bytes(row.memory) if row.memory is not None else "–"
    predicted = shown_number(p.speedup if p else None, 2)
    if m is None:
        known = [shown_number(one, 2) for one in (p.alpha, p.efficiency)] if p else ["–", "–"]
        by_position = _positions(p.alpha_by_position) if p else "–"
        tau = shown_number(p.tau if p else None, 2)
        return (
            *(row.configuration.label, MARKS[row.mark] or ("predicted" if p else row.status)),
            *("–", predicted, "–", "–"),
            *(known[0], by_position, known[1], "–", tau, "–", memory, "0"),
        )
    return (
        *(row.configuration.label, state, shown_estimate(m.speedup), predicted),
        *(_rate(m.rate), shown_number(m.alone_rate.median, 0), shown_number(m.alpha, 2)),
        *(_positions(m.alpha_by_position), shown_number(m.efficiency, 2), shown_number(m.tau, 2)),
        *(shown_number(p.tau if p else m.tau_predicted, 2), shown_number(m.c, 3), memory),
        str(m.runs),
    )


def shown_estimate(found: Estimate | None) -> str:
    """A speed-up with its interval, if it has one."""
    if found is None:
        return "too short"
    if found.low is None or found.high is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} - {found.high:.2f})"


def _rate(rate: Rate) -> str:
    return f"{rate.median:.0f} ({rate.low:.0f} - {rate.high:.0f})"


def _positions(alphas: Sequence[float | None]) -> str:
    shown = [shown_number(alpha, 2) for alpha in alphas[:MOST_POSITIONS]]
    return " ".join([*shown, "…"] if len(alphas) > MOST_POSITIONS else shown) or "–"


def progress_line(progress: Progress) -> str:
    """How far the sweep is, in one line."""
    left = f"{progress.seconds_left:.0f} s left"
    return f"{progress.done}/{progress.total}  {left}  {progress.now}"


def recommendation_lines(result: SweepResult) -> Iterator[str]:
    """The recommendations with their reasons, their doubt and the settings to paste."""
    for advice in result.recommendations:
        yield f"at temperature {advice.temperature:g}: {advice.headline}"
        yield from (f"  {reason}" for reason in advice.reasons)
        if advice.doubt:
            yield f"  doubt: {advice.doubt}"
        for one in advice.settings:
            yield f"  {one.engine} ({one.version})"
            yield from (f"    {line}" for line in one.text.splitlines())
            if one.note:
                yield f"    {one.note}"
        yield ""
    machine = result.machine
    if machine is not None:
        yield (
            f"{machine.target} with {machine.draft or 'no draft model'} on {machine.processor}, "
            f"{machine.device}, {machine.dtype}, {machine.form} passes, threads: "
            f"{machine.threads}, torch {machine.versions.get('torch', '')}, {machine.date}"
        )
    yield from result.notes
    if result.stopped:
        yield "The sweep was stopped: these are the results until then."

"""A sweep as text for a terminal, and as files: CSV, JSON, and a page that opens from disk."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import SettingsError
from ...base.options import check_writable
from ...files.memory import shown_bytes
from ...runs.charts_page import charts_page
from ...runs.palette import PALETTE
from ...runs.tables import aligned, csv_text, harmless, shown_number
from ...runs.trace import write_atomically
from .figures import exported_specs
from .types import Configuration, Machine, Row, SweepResult

PAGE = "http://127.0.0.1:7860/"
"""The default address of `python -m specviz page`."""

COLUMNS = {
    "drafter": "configuration.drafter",
    "gamma": "configuration.gamma",
    "policy": "configuration.policy",
    "temperature": "configuration.temperature",
    "status": "status",
    "mark": "mark",
    "runs": "measured.runs",
    "prompts": "measured.prompts",
    "tokens_per_second": "measured.rate.median",
    "tokens_per_second_low": "measured.rate.low",
    "tokens_per_second_high": "measured.rate.high",
    "alone_tokens_per_second": "measured.alone_rate.median",
    "speedup": "measured.speedup.value",
    "speedup_low": "measured.speedup.low",
    "speedup_high": "measured.speedup.high",
    "speedup_predicted": "predicted.speedup",
    "alpha": "measured.alpha",
    "alpha_predicted": "predicted.alpha",
    "efficiency": "measured.efficiency",
    "tau": "measured.tau",
    "tau_predicted_by_alpha": "measured.tau_predicted",
    "tau_predicted": "predicted.tau",
    "prediction_exact": "predicted.exact",
    "c": "measured.c",
    "drafted_per_round": "measured.drafted",
    "draft_ms": "measured.times.draft",
    "verify_ms": "measured.times.verify",
    "overhead_ms": "measured.times.overhead",
    "alone_ms": "measured.times.alone",
    "memory_bytes": "memory",
    "busy_runs": "measured.doubts",
    "note": "note",
}
"""The columns of the CSV, each with the path of its value in a `Row`. Rates are tokens per second,
times milliseconds per round; "low" and "high" of the speed-up are the ends of its 95% interval."""

STATES = {"eliminated": "slower", "measured": "behind"}
MARKS = {"best": "best", "tied": "as good", "open": "may be better"}
MAX_POSITIONS = 4  # that the table shows


def value_at(row: Row, path: str) -> Any:
    """Read the value at a dotted path of a row; None where it is unknown."""
    value: Any = row
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value


def _state(row: Row) -> str:
    if row.mark is not None:
        return MARKS[row.mark]
    return STATES.get(row.status, row.status)


def _by_position(alphas: Sequence[float | None]) -> str:
    shown = [shown_number(alpha, 2) for alpha in alphas[:MAX_POSITIONS]]
    if len(alphas) > MAX_POSITIONS:
        shown.append("…")
    return " ".join(shown) or "–"


class Cell(NamedTuple):
    """A cell of the table, with the heading of its column. is_guess: whether it shows a prediction
    instead of a measurement."""

    heading: str
    text: str
    is_guess: bool = False


def row_cells(row: Row) -> tuple[Cell, ...]:
    """The cells of a row; a dash for unknown values."""
    is_guess = row.measured is None and row.known is not None
    tau_predicted = "measured.tau_predicted" if row.predicted is None else "predicted.tau"
    alphas = value_at(row, "known.alpha_by_position") or ()
    prompts = value_at(row, "measured.prompts") or 0
    runs = value_at(row, "measured.runs") or 0
    return (
        Cell("row", row.configuration.label),
        Cell("", _state(row)),
        Cell("speed-up", _speedup(row)),
        Cell("95%", _range(row, "speedup", 2)),
        Cell("predicted", _number(row, "predicted.speedup", 2), is_guess),
        Cell("tokens/s", _number(row, "measured.rate.median", 1)),
        Cell("quartiles", _range(row, "measured.rate", 1)),
        Cell("alone", _number(row, "measured.alone_rate.median", 1)),
        Cell("alpha", _number(row, "known.alpha", 2), is_guess),
        Cell("by position", _by_position(alphas), is_guess),
        Cell("efficiency", _number(row, "known.efficiency", 2), is_guess),
        Cell("tau", _number(row, "measured.tau", 2)),
        Cell("predicted", _number(row, tau_predicted, 2), is_guess),
        Cell("c", _number(row, "measured.c", 3)),
        Cell("memory", _memory(row)),
        Cell("prompts", str(prompts)),
        Cell("runs", str(runs)),
    )


def _number(row: Row, path: str, places: int) -> str:
    """The number at a path of a row, or a dash."""
    return shown_number(value_at(row, path), places)


def _range(row: Row, path: str, places: int) -> str:
    """The interval at a path of a row, or a dash."""
    low = value_at(row, f"{path}.low")
    high = value_at(row, f"{path}.high")
    if low is None or high is None:
        return "–"
    return f"{low:.{places}f} - {high:.{places}f}"


def _speedup(row: Row) -> str:
    if row.measured is None:
        return "–"
    if row.speedup is None:
        return "too short"
    return f"{row.speedup.value:.2f}"


def _memory(row: Row) -> str:
    if row.memory is None:
        return "–"
    return shown_bytes(row.memory)


HEADINGS = [cell.heading for cell in row_cells(Row(Configuration("", 1, "fixed", 0.0)))]


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows as a table of fixed columns, one for each temperature. A prediction has a "~"
    in front."""
    for temperature, group in _by_temperature(rows).items():
        yield f"temperature {temperature:g}"
        possible = [row for row in group if row.status != "left out"]
        lines = [[_shown(cell) for cell in row_cells(row)] for row in possible]
        yield from aligned([HEADINGS, *lines])
        yield from _notes(group)
        yield ""


def _by_temperature(rows: Sequence[Row]) -> dict[float, list[Row]]:
    groups: dict[float, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.temperature].append(row)
    return groups


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield why rows of one temperature are left out, or were not measured."""
    left_out = [row for row in rows if row.status == "left out"]
    for note in dict.fromkeys(row.note for row in left_out):
        yield f"  left out: {note}"
    predicted = [row for row in rows if row.status == "predicted"]
    for note in dict.fromkeys(row.note for row in predicted):
        labels = "; ".join(row.configuration.label for row in predicted if row.note == note)
        yield f"  predicted only, {note}: {labels}"


def _shown(cell: Cell) -> str:
    if cell.is_guess and cell.text != "–":
        return f"~{cell.text}"
    return cell.text


def lines_of(result: SweepResult) -> Iterator[str]:
    """Yield the recommendations with their reasons, their doubts and the settings to paste."""
    for advice in result.recommendations:
        yield f"at temperature {advice.temperature:g}: {advice.headline}"
        yield from (f"  {reason}" for reason in advice.reasons)
        if advice.doubt:
            yield f"  doubt: {advice.doubt}"
        for settings in advice.settings:
            yield f"  {settings.engine} ({settings.version})"
            yield from (f"    {line}" for line in settings.text.splitlines())
            if settings.note:
                yield f"    {settings.note}"
        yield ""
    if result.machine is not None:
        yield _machine_line(result.machine)
    yield from result.notes
    if result.stopped:
        yield "The sweep was stopped: these are the results so far."
    if result.link:
        yield f"on the page: {PAGE}{result.link}"


def _machine_line(machine: Machine) -> str:
    draft = machine.draft or "no draft model"
    torch = machine.versions.get("torch", "")
    return (
        f"{machine.target} with {draft} on {machine.processor}, {machine.device}, "
        f"{machine.dtype}, {machine.form} passes, threads: {machine.threads}, torch {torch}, "
        f"{machine.date}"
    )


def sweep_csv(result: SweepResult) -> str:
    """Write the rows as a table, one line for each; cells of unknown values are empty."""
    rows = [[_csv_value(row, path) for path in COLUMNS.values()] for row in result.rows]
    return csv_text(list(COLUMNS), rows)


def _csv_value(row: Row, path: str) -> Any:
    value = value_at(row, path)
    if isinstance(value, str):
        return harmless(value)
    return value


def sweep_json(result: SweepResult) -> str:
    """Write the whole result, as `SweepResult.to_dict` has it."""
    return json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n"


def sweep_html(result: SweepResult) -> str:
    """Write a page with the recommendations, the table and the charts. It needs no network."""
    head = "".join(f"<th>{html.escape(heading)}" for heading in HEADINGS)
    body = "".join(_html_row(row) for row in result.rows)
    advice = html.escape("\n".join(lines_of(result)))
    intro = f"<pre>{advice}</pre><table><tr>{head}</tr>{body}</table>"
    notes: list[str] = []
    for group in _by_temperature(result.rows).values():
        notes += _notes(group)
    if notes:
        text = html.escape("\n".join(notes))
        intro += f"<pre>{text}</pre>"
    charts = {theme: exported_specs(result, theme) for theme in PALETTE}
    return charts_page("The best drafter and gamma", intro, charts)


def _html_row(row: Row) -> str:
    cells = "".join(f"<td>{_html_cell(cell)}" for cell in row_cells(row))
    return f'<tr class="{row.mark or ""}" title="{html.escape(row.note)}">{cells}'


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    if cell.is_guess:
        return f"<i>{text}</i>"
    return text


WRITERS = {".csv": sweep_csv, ".json": sweep_json, ".html": sweep_html}


def checked_out(out: str) -> Path:
    """Check the path of --out. Raises `SpecvizError` if it cannot be written."""
    path = Path(out)
    is_file = path.suffix.lower() in WRITERS
    if not is_file and (path.suffix or path.is_file()):
        raise SettingsError(
            f"--out is {out}: use a folder, or a file that ends in .csv, .json or .html."
        )
    check_writable(path, folder=not is_file)
    return path


def write_sweep(result: SweepResult, path: Path) -> list[Path]:
    """Write the result to a file in the form of its suffix, or in all forms into a folder; returns
    the written paths. Raises `TraceError` if a file cannot be written."""
    paths = [path]
    if path.suffix.lower() not in WRITERS:
        path.mkdir(parents=True, exist_ok=True)
        paths = [path / f"sweep{suffix}" for suffix in WRITERS]
    for written in paths:
        write = WRITERS[written.suffix.lower()]
        write_atomically(written, write(result).encode("utf-8"))
    return paths

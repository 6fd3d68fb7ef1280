"""A sweep as text for a terminal, and as files: CSV, JSON, and a page that opens from disk."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import SettingsError
from ...options import check_writable
from ...pairs.memory import shown_bytes
from ...runs.charts_page import charts_page
from ...runs.palette import PALETTE
from ...runs.tables import aligned, csv_text, harmless, shown_number
from ...runs.trace import write_atomically
from .figures import exported_specs
from .types import Row, SweepResult

PAGE = "http://127.0.0.1:7860/"
"""Where `python -m specviz page` serves the page by default."""

COLUMNS = {
    **{name: f"configuration.{name}" for name in ("drafter", "gamma", "policy", "temperature")},
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
    **{f"{part}_ms": f"measured.times.{part}" for part in ("draft", "verify", "overhead", "alone")},
    "memory_bytes": "memory",
    "busy_runs": "measured.doubts",
    "note": "note",
}
"""The columns of the CSV, each with the value of a row that stands in it. Rates are tokens per
second, times milliseconds per round, the ends of the speed-up those of its 95% interval."""

HEADS = (
    *("row", "", "speed-up", "predicted", "tokens/s", "alone", "alpha", "by position"),
    *("efficiency", "tau", "predicted", "c", "memory", "runs"),
)
STATES = {"eliminated": "slower", "measured": "behind"}
MARKS = {"best": "best", "tied": "as good", "open": "may be better"}
MOST_POSITIONS = 4  # that the table shows


def value_at(row: Row, path: str) -> Any:
    """The value of a row under these names, from the outside in; None where nothing is known."""
    found: Any = row
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as a table of fixed columns, the temperatures one after another."""
    for temperature in dict.fromkeys(row.configuration.temperature for row in rows):
        group = [row for row in rows if row.configuration.temperature == temperature]
        yield f"temperature {temperature:g}"
        yield from aligned([HEADS, *(cells(row) for row in group if row.status != "left out")])
        for note in dict.fromkeys(row.note for row in group if row.note):
            yield f"  left out: {note}"
        yield ""


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row, in the order of `HEADS`; a dash where nothing is known."""

    def number(path: str, places: int = 2) -> str:
        return shown_number(value_at(row, path), places)

    state = MARKS[row.mark] if row.mark else STATES.get(row.status, row.status)
    speedup = row.speedup.shown() if row.speedup else "too short"
    alphas = [shown_number(alpha, 2) for alpha in value_at(row, "known.alpha_by_position") or ()]
    more = ["…"] if len(alphas) > MOST_POSITIONS else []
    return (
        row.configuration.label,
        state,
        speedup if row.measured else "–",
        number("predicted.speedup"),
        row.measured.rate.shown(0) if row.measured else "–",
        number("measured.alone_rate.median", 0),
        number("known.alpha"),
        " ".join([*alphas[:MOST_POSITIONS], *more]) or "–",
        number("known.efficiency"),
        number("measured.tau"),
        number("predicted.tau" if row.predicted else "measured.tau_predicted"),
        number("measured.c", 3),
        shown_bytes(row.memory) if row.memory is not None else "–",
        str(value_at(row, "measured.runs") or 0),
    )


def lines_of(result: SweepResult) -> Iterator[str]:
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
    if result.link:
        yield f"on the page: {PAGE}{result.link}"


def sweep_csv(result: SweepResult) -> str:
    """The rows as a table, one line for each; empty cells where nothing is known."""
    values = ([value_at(row, path) for path in COLUMNS.values()] for row in result.rows)
    texts = ([harmless(one) if isinstance(one, str) else one for one in row] for row in values)
    return csv_text(list(COLUMNS), texts)


def sweep_json(result: SweepResult) -> str:
    """The whole result, as `SweepResult.to_dict` describes it."""
    return json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n"


def sweep_html(result: SweepResult) -> str:
    """A page with the recommendations, the table and the charts. It needs no network."""
    head = "".join(f"<th>{html.escape(name)}" for name in HEADS)
    body = "".join(
        f'<tr class="{row.mark or ""}">' + "".join(f"<td>{html.escape(one)}" for one in cells(row))
        for row in result.rows
    )
    advice = html.escape("\n".join(lines_of(result)))
    charts = {theme: exported_specs(result, theme) for theme in PALETTE}
    intro = f"<pre>{advice}</pre><table><tr>{head}</tr>{body}</table>"
    return charts_page("Which drafter, which gamma", intro, charts)


WRITERS = {".csv": sweep_csv, ".json": sweep_json, ".html": sweep_html}


def checked_out(out: str) -> Path:
    """The path of --out. Raises `SpecvizError` if nothing could be written there."""
    path = Path(out)
    is_file = path.suffix.lower() in WRITERS
    if not is_file and (path.suffix or path.is_file()):
        raise SettingsError(f"--out is {out}: name a folder, or a file in .csv, .json or .html.")
    check_writable(path, folder=not is_file)
    return path


def write_sweep(result: SweepResult, path: Path) -> list[Path]:
    """Write the result to a file in the form of its suffix, or in all forms into a folder; returns
    what was written. Raises `TraceError` if it cannot be."""
    paths = [path]
    if path.suffix.lower() not in WRITERS:
        path.mkdir(parents=True, exist_ok=True)
        paths = [path / f"sweep{suffix}" for suffix in WRITERS]
    for one in paths:
        write_atomically(one, WRITERS[one.suffix.lower()](result).encode("utf-8"))
    return paths

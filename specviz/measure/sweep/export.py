"""A sweep as text for a terminal, and as files: CSV, JSON, and a page that opens from disk."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ...errors import SettingsError
from ...pairs.sizes import shown_bytes
from ...runs.tables import csv_text, harmless
from ...runs.trace import write_atomically
from ...runs.words import shown_number
from ..tables import aligned
from .advice import PAGE
from .figures import TITLES, figure_specs
from .types import Measured, Progress, Row, SweepResult

COLUMNS = (
    *("drafter", "gamma", "policy", "temperature", "status", "mark", "runs", "prompts"),
    *("tokens_per_second", "tokens_per_second_low", "tokens_per_second_high"),
    *("alone_tokens_per_second", "speedup", "speedup_low", "speedup_high"),
    *("speedup_predicted", "alpha", "alpha_predicted", "efficiency", "tau"),
    *("tau_predicted_by_alpha", "tau_predicted", "prediction_exact", "c", "drafted_per_round"),
    *("draft_ms", "verify_ms", "overhead_ms", "alone_ms", "memory_bytes", "busy_runs", "note"),
)
SUFFIXES = (".csv", ".json", ".html")


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
        yield from aligned(grid)
        for note in dict.fromkeys(row.note for row in group if row.note):
            yield f"  left out: {note}"
        yield ""


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row, in the order of `HEADS`; a dash where nothing is known."""
    m, p = row.measured, row.predicted
    known = m or p
    state = MARKS[row.mark]
    if m is None:
        state = state or ("predicted" if p else row.status)
        rates = ("–", shown_number(p.speedup if p else None, 2), "–", "–")
    else:
        state = state or ("slower" if row.status == "eliminated" else "behind")
        speedup = m.speedup.shown() if m.speedup else "too short"
        alone = shown_number(m.alone_rate.median, 0)
        rates = (speedup, shown_number(p.speedup if p else None, 2), m.rate.shown(0), alone)
    tau_predicted = p.tau if p else m.tau_predicted if m else None
    return (
        *(row.configuration.label, state, *rates),
        shown_number(known.alpha if known else None, 2),
        _positions(known.alpha_by_position) if known else "–",
        shown_number(known.efficiency if known else None, 2),
        *(shown_number(m.tau if m else None, 2), shown_number(tau_predicted, 2)),
        shown_number(m.c if m else None, 3),
        shown_bytes(row.memory) if row.memory is not None else "–",
        str(m.runs if m else 0),
    )


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


def sweep_csv(result: SweepResult) -> str:
    """The rows as a table, one line for each; empty cells where nothing is known. Rates are tokens
    per second, times milliseconds per round, the ends of the speed-up those of its 95% interval."""
    return csv_text(COLUMNS, map(_csv_cells, result.rows))


def sweep_json(result: SweepResult) -> str:
    """The whole result, as `SweepResult.to_dict` describes it."""
    return json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n"


def sweep_html(result: SweepResult) -> str:
    """A page with the recommendations, the table and the charts. It needs no network."""
    figures = "".join(
        f"<section><h2>{html.escape(TITLES[name])}</h2>{_figure(spec, name)}</section>"
        for name, spec in figure_specs(result, "light").items()
    )
    advice = "\n".join(line for line in recommendation_lines(result))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>A sweep</title>'
        f"<style>{STYLE}</style><h1>Which drafter, which gamma</h1>"
        f"<pre>{html.escape(advice)}</pre>{_table(result)}"
        f"<script>{get_plotlyjs()}</script>{figures}</html>\n"
    )


WRITERS = {".csv": sweep_csv, ".json": sweep_json, ".html": sweep_html}


def checked_out(out: str) -> Path:
    """The path of --out. Raises `SettingsError` if nothing could be written there."""
    path = Path(out)
    if path.suffix.lower() in SUFFIXES:
        if not path.absolute().parent.is_dir():
            raise SettingsError(f"there is no folder for {out}: make it first.")
    elif path.suffix or path.is_file():
        raise SettingsError(f"--out is {out}: name a folder, or a file in .csv, .json or .html.")
    return path


def write_sweep(result: SweepResult, path: Path) -> list[Path]:
    """Write the result to a file in the form of its suffix, or in all forms into a folder; returns
    what was written. Raises `TraceError` if it cannot be."""
    paths = [path]
    if path.suffix.lower() not in SUFFIXES:
        path.mkdir(parents=True, exist_ok=True)
        paths = [path / f"sweep{suffix}" for suffix in SUFFIXES]
    for one in paths:
        write_atomically(one, WRITERS[one.suffix.lower()](result).encode("utf-8"))
    return paths


def page_address(result: SweepResult) -> str:
    """The address of the local page with the recommended row set, or empty."""
    return PAGE + result.link if result.link else ""


def _csv_cells(row: Row) -> list[object]:
    one, p = row.configuration, row.predicted
    known: dict[str, object] = {
        "drafter": one.drafter,
        "gamma": one.gamma,
        "policy": one.policy,
        "temperature": one.temperature,
        "status": row.status,
        "mark": row.mark,
        "memory_bytes": row.memory,
        "note": harmless(row.note),
    }
    if p is not None:
        known |= {
            "speedup_predicted": p.speedup,
            "alpha_predicted": p.alpha,
            "tau_predicted": p.tau,
            "prediction_exact": p.exact,
        }
    if row.measured is not None:
        known |= _measured_cells(row.measured)
    return [known.get(name) for name in COLUMNS]


def _measured_cells(m: Measured) -> dict[str, object]:
    same = ("runs", "prompts", "alpha", "efficiency", "tau", "c")
    known: dict[str, object] = {name: getattr(m, name) for name in same}
    if m.speedup is not None:
        known |= {
            "speedup": m.speedup.value,
            "speedup_low": m.speedup.low,
            "speedup_high": m.speedup.high,
        }
    times = {f"{part}_ms": value for part, value in m.times.to_dict().items()}
    return {
        **known,
        **times,
        "tokens_per_second": m.rate.median,
        "tokens_per_second_low": m.rate.low,
        "tokens_per_second_high": m.rate.high,
        "alone_tokens_per_second": m.alone_rate.median,
        "tau_predicted_by_alpha": m.tau_predicted,
        "drafted_per_round": m.drafted,
        "busy_runs": m.doubts,
    }


def _table(result: SweepResult) -> str:
    head = "".join(f"<th>{html.escape(name)}" for name in HEADS)
    body = "".join(_html_row(row) for row in result.rows)
    return f"<table><tr>{head}{body}</table>"


def _html_row(row: Row) -> str:
    kind = f' class="{row.mark}"' if row.mark else ""
    return f"<tr{kind}>" + "".join(f"<td>{html.escape(cell)}" for cell in cells(row))


def _figure(spec: dict[str, object], name: str) -> str:
    text: str = go.Figure(spec).to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"sweep-{name}",
        config={"displayModeBar": False},
    )
    return text


def lines_of(result: SweepResult) -> Iterator[str]:
    """What `sweep` prints at its end besides the table."""
    yield from recommendation_lines(result)
    address = page_address(result)
    if address:
        yield f"on the page: {address}"


STYLE = (
    "body{font:16px system-ui,sans-serif;max-width:90rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;background:#f8f9fa;padding:1rem}table{border-collapse:collapse;font-size:.85rem;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .5rem;text-align:right;white-space:nowrap;border-bottom:1px solid #e3e6ea}"
    "td:first-child,th:first-child{text-align:left}.best{font-weight:700}"
)

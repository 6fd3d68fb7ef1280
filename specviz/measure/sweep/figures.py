"""The charts of a sweep, as JSON for Plotly: for the page, for Python and for exported files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...runs.charts import FONT, PALETTE
from .types import Row, SweepResult

TITLES = {
    "speedup": "Speed-up against γ",
    "positions": "α by position",
    "kinds": "Speed-up by kind of prompt",
    "parts": "Where a round's time goes",
}
"""The titles of the charts by name, in their order."""

DASHES = ("solid", "dot", "dash", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
INKS = ("accepted", "rejected", "bonus", "corrected", "ink")  # one for each drafter

Spec = dict[str, Any]
"""A Plotly figure: {"data": [...], "layout": {...}}."""


def figure_specs(result: SweepResult, theme: str = "light") -> dict[str, Spec]:
    """The charts by name. theme: "light" or "dark". They show what is known of a sweep so far."""
    makers = {"speedup": _speedup, "positions": _positions, "kinds": _kinds, "parts": _parts}
    axes = {
        "speedup": ("γ, guesses per round", "times as fast as the target alone"),
        "positions": ("place in the draft", "α"),
        "kinds": ("", "times as fast as the target alone"),
        "parts": ("ms per round", ""),
    }
    return {
        name: {
            "data": list(make(result.rows, PALETTE[theme])),
            "layout": _layout(name, axes[name], result, PALETTE[theme]),
        }
        for name, make in makers.items()
    }


def _series(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], int, int]]:
    """The fixed rows of each drafter and temperature, with the numbers of both."""
    fixed = [row for row in rows if row.configuration.policy == "fixed"]
    drafters = list(dict.fromkeys(row.configuration.drafter for row in rows))
    temperatures = list(dict.fromkeys(row.configuration.temperature for row in rows))
    for i, drafter in enumerate(drafters):
        for j, temperature in enumerate(temperatures):
            own = [
                row
                for row in fixed
                if (row.configuration.drafter, row.configuration.temperature)
                == (drafter, temperature)
            ]
            name = drafter if len(temperatures) == 1 else f"{drafter}, T {temperature:g}"
            if own:
                yield name, own, i, j


def _speedup(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, own, i, j in _series(rows):
        colour, dash = ink[INKS[i % len(INKS)]], DASHES[j % len(DASHES)]
        known = [
            (r.configuration.gamma, r.predicted.speedup)
            for r in own
            if r.predicted is not None and r.predicted.speedup is not None
        ]
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name}, predicted",
            "x": [gamma for gamma, _ in known],
            "y": [speed for _, speed in known],
            "line": {"color": colour, "width": 2, "dash": "dot" if j == 0 else dash},
            "hovertemplate": "%{y:.2f} predicted<extra>" + name + "</extra>",
        }
        yield _points(name, own, colour, SYMBOLS[j % len(SYMBOLS)])


def _points(name: str, own: Sequence[Row], colour: str, symbol: str) -> Spec:
    known = [
        (row, row.measured.speedup)
        for row in own
        if row.measured is not None and row.measured.speedup is not None
    ]
    found = [estimate for _, estimate in known]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}, measured",
        "x": [row.configuration.gamma for row, _ in known],
        "y": [one.value for one in found],
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": [13 if row.mark == "best" else 9 for row, _ in known],
        },
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(one.high or one.value) - one.value for one in found],
            "arrayminus": [one.value - (one.low or one.value) for one in found],
            "color": colour,
            "thickness": 1.5,
        },
        "hovertemplate": "%{y:.2f} measured<extra>" + name + "</extra>",
    }


def _positions(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, own, i, j in _series(rows):
        longest = max(own, key=lambda row: row.configuration.gamma)
        figures = longest.measured or longest.predicted
        alphas = figures.alpha_by_position if figures else ()
        known = [(place, alpha) for place, alpha in enumerate(alphas, 1) if alpha is not None]
        yield {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [place for place, _ in known],
            "y": [alpha for _, alpha in known],
            "line": {"color": ink[INKS[i % len(INKS)]], "dash": DASHES[j % len(DASHES)]},
            "hovertemplate": "%{y:.2f}<extra>" + name + "</extra>",
        }


def _leaders(rows: Sequence[Row]) -> list[tuple[Row, int]]:
    """The fastest measured row of each drafter and temperature, with the drafter's number."""
    best: dict[tuple[str, float], tuple[float, Row]] = {}
    for row in rows:
        found = row.measured.speedup if row.measured else None
        key = (row.configuration.drafter, row.configuration.temperature)
        if found is not None and found.value > best.get(key, (0.0, row))[0]:
            best[key] = found.value, row
    drafters = list(dict.fromkeys(row.configuration.drafter for row in rows))
    return [(row, drafters.index(row.configuration.drafter)) for _, row in best.values()]


def _title(row: Row, rows: Sequence[Row]) -> str:
    several = len({one.configuration.temperature for one in rows}) > 1
    tail = f", T {row.configuration.temperature:g}" if several else ""
    return row.configuration.label + tail


def _kinds(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for row, i in _leaders(rows):
        found = row.measured.by_kind if row.measured else {}
        yield {
            "type": "bar",
            "name": _title(row, rows),
            "x": list(found),
            "y": [one.value for one in found.values()],
            "marker": {"color": ink[INKS[i % len(INKS)]]},
            "hovertemplate": "%{y:.2f} on %{x}<extra></extra>",
        }


def _parts(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    leaders = [row for row, _ in _leaders(rows)]
    names = [_title(row, rows) for row in leaders]
    times = [row.measured.times for row in leaders if row.measured]
    alone = [sum(one.alone for one in times) / len(times)] if times else []
    colours = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
    for part, colour in colours.items():
        own = [getattr(one, part) for one in times]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": part,
            "y": [*names, *(["the target alone"] if alone else [])],
            "x": [*own, *([alone[0] if part == "verify" else 0.0] if alone else [])],
            "marker": {"color": colour},
            "hovertemplate": "%{x:.2f} ms<extra>" + part + "</extra>",
        }


def _layout(
    name: str, titles: tuple[str, str], result: SweepResult, ink: dict[str, str]
) -> dict[str, Any]:
    axis = {
        "color": ink["soft"],
        "gridcolor": ink["line"],
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
    }
    x, y = ({**axis, "title": {"text": text, "standoff": 6}} for text in titles)
    if name == "speedup":
        gammas = sorted({row.configuration.gamma for row in result.rows})
        x |= {"tickvals": gammas, "showgrid": False}
    if name in ("speedup", "kinds"):
        y["rangemode"] = "tozero"
    if name == "positions":
        x["dtick"], y["range"] = 1, [0, 1.04]
    even = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "line": {"color": ink["soft"], "width": 1, "dash": "dash"},
    }
    note = {
        "xref": "paper",
        "x": 1,
        "y": 1,
        "text": "break-even",
        "showarrow": False,
        "xanchor": "right",
        "yanchor": "bottom",
        "font": {"color": ink["soft"], "size": 11},
    }
    shown = name in ("speedup", "kinds")
    return {
        "font": {"family": FONT, "size": 12, "color": ink["ink"]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
        "barmode": "stack" if name == "parts" else "group",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "dragmode": False,
        "shapes": [even] if shown else [],
        "annotations": [note] if shown else [],
        "xaxis": x,
        "yaxis": y,
    }

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

FASTER = "times as fast as the target alone"
AXES = {
    "speedup": ("γ, guesses per round", FASTER),
    "positions": ("place in the draft", "α"),
    "kinds": ("", FASTER),
    "parts": ("ms per round", ""),
}
DASHES = ("solid", "dot", "dash", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
INKS = ("accepted", "rejected", "bonus", "corrected", "ink", "soft")  # one for each drafter

Spec = dict[str, Any]
"""A Plotly figure: {"data": [...], "layout": {...}}."""


def figure_specs(result: SweepResult, theme: str = "light") -> dict[str, Spec]:
    """The charts by name. theme: "light" or "dark". They show what is known of a sweep so far."""
    ink = PALETTE[theme]
    makers = {"speedup": _speedup, "positions": _positions, "kinds": _kinds, "parts": _parts}
    return {
        name: {"data": list(make(result.rows, ink)), "layout": _layout(name, result, ink)}
        for name, make in makers.items()
    }


def _chart(kind: str, name: str, points: Sequence[tuple[Any, Any]], **style: Any) -> Spec:
    """One trace of Plotly: its points, x and y, and its style."""
    x, y = [one for one, _ in points], [one for _, one in points]
    return {"type": kind, "name": name, "x": x, "y": y, **style}


def _series(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], int, int]]:
    """The fixed rows of each drafter and temperature, with the numbers of both."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        own = groups.setdefault((row.configuration.drafter, row.configuration.temperature), [])
        own += [row] if row.configuration.policy == "fixed" else []
    drafters = list(dict.fromkeys(drafter for drafter, _ in groups))
    temperatures = list(dict.fromkeys(row.configuration.temperature for row in rows))
    place = {key: (drafters.index(key[0]), temperatures.index(key[1])) for key in groups}
    for (drafter, temperature), (i, j) in sorted(place.items(), key=lambda item: item[1]):
        own = groups[drafter, temperature]
        name = drafter if len(temperatures) == 1 else f"{drafter}, T {temperature:g}"
        if own:
            yield name, own, i, j


def _speedup(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, own, i, j in _series(rows):
        colour, dash = ink[INKS[i % len(INKS)]], DASHES[j % len(DASHES)] if j else "dot"
        known = [
            (row.configuration.gamma, row.predicted.speedup)
            for row in own
            if row.predicted is not None and row.predicted.speedup is not None
        ]
        yield _chart(
            "scatter",
            f"{name}, predicted",
            known,
            mode="lines",
            line={"color": colour, "width": 2, "dash": dash},
            hovertemplate="%{y:.2f} predicted<extra>" + name + "</extra>",
        )
        measured = [
            (row, row.measured.speedup)
            for row in own
            if row.measured is not None and row.measured.speedup is not None
        ]
        found = [estimate for _, estimate in measured]
        yield _chart(
            "scatter",
            f"{name}, measured",
            [(row.configuration.gamma, estimate.value) for row, estimate in measured],
            mode="markers",
            marker={
                "color": colour,
                "symbol": SYMBOLS[j % len(SYMBOLS)],
                "size": [13 if row.mark == "best" else 9 for row, _ in measured],
            },
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [(one.high or one.value) - one.value for one in found],
                "arrayminus": [one.value - (one.low or one.value) for one in found],
                "color": colour,
                "thickness": 1.5,
            },
            hovertemplate="%{y:.2f} measured<extra>" + name + "</extra>",
        )


def _positions(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, own, i, j in _series(rows):
        longest = max(own, key=lambda row: row.configuration.gamma)
        figures = longest.measured or longest.predicted
        alphas = figures.alpha_by_position if figures else ()
        known = [(place, alpha) for place, alpha in enumerate(alphas, 1) if alpha is not None]
        line = {"color": ink[INKS[i % len(INKS)]], "dash": DASHES[j % len(DASHES)]}
        hover = "%{y:.2f}<extra>" + name + "</extra>"
        yield _chart("scatter", name, known, mode="lines+markers", line=line, hovertemplate=hover)


def _leaders(rows: Sequence[Row]) -> list[tuple[Row, str, int]]:
    """The fastest measured row of each drafter and temperature, with its name and the drafter's
    number."""
    best: dict[tuple[str, float], tuple[float, Row]] = {}
    for row in rows:
        found = row.measured.speedup if row.measured else None
        key = (row.configuration.drafter, row.configuration.temperature)
        if found is not None and found.value > best.get(key, (0.0, row))[0]:
            best[key] = found.value, row
    drafters = list(dict.fromkeys(row.configuration.drafter for row in rows))
    several = len({one.configuration.temperature for one in rows}) > 1
    return [
        (row, row.configuration.label + (f", T {t:g}" if several else ""), drafters.index(drafter))
        for (drafter, t), (_, row) in best.items()
    ]


def _kinds(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for row, name, i in _leaders(rows):
        found = row.measured.by_kind if row.measured else {}
        points = [(kind, one.value) for kind, one in found.items()]
        marker, hover = {"color": ink[INKS[i % len(INKS)]]}, "%{y:.2f} on %{x}<extra></extra>"
        yield _chart("bar", name, points, marker=marker, hovertemplate=hover)


def _parts(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    times = {name: row.measured.times for row, name, _ in _leaders(rows) if row.measured}
    colours = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
    for part, colour in colours.items():
        points = [(getattr(one, part), name) for name, one in times.items()]
        if times:
            alone = sum(one.alone for one in times.values()) / len(times)
            points.append((alone if part == "verify" else 0.0, "the target alone"))
        hover = "%{x:.2f} ms<extra>" + part + "</extra>"
        style = {"orientation": "h", "marker": {"color": colour}, "hovertemplate": hover}
        yield _chart("bar", part, points, **style)


def _layout(name: str, result: SweepResult, ink: dict[str, str]) -> dict[str, Any]:
    axis = {"color": ink["soft"], "gridcolor": ink["line"], "zeroline": False}
    axis |= {"fixedrange": True, "automargin": True}
    x, y = ({**axis, "title": {"text": text, "standoff": 6}} for text in AXES[name])
    if name == "speedup":
        gammas = sorted({row.configuration.gamma for row in result.rows})
        x |= {"tickvals": gammas, "showgrid": False}
    if name == "positions":
        x["dtick"], y["range"] = 1, [0, 1.04]
    shapes, notes = [], []
    if name in ("speedup", "kinds"):
        y["rangemode"] = "tozero"
        line = {"color": ink["soft"], "width": 1, "dash": "dash"}
        shapes = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}
        ]
        at = {"xref": "paper", "x": 1, "y": 1, "xanchor": "right", "yanchor": "bottom"}
        font = {"color": ink["soft"], "size": 11}
        notes = [{**at, "text": "break-even", "showarrow": False, "font": font}]
    return {
        "font": {"family": FONT, "size": 12, "color": ink["ink"]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
        "barmode": "stack" if name == "parts" else "group",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "dragmode": False,
        "shapes": shapes,
        "annotations": notes,
        "xaxis": x,
        "yaxis": y,
    }

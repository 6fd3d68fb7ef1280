"""The charts of a sweep, as JSON for Plotly: for the page, for Python and for exported files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ...runs.charts import plain_axis, plain_layout
from ...runs.palette import PALETTE
from .types import Measured, Row, SweepResult

FASTER = "times as fast as the target alone"
CHARTS = {
    "speedup": ("Speed-up against γ", "γ, guesses per round", FASTER),
    "positions": ("α by position", "place in the draft", "α"),
    "kinds": ("Speed-up by kind of prompt", "", FASTER),
    "parts": ("Where a round's time goes", "ms per round", ""),
}
"""The title of each chart and those of its axes, in their order."""
TITLES = {name: title for name, (title, *_) in CHARTS.items()}
DASHES = ("solid", "dot", "dash", "dashdot")  # one for each temperature, as the symbols
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
INKS = ("accepted", "rejected", "bonus", "corrected", "ink", "soft")  # one for each drafter

Spec = dict[str, Any]
"""A Plotly figure: {"data": [...], "layout": {...}}, or a part of one."""


def figure_specs(result: SweepResult, theme: str = "light") -> dict[str, Spec]:
    """The charts by name. theme: "light" or "dark". They show what is known of a sweep so far."""
    ink, rows = PALETTE[theme], result.rows
    makers = {"speedup": _speedup, "positions": _positions, "kinds": _kinds, "parts": _parts}
    return {
        name: {"data": list(make(rows, ink)), "layout": _layout(name, rows, ink)}
        for name, make in makers.items()
    }


def exported_specs(result: SweepResult, theme: str) -> dict[str, Spec]:
    """`figure_specs` as figures that stand alone: with their titles, and their names below."""
    specs = figure_specs(result, theme)
    below = {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0}
    for name, spec in specs.items():
        layout = spec["layout"]
        layout["title"] = {"text": TITLES[name], "x": 0.02, "font": {"size": 16}}
        layout["margin"] = {**layout["margin"], "t": 48}
        layout["legend"] = below
    return specs


def _chart(kind: str, name: str, points: Sequence[tuple[Any, Any]], **style: Any) -> Spec:
    """One trace of Plotly: its points, x and y, and its style."""
    x, y = [one for one, _ in points], [one for _, one in points]
    return {"type": kind, "name": name, "x": x, "y": y, **style}


def _groups(rows: Sequence[Row]) -> dict[tuple[int, int], list[Row]]:
    """The rows by the numbers of their drafter and of their temperature."""
    drafters = list(dict.fromkeys(row.configuration.drafter for row in rows))
    temperatures = list(dict.fromkeys(row.configuration.temperature for row in rows))
    groups = defaultdict(list)
    for row in rows:
        one = row.configuration
        groups[drafters.index(one.drafter), temperatures.index(one.temperature)].append(row)
    return groups


def _named(name: str, row: Row, rows: Sequence[Row]) -> str:
    """The name, with the temperature of the row if there are several."""
    several = len({one.configuration.temperature for one in rows}) > 1
    return f"{name}, T {row.configuration.temperature:g}" if several else name


def _series(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], int, int]]:
    """The fixed rows of each drafter and temperature, with the numbers of both."""
    for (i, j), group in sorted(_groups(rows).items()):
        own = [row for row in group if row.configuration.policy == "fixed"]
        if own:
            yield _named(own[0].configuration.drafter, own[0], rows), own, i, j


def _speedup(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, own, i, j in _series(rows):
        colour, dash = ink[INKS[i % len(INKS)]], DASHES[j % len(DASHES)] if j else "dot"
        promised = [row for row in own if row.promise is not None]
        yield _chart(
            "scatter",
            f"{name}, predicted",
            [(row.configuration.gamma, row.promise) for row in promised],
            mode="lines",
            line={"color": colour, "width": 2, "dash": dash},
            hovertemplate="%{y:.2f} predicted<extra>" + name + "</extra>",
        )
        found = [(row, row.speedup) for row in own if row.speedup is not None]
        yield _chart(
            "scatter",
            f"{name}, measured",
            [(row.configuration.gamma, one.value) for row, one in found],
            mode="markers",
            marker={
                "color": colour,
                "symbol": SYMBOLS[j % len(SYMBOLS)],
                "size": [13 if row.mark == "best" else 9 for row, _ in found],
            },
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [(one.high or one.value) - one.value for _, one in found],
                "arrayminus": [one.value - (one.low or one.value) for _, one in found],
                "color": colour,
                "thickness": 1.5,
            },
            hovertemplate="%{y:.2f} measured<extra>" + name + "</extra>",
        )


def _positions(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, own, i, j in _series(rows):
        longest = max(own, key=lambda row: row.configuration.gamma)
        alphas = longest.known.alpha_by_position if longest.known else ()
        known = [(place, alpha) for place, alpha in enumerate(alphas, 1) if alpha is not None]
        line = {"color": ink[INKS[i % len(INKS)]], "dash": DASHES[j % len(DASHES)]}
        hover = "%{y:.2f}<extra>" + name + "</extra>"
        yield _chart("scatter", name, known, mode="lines+markers", line=line, hovertemplate=hover)


def _leaders(rows: Sequence[Row]) -> Iterator[tuple[str, Measured, int]]:
    """The name of the fastest measured row of each drafter and temperature, what was measured, and
    the drafter's number."""
    for (i, _), own in _groups(rows).items():
        best = max(own, key=lambda row: row.speedup.value if row.speedup else 0.0)
        if best.measured and best.speedup:
            yield _named(best.configuration.label, best, rows), best.measured, i


def _kinds(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, measured, i in _leaders(rows):
        points = [(kind, one.value) for kind, one in measured.by_kind.items()]
        marker, hover = {"color": ink[INKS[i % len(INKS)]]}, "%{y:.2f} on %{x}<extra></extra>"
        yield _chart("bar", name, points, marker=marker, hovertemplate=hover)


def _parts(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    times = {name: measured.times for name, measured, _ in _leaders(rows)}
    colours = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
    for part, colour in colours.items():
        points = [(getattr(one, part), name) for name, one in times.items()]
        if times:
            alone = sum(one.alone for one in times.values()) / len(times)
            points.append((alone if part == "verify" else 0.0, "the target alone"))
        hover = "%{x:.2f} ms<extra>" + part + "</extra>"
        style = {"orientation": "h", "marker": {"color": colour}, "hovertemplate": hover}
        yield _chart("bar", part, points, **style)


def _layout(name: str, rows: Sequence[Row], ink: dict[str, str]) -> Spec:
    axis = {**plain_axis(ink), "automargin": True}
    x, y = ({**axis, "title": {"text": text, "standoff": 6}} for text in CHARTS[name][1:])
    if name == "speedup":
        gammas = sorted({row.configuration.gamma for row in rows})
        x |= {"tickvals": gammas, "showgrid": False}
    if name == "positions":
        x["dtick"], y["range"] = 1, [0, 1.04]
    lines: Spec = {"shapes": [], "annotations": []}
    if FASTER in CHARTS[name]:
        y["rangemode"] = "tozero"
        lines = _break_even(ink["soft"])
    return {
        **plain_layout(ink["ink"], 12),
        "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
        "barmode": "stack" if name == "parts" else "group",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        **lines,
        "xaxis": x,
        "yaxis": y,
    }


def _break_even(colour: str) -> Spec:
    line = {"color": colour, "width": 1, "dash": "dash"}
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}
    at = {"xref": "paper", "x": 1, "y": 1, "xanchor": "right", "yanchor": "bottom"}
    font = {"color": colour, "size": 11}
    words = {**at, "text": "break-even", "showarrow": False, "font": font}
    return {"shapes": [across], "annotations": [words]}

"""The charts of a sweep, as JSON for Plotly: for the page, for Python and for exported files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...core.registry import drafter_kind
from ...runs.charts import plain_axis, plain_layout
from ...runs.palette import PALETTE
from ...runs.uncertainty import Estimate
from .types import Measured, Row, SweepResult

FASTER = "times as fast as the target alone"


class ChartTitles(NamedTuple):
    """The titles of a chart and of its axes."""

    chart: str
    x: str
    y: str


CHARTS = {
    "speedup": ChartTitles(chart="Speed-up against γ", x="γ, guesses per round", y=FASTER),
    "positions": ChartTitles(chart="α by position", x="position in the draft", y="α"),
    "kinds": ChartTitles(chart="Speed-up by kind of prompt", x="", y=FASTER),
    "parts": ChartTitles(chart="Where a round's time goes", x="ms per round", y=""),
}
"""The charts by name, in their order."""
TITLES = {name: titles.chart for name, titles in CHARTS.items()}
DASHES = ("solid", "dot", "dash", "dashdot")  # one for each temperature, as the symbols
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
INKS = ("accepted", "rejected", "bonus", "corrected", "ink", "soft")  # one for each drafter

Spec = dict[str, Any]
"""A Plotly figure: {"data": [...], "layout": {...}}, or a part of one."""


def figure_specs(result: SweepResult, theme: str = "light") -> dict[str, Spec]:
    """Draw the charts of a sweep so far, by name. theme: "light" or "dark"."""
    ink = PALETTE[theme]
    rows = result.rows
    makers = {"speedup": _speedup, "positions": _positions, "kinds": _kinds, "parts": _parts}
    specs: dict[str, Spec] = {}
    for name, make in makers.items():
        traces = list(make(rows, ink))
        specs[name] = {"data": traces, "layout": _layout(name, rows, ink)}
    return specs


def exported_specs(result: SweepResult, theme: str) -> dict[str, Spec]:
    """Draw `figure_specs` as figures that stand alone, with titles, and the legend below."""
    specs = figure_specs(result, theme)
    below = {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0}
    for name, spec in specs.items():
        layout = spec["layout"]
        layout["title"] = {"text": TITLES[name], "x": 0.02, "font": {"size": 16}}
        layout["margin"]["t"] = 48
        layout["legend"] = below
    return specs


def _chart(kind: str, name: str, points: Sequence[tuple[Any, Any]], **style: Any) -> Spec:
    """Make one trace of Plotly from points, x and y, and its style."""
    return {
        "type": kind,
        "name": name,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        **style,
    }


def _groups(rows: Sequence[Row]) -> dict[tuple[int, int], list[Row]]:
    """Group rows by the indices of their drafter and of their temperature."""
    drafters = list(dict.fromkeys(row.drafter for row in rows))
    temperatures = list(dict.fromkeys(row.temperature for row in rows))
    groups = defaultdict(list)
    for row in rows:
        drafter = drafters.index(row.drafter)
        temperature = temperatures.index(row.temperature)
        groups[drafter, temperature].append(row)
    return groups


def _named(name: str, row: Row, rows: Sequence[Row]) -> str:
    """Append the temperature of the row to the name if there are several."""
    temperatures = {row.temperature for row in rows}
    if len(temperatures) == 1:
        return name
    return f"{name}, T {row.temperature:g}"


class Series(NamedTuple):
    """The fixed rows of one drafter and temperature, with the indices of both, which choose colour
    and symbol."""

    name: str
    rows: list[Row]
    drafter: int
    temperature: int


def _series(rows: Sequence[Row]) -> Iterator[Series]:
    for (drafter, temperature), group in sorted(_groups(rows).items()):
        fixed = [row for row in group if row.configuration.policy == "fixed"]
        if fixed:
            choice = drafter_kind(fixed[0].drafter).choice
            yield Series(
                name=_named(choice, fixed[0], rows),
                rows=fixed,
                drafter=drafter,
                temperature=temperature,
            )


def _colour_of(drafter: int, ink: dict[str, str]) -> str:
    return ink[INKS[drafter % len(INKS)]]


def _speedup(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for series in _series(rows):
        colour = _colour_of(series.drafter, ink)
        yield from _predicted_line(series, colour)
        yield from _measured_points(series, colour)


def _predicted_line(series: Series, colour: str) -> Iterator[Spec]:
    """The predicted speed-ups of a series, if it has some."""
    points = []
    for row in series.rows:
        if row.promise is not None:
            points.append((row.configuration.gamma, row.promise))
    if not points:
        return
    dash = "dot"
    if series.temperature:
        dash = DASHES[series.temperature % len(DASHES)]
    yield _chart(
        "scatter",
        f"{series.name}, predicted",
        points,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        hovertemplate="%{y:.2f} predicted<extra>" + series.name + "</extra>",
    )


def _measured_points(series: Series, colour: str) -> Iterator[Spec]:
    """The measured speed-ups of a series with their intervals, if it has some."""
    points = []
    sizes = []
    speedups = []
    for row in series.rows:
        if row.speedup is not None:
            points.append((row.configuration.gamma, row.speedup.value))
            sizes.append(_marker_size(row))
            speedups.append(row.speedup)
    if not points:
        return
    yield _chart(
        "scatter",
        f"{series.name}, measured",
        points,
        mode="markers",
        marker={
            "color": colour,
            "symbol": SYMBOLS[series.temperature % len(SYMBOLS)],
            "size": sizes,
        },
        error_y=_error_bars(speedups, colour),
        hovertemplate="%{y:.2f} measured<extra>" + series.name + "</extra>",
    )


def _marker_size(row: Row) -> int:
    """Pixels."""
    if row.mark == "best":
        return 13
    return 9


def _error_bars(speedups: Sequence[Estimate], colour: str) -> Spec:
    """The intervals of speed-ups, as error bars."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [(speedup.high or speedup.value) - speedup.value for speedup in speedups],
        "arrayminus": [speedup.value - (speedup.low or speedup.value) for speedup in speedups],
        "color": colour,
        "thickness": 1.5,
    }


def _positions(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for series in _series(rows):
        longest = max(series.rows, key=lambda row: row.configuration.gamma)
        points: list[tuple[int, float]] = []
        if longest.known is not None:
            for position, alpha in enumerate(longest.known.alpha_by_position, 1):
                if alpha is not None:
                    points.append((position, alpha))
        yield _chart(
            "scatter",
            series.name,
            points,
            mode="lines+markers",
            line={
                "color": _colour_of(series.drafter, ink),
                "dash": DASHES[series.temperature % len(DASHES)],
            },
            hovertemplate="%{y:.2f}<extra>" + series.name + "</extra>",
        )


def _leaders(rows: Sequence[Row]) -> Iterator[tuple[str, Measured, int]]:
    """The best measured row of each drafter and temperature: its name, its figures, and the
    drafter's index."""
    for (drafter, _), group in _groups(rows).items():
        best = max(group, key=_rank)
        if best.measured and best.speedup:
            name = _named(best.configuration.name, best, rows)
            yield name, best.measured, drafter


def _rank(row: Row) -> tuple[bool, int, float]:
    """The sort key for the best row of a drafter: more prompts are better evidence."""
    if row.measured is None or row.speedup is None:
        return (False, 0, 0.0)
    return (row.mark == "best", row.measured.prompts, row.speedup.value)


def _kinds(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    for name, measured, drafter in _leaders(rows):
        yield _chart(
            "bar",
            name,
            [(kind, speedup.value) for kind, speedup in measured.by_kind.items()],
            marker={"color": _colour_of(drafter, ink)},
            hovertemplate="%{y:.2f} on %{x}<extra></extra>",
        )


def _parts(rows: Sequence[Row], ink: dict[str, str]) -> Iterator[Spec]:
    times_by_row = {name: measured.times for name, measured, _ in _leaders(rows)}
    colours = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
    for part, colour in colours.items():
        points = [(getattr(times, part), name) for name, times in times_by_row.items()]
        if times_by_row:
            alone = 0.0
            if part == "verify":
                alone = sum(times.alone for times in times_by_row.values()) / len(times_by_row)
            points.append((alone, "the target alone"))
        yield _chart(
            "bar",
            part,
            points,
            orientation="h",
            marker={"color": colour},
            hovertemplate="%{x:.2f} ms<extra>" + part + "</extra>",
        )


def _layout(name: str, rows: Sequence[Row], ink: dict[str, str]) -> Spec:
    titles = CHARTS[name]
    x = _axis(titles.x, ink)
    y = _axis(titles.y, ink)
    if name == "speedup":
        gammas = sorted({row.configuration.gamma for row in rows})
        x["tickvals"] = gammas
        x["showgrid"] = False
    if name == "positions":
        x["dtick"] = 1
        y["range"] = [0, 1.04]
    barmode = "stack" if name == "parts" else "group"
    shapes: list[Spec] = []
    annotations: list[Spec] = []
    if titles.y == FASTER:
        y["rangemode"] = "tozero"
        shapes.append(_break_even_line(ink["soft"]))
        annotations.append(_break_even_label(ink["soft"]))
    return {
        **plain_layout(ink["ink"], 12),
        "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
        "barmode": barmode,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "shapes": shapes,
        "annotations": annotations,
        "xaxis": x,
        "yaxis": y,
    }


def _axis(title: str, ink: dict[str, str]) -> Spec:
    return {**plain_axis(ink), "automargin": True, "title": {"text": title, "standoff": 6}}


def _break_even_line(colour: str) -> Spec:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "line": {"color": colour, "width": 1, "dash": "dash"},
    }


def _break_even_label(colour: str) -> Spec:
    return {
        "xref": "paper",
        "x": 1,
        "y": 1,
        "xanchor": "right",
        "yanchor": "bottom",
        "text": "break-even",
        "showarrow": False,
        "font": {"color": colour, "size": 11},
    }

"""The charts of a run, as figures of Plotly: for the page, for Python and for exported files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.lanes import BASELINE, Lane, label_of
from .palette import FONT, PALETTE
from .series import Points, series

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from .trace import Trace

CHARTS: dict[str, str] = {
    "tokens": "Tokens against clock",
    "rates": "α and efficiency so far",
    "tau": "τ measured and predicted",
    "speed": "Tokens per second",
    "parts": "Where a round's time goes",
    "positions": "α by position",
    "requests": "A round’s request: ms by kB",
}
"""The titles of the charts by name, in the order of the page. The last one is only for runs with a
target on a server."""

SEVERAL = {"rates": "α so far", "tau": "τ so far"}
"""The titles of charts that show less of each lane where there are several."""

LANE_LINES = (
    ("accepted", "solid"),
    ("bonus", "dash"),
    ("corrected", "dashdot"),
    ("rejected", "longdash"),
    ("accepted", "dash"),
    ("bonus", "solid"),
    ("corrected", "longdash"),
    ("rejected", "dashdot"),
)
"""The colour of the palette and the dash of each speculative lane's line; the baseline's is always
the grey dotted one."""

PICTURE_FONT = "system-ui, sans-serif"
"""A saved picture of a chart cannot use the page's own font."""

MAX_NUMBERED = 16
"""Positions of a draft that are numbered one by one, each with its value over its bar."""

ALL_LANES = ""
"""In `all_figures`, the name of the charts of all lanes; no lane has this name."""

Spec = dict[str, Any]
"""A figure as JSON: `{"data": [...], "layout": {...}}`."""


def figures(trace: Trace, theme: str = "light", lane: Lane | None = None) -> dict[str, go.Figure]:
    """The charts of a run by name, in the order of `CHARTS`.

    theme: "light" or "dark". lane: show only this lane with drafts and the baseline.
    """
    lanes: Sequence[Lane] = trace.lanes
    if lane is not None:
        lanes = [name for name in lanes if name in (lane, BASELINE)]
    rounds = [r for r in trace.rounds if r.lane in lanes]
    drafted = [name for name in lanes if name != BASELINE]
    points = series(rounds, lanes)
    ink = PALETTE[theme]
    makers = {
        "tokens": _tokens,
        "rates": _rates,
        "tau": _tau,
        "speed": _speed,
        "parts": _parts,
        "positions": _positions,
        "requests": _requests,
    }
    if not any(r.exchanged for r in rounds):
        del makers["requests"]
    drawn = {}
    for name, draw in makers.items():
        figure = _empty_figure(_title(name, drafted), ink)
        draw(figure, points[name], lanes, ink)
        figure.update_layout(showlegend=len(figure.data) > 1)
        drawn[name] = figure
    return drawn


def all_figures(trace: Trace) -> dict[str, dict[str, dict[str, Spec]]]:
    """The charts as JSON by theme, lane and name. Where several lanes have drafts, each also has
    charts of its own with the baseline; those of all lanes are called `ALL_LANES`."""
    drafted = trace.header.speculative
    by_theme: dict[str, dict[str, dict[str, Spec]]] = {}
    for theme in PALETTE:
        views = {ALL_LANES: figures_as_json(trace, theme)}
        if len(drafted) > 1:
            for lane in drafted:
                views[lane] = figures_as_json(trace, theme, lane)
        by_theme[theme] = views
    return by_theme


def figures_as_json(trace: Trace, theme: str, lane: Lane | None = None) -> dict[str, Spec]:
    """`figures` as JSON."""
    drawn = figures(trace, theme, lane)
    return {name: figure.to_plotly_json() for name, figure in drawn.items()}


def figures_json(trace: Trace) -> str:
    """`all_figures` as text."""
    return json.dumps(all_figures(trace))


def _title(name: str, drafted: Sequence[Lane]) -> str:
    if len(drafted) > 1:
        return SEVERAL.get(name, CHARTS[name])
    return CHARTS[name]


def _empty_figure(title: str, ink: dict[str, str]) -> go.Figure:
    """The title, the font and the axes that all charts of a run have."""
    import plotly.graph_objects as go

    axis = {
        **plain_axis(ink),
        "nticks": 4,
        "title": {"standoff": 8, "font": {"size": 13}},
    }
    layout = {
        **plain_layout(ink["soft"], 13),
        "title": {"text": title, "x": 0.02, "font": {"size": 16, "color": ink["ink"]}},
        "margin": {"l": 60, "r": 24, "t": 78, "b": 52},
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
        },
        "font": {"family": PICTURE_FONT, "size": 13, "color": ink["soft"]},
        "paper_bgcolor": ink["page"],
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": ink["page"],
            "bordercolor": ink["line"],
            "font": {"family": FONT, "size": 12, "color": ink["ink"]},
        },
        "xaxis": {**axis, "showgrid": False},
        "yaxis": {**axis, "rangemode": "tozero"},
        "template": None,
    }
    return go.Figure(layout=layout)


def _tokens(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    _add_lanes(figure, points, lanes, lanes, ink, shape="hv")
    figure.update_xaxes(title_text="clock, s", rangemode="tozero")


def _rates(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    drafted = [lane for lane in lanes if lane != BASELINE]
    if len(drafted) == 1:
        alpha, efficiency = points
        _add_line(figure, alpha, "α", {"color": ink["accepted"], "dash": "solid"})
        _add_line(figure, efficiency, "efficiency", {"color": ink["bonus"], "dash": "dot"})
    else:
        _add_lanes(figure, points, drafted, lanes, ink)
    figure.update_xaxes(title_text="round", tickformat="d")
    figure.update_yaxes(range=[0, 1.04])


def _tau(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    drafted = [lane for lane in lanes if lane != BASELINE]
    if len(drafted) == 1:
        measured, predicted = points
        _add_line(figure, measured, "measured", {"color": ink["accepted"], "dash": "solid"})
        _add_line(figure, predicted, "predicted", {"color": ink["soft"], "dash": "dash"})
    else:
        _add_lanes(figure, points, drafted, lanes, ink)
    figure.update_xaxes(title_text="round", tickformat="d")


def _speed(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    _add_lanes(figure, points, lanes, lanes, ink)
    figure.update_xaxes(title_text="clock, s", rangemode="tozero")


def _parts(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    """Stacked bars, one for each lane."""
    parts = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
    if len(points) == 1:  # a watched server reports only the whole time of a step
        parts = {"a step": ink["accepted"]}
    for (part, colour), bars in zip(parts.items(), points, strict=True):
        figure.add_bar(
            **bars,
            name=part,
            orientation="h",
            marker={"color": colour, "line": {"width": 0}, "cornerradius": 2},
            hovertemplate=f"%{{x:.2f}} ms<extra>{part}</extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.32, hovermode="closest")
    figure.update_layout(margin_l=120)  # the names of lanes
    figure.update_xaxes(title_text="ms per round", rangemode="tozero", showgrid=True)
    figure.update_yaxes(showgrid=False)


def _positions(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    """Bars of one lane with drafts; of several, a line each."""
    drafted = [lane for lane in lanes if lane != BASELINE]
    values_over_bars = "%{y:.2f}"
    tick_distance = 1
    if any(len(line["x"]) > MAX_NUMBERED for line in points):
        values_over_bars = ""
        tick_distance = 8
    if len(drafted) == 1:
        figure.add_bar(
            **points[0],
            name="α",
            marker={"color": ink["accepted"], "line": {"width": 0}, "cornerradius": 2},
            texttemplate=values_over_bars,
            textfont={"size": 10},
            textposition="outside",
            textangle=0,
            cliponaxis=False,
            hovertemplate="%{y:.2f}<extra>α</extra>",
        )
    else:
        _add_lanes(figure, points, drafted, lanes, ink, mode="lines+markers")
    figure.update_layout(bargap=0.32, hovermode="closest")
    figure.update_layout(uniformtext={"mode": "hide", "minsize": 9})
    figure.update_xaxes(title_text="position in the draft", dtick=tick_distance)
    figure.update_yaxes(range=[0, 1.3])


def _requests(
    figure: go.Figure, points: Sequence[Points], lanes: Sequence[Lane], ink: dict[str, str]
) -> None:
    for lane, line in zip(lanes, points, strict=True):
        label = label_of(lane)
        colour = _look_of(lane, lanes, ink)["color"]
        figure.add_scatter(
            **line,
            name=label,
            mode="markers",
            marker={"color": colour, "size": 6, "opacity": 0.7},
            hovertemplate=f"%{{x:.3~s}} kB, %{{y:.0f}} ms<extra>{label}</extra>",
        )
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title_text="kB sent and received", rangemode="tozero")


def _add_lanes(
    figure: go.Figure,
    points: Sequence[Points],
    shown: Sequence[Lane],
    lanes: Sequence[Lane],
    ink: dict[str, str],
    **style: str,
) -> None:
    """Add a line for each shown lane, with its colour and dash among all lanes."""
    for lane, line in zip(shown, points, strict=True):
        look = _look_of(lane, lanes, ink)
        _add_line(figure, line, label_of(lane), look, **style)


def _add_line(
    figure: go.Figure,
    points: Points,
    label: str,
    look: dict[str, str],
    *,
    mode: str = "lines",
    shape: str = "linear",
) -> None:
    figure.add_scatter(
        **points,
        name=label,
        mode=mode,
        line={**look, "width": 2, "shape": shape},
        hovertemplate=f"%{{y:.3~f}}<extra>{label}</extra>",
    )


def _look_of(lane: Lane, lanes: Sequence[Lane], ink: dict[str, str]) -> dict[str, str]:
    """The colour and the dash of a lane's line."""
    if lane == BASELINE:
        return {"color": ink["soft"], "dash": "dot"}
    index = list(lanes).index(lane)
    colour, dash = LANE_LINES[index]
    return {"color": ink[colour], "dash": dash}


def plain_axis(ink: dict[str, str]) -> Spec:
    """The layout of an axis in all charts. ink: the palette of a theme."""
    return {"color": ink["soft"], "gridcolor": ink["line"], "zeroline": False}


def plain_layout(colour: str, size: int) -> Spec:
    """The common layout of all charts. colour, size: of the text."""
    return {
        "font": {"family": FONT, "size": size, "color": colour},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }

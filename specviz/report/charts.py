"""Plotly charts of a run, with the same style on the live page, in Python and in exported pages.

The page receives `chart_specs()` once: layouts and styles without data. In the browser it computes
the data itself, by the same definitions as `series()` here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ..theory import predicted_tau
from ..trace import LANE_LABELS, LANES, Lane, Round, Trace

PALETTE: dict[str, dict[str, str]] = {
    "light": {
        "page": "#ffffff",
        "panel": "#f8f9fa",
        "ink": "#16181d",
        "soft": "#5b6270",
        "line": "#e3e6ea",
        "track": "#e9ecf0",
        "draft": "#838c9a",
        "accepted": "#0072B2",
        "rejected": "#D55E00",
        "corrected": "#C8709F",
        "bonus": "#009E73",
    },
    "dark": {
        "page": "#0f1217",
        "panel": "#151920",
        "ink": "#eef0f4",
        "soft": "#9aa3b2",
        "line": "#272d37",
        "track": "#242a34",
        "draft": "#8a94a5",
        "accepted": "#3d9bdc",
        "rejected": "#f0803c",
        "corrected": "#e8a8cc",
        "bonus": "#45d6a0",
    },
}
"""The colours of outcomes follow Okabe and Ito, whose palette is safe for colour blindness. The
pink is darker here, for a contrast of 3:1 on the lanes; the dark theme has lighter colours."""

CHARTS: dict[str, str] = {
    "tokens": "Tokens against clock",
    "rates": "α and efficiency so far",
    "tau": "τ measured and predicted",
    "speed": "Tokens per second",
    "parts": "Where a round's time goes",
    "positions": "α by position",
}
"""The titles of the charts by name, in the order of the page."""

FONT = "Source Sans Pro, system-ui, sans-serif"

Points = dict[str, list[Any]]
"""The points of one Plotly trace: {"x": [...], "y": [...]}."""


def figures(trace: Trace, theme: str = "light") -> dict[str, go.Figure]:
    """The charts of a run as Plotly figures, by name. theme: "light" or "dark"."""
    data = series(trace.rounds)
    result = {}
    for name, title in CHARTS.items():
        styles = _styles(name, theme)
        traces = [{**style, **points} for style, points in zip(styles, data[name], strict=True)]
        figure = go.Figure(data=traces, layout=_layout(name, theme))
        figure.update_layout(
            title={"text": title, "x": 0.02, "font": {"size": 15}},
            margin={"l": 60, "r": 20, "t": 64, "b": 52},
            showlegend=name != "positions",
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
            paper_bgcolor=PALETTE[theme]["page"],
            font={"size": 13},
            width=640,
            height=400,
        )
        result[name] = figure
    return result


def chart_specs() -> dict[str, Any]:
    """The layout and the trace styles of every chart, by theme and chart, as JSON-ready values."""
    return {
        theme: {
            name: {"layout": _layout(name, theme), "traces": _styles(name, theme)}
            for name in CHARTS
        }
        for theme in PALETTE
    }


def series(rounds: Sequence[Round]) -> dict[str, list[Points]]:
    """The points of every chart, one entry for each of its traces; times are in seconds, but in
    milliseconds in the chart "parts"."""
    lanes = {lane: [r for r in rounds if r.lane == lane] for lane in LANES}
    speculative = lanes["speculative"]
    rates, tau = _so_far(speculative)
    return {
        "tokens": [_tokens(lanes[lane]) for lane in LANES],
        "rates": rates,
        "tau": tau,
        "speed": [_speed(lanes[lane]) for lane in LANES],
        "parts": _parts(lanes),
        "positions": [_positions(speculative)],
    }


def _tokens(rounds: Sequence[Round]) -> Points:
    x, y = [0.0], [0]
    for r in rounds:
        x.append(r.clock)
        y.append(y[-1] + len(r.emitted))
    return {"x": x, "y": y}


def _speed(rounds: Sequence[Round]) -> Points:
    points = _tokens(rounds)
    timed = [(x, y / x) for x, y in zip(points["x"], points["y"], strict=True) if x > 0]
    return {"x": [x for x, _ in timed], "y": [y for _, y in timed]}


def _so_far(rounds: Sequence[Round]) -> tuple[list[Points], list[Points]]:
    """The charts "rates" (alpha, efficiency) and "tau" (measured, predicted): after each round,
    the values over all speculative rounds up to it."""
    accepted = judged = emitted = 0
    lengths: Counter[int] = Counter()  # drafted per round -> rounds
    x: list[int] = []
    alphas: list[float | None] = []
    efficiencies: list[float | None] = []
    measured: list[float] = []
    predicted: list[float | None] = []
    for passes, r in enumerate(rounds, start=1):
        lengths[len(r.drafted)] += 1
        accepted += sum(t.outcome == "accepted" for t in r.drafted)
        judged += sum(t.outcome != "ignored" for t in r.drafted)
        emitted += len(r.emitted)
        drafted = sum(length * count for length, count in lengths.items())
        alpha = accepted / judged if judged else None
        x.append(passes)
        alphas.append(alpha)
        efficiencies.append(accepted / drafted if drafted else None)
        measured.append(emitted / passes)
        predicted.append(None if alpha is None else _predicted(alpha, lengths))
    return (
        [{"x": x, "y": alphas}, {"x": x, "y": efficiencies}],
        [{"x": x, "y": measured}, {"x": x, "y": predicted}],
    )


def _predicted(alpha: float, lengths: Counter[int]) -> float:
    tokens = sum(predicted_tau(alpha, length) * count for length, count in lengths.items())
    return tokens / lengths.total()


def _parts(lanes: dict[Lane, list[Round]]) -> list[Points]:
    """Mean milliseconds per round of each part, one bar per lane; the baseline is the lower bar."""
    traces: list[Points] = []
    for part in ("draft_seconds", "verify_seconds", "overhead_seconds"):
        means = []
        for lane in reversed(LANES):
            rounds = lanes[lane]
            total = sum(getattr(r, part) for r in rounds)
            means.append(1000 * total / len(rounds) if rounds else 0.0)
        traces.append({"x": means, "y": [LANE_LABELS[lane] for lane in reversed(LANES)]})
    return traces


def _positions(rounds: Sequence[Round]) -> Points:
    """alpha of the tokens judged at each position of a draft, counted from 1."""
    accepted: list[int] = []
    judged: list[int] = []
    for r in rounds:
        for i, token in enumerate(r.drafted):
            if i == len(judged):
                accepted.append(0)
                judged.append(0)
            accepted[i] += token.outcome == "accepted"
            judged[i] += token.outcome != "ignored"
    kept = [(i + 1, a / j) for i, (a, j) in enumerate(zip(accepted, judged, strict=True)) if j]
    return {"x": [i for i, _ in kept], "y": [alpha for _, alpha in kept]}


def _styles(name: str, theme: str) -> list[dict[str, Any]]:
    """The style of each trace of a chart, without its points."""
    ink = PALETTE[theme]
    lanes = [
        _line(LANE_LABELS["speculative"], ink["accepted"]),
        _line(LANE_LABELS["baseline"], ink["soft"], "dot"),
    ]
    if name == "tokens":
        return [{**style, "line": {**style["line"], "shape": "hv"}} for style in lanes]
    if name == "speed":
        return lanes
    if name == "rates":
        return [_line("α", ink["accepted"]), _line("efficiency", ink["bonus"], "dot")]
    if name == "tau":
        return [_line("measured", ink["accepted"]), _line("predicted", ink["soft"], "dash")]
    if name == "parts":
        colours = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
        return [_bar(part, colour, "h") for part, colour in colours.items()]
    return [_bar("α", ink["accepted"], "v")]


def _line(label: str, colour: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "line": {"color": colour, "width": 2, "dash": dash},
        "hovertemplate": "%{y:.3~f}<extra>" + label + "</extra>",
    }


_OVER_BAR = {
    "texttemplate": "%{y:.2f}",
    "textposition": "outside",
    "textangle": 0,
    "cliponaxis": False,
    "textfont": {"size": 10},
}


def _bar(label: str, colour: str, orientation: str) -> dict[str, Any]:
    value = "%{x:.2f} ms" if orientation == "h" else "%{y:.2f}"
    return {
        "type": "bar",
        "name": label,
        "orientation": orientation,
        "marker": {"color": colour, "line": {"width": 0}, "cornerradius": 2},
        "hovertemplate": value + "<extra>" + label + "</extra>",
        **(_OVER_BAR if orientation == "v" else {}),
    }


def _layout(name: str, theme: str) -> dict[str, Any]:
    """The layout of a chart, for a small size: the page shows six charts side by side."""
    ink = PALETTE[theme]
    axis: dict[str, Any] = {
        "color": ink["soft"],
        "gridcolor": ink["line"],
        "zeroline": False,
        "nticks": 4,
        "fixedrange": True,
        "automargin": False,
        "title": {"standoff": 2, "font": {"size": 11}},
    }
    x, y = {**axis, "showgrid": False}, {**axis, "rangemode": "tozero"}
    x["title"] = {**axis["title"], "text": _X_TITLES[name]}
    if name in ("rates", "positions"):
        y["range"] = [0, 1.04 if name == "rates" else 1.18]
    if name == "positions":
        x["dtick"] = 1
    if name in ("rates", "tau"):
        x["tickformat"] = "d"
    if name == "parts":
        x, y = {**x, "showgrid": True, "rangemode": "tozero"}, {**y, "showgrid": False}
    return {
        "font": {"family": FONT, "size": 11, "color": ink["soft"]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 78 if name == "parts" else 32, "r": 10, "t": 6, "b": 34},
        "showlegend": False,
        "barmode": "stack",
        "uniformtext": {"mode": "hide", "minsize": 9},
        "bargap": 0.32,
        "dragmode": False,
        "hovermode": "closest" if name in ("parts", "positions") else "x unified",
        "hoverlabel": {
            "bgcolor": ink["page"],
            "bordercolor": ink["line"],
            "font": {"family": FONT, "size": 12, "color": ink["ink"]},
        },
        "xaxis": x,
        "yaxis": y,
    }


_X_TITLES = {
    "tokens": "clock, s",
    "rates": "round",
    "tau": "round",
    "speed": "clock, s",
    "parts": "ms per round",
    "positions": "place in the draft",
}

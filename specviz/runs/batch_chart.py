"""The Plotly figure of a measurement of batches: passes against their bound, speed-up by batch."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from .batches import BatchReport
from .charts import FONT, PALETTE

TITLES = ("Target passes, ms", "Expected speed-up")


def batch_figure(report: BatchReport, theme: str = "light") -> go.Figure:
    """Two charts side by side. theme: "light" or "dark".

    On the left, each target pass by its tokens in all texts together, with the roofline: the least
    time that reading the weights and the arithmetic allow. On the right, the expected speed-up by
    batch, at the best gamma and at the largest measured one, with the line of break-even.
    """
    ink = PALETTE[theme]
    figure = make_subplots(1, 2, subplot_titles=TITLES, horizontal_spacing=0.1)
    for trace in (_bound(report, ink), *_passes(report, ink)):
        figure.add_trace(trace, 1, 1)
    for trace in _speedups(report, ink):
        figure.add_trace(trace, 1, 2)
    figure.add_hline(
        1.0, line={"color": ink["rejected"], "dash": "dot", "width": 1.5}, row=1, col=2
    )
    batches = [one.batch for one in report.times]
    axis = {"color": ink["soft"], "gridcolor": ink["line"], "zeroline": False}
    figure.update_xaxes(type="log", **axis)
    figure.update_yaxes(**axis)
    figure.update_xaxes(title_text="tokens in the pass", dtick="D2", row=1, col=1)
    figure.update_yaxes(type="log", dtick="D2", row=1, col=1)
    figure.update_xaxes(title_text="batch", tickvals=batches, ticktext=batches, row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=1, col=2)
    figure.update_layout(
        font={"family": FONT, "size": 13, "color": ink["ink"]},
        paper_bgcolor=ink["page"],
        plot_bgcolor=ink["page"],
        margin={"l": 56, "r": 20, "t": 72, "b": 52},
        legend={"orientation": "h", "y": 1.12, "yanchor": "bottom", "x": 0},
        width=960,
        height=420,
    )
    return figure


def _bound(report: BatchReport, ink: dict[str, str]) -> go.Scatter:
    most = report.times[-1].batch * (report.widest + 1)
    turn = report.memory_seconds / report.token_seconds  # where arithmetic becomes the limit
    tokens = sorted({1.0, min(max(1.0, turn), most), float(most)})
    seconds = [report.bound(count) for count in tokens]
    return _line("roofline", tokens, seconds, ink["soft"], "dash", 1000)


def _passes(report: BatchReport, ink: dict[str, str]) -> list[go.Scatter]:
    colours = ("accepted", "bonus", "corrected", "rejected", "draft")
    traces = []
    for place, one in enumerate(report.times):
        widths = range(1, len(one.target) + 1)
        tokens = [float(one.batch * width) for width in widths]
        medians = [spread.median for spread in one.target]
        colour = ink[colours[place % len(colours)]]
        trace = _line(f"batch {one.batch}", tokens, medians, colour, "solid", 1000)
        trace.update(mode="lines+markers", marker={"size": 6, "color": colour})
        traces.append(trace)
    return traces


def _speedups(report: BatchReport, ink: dict[str, str]) -> list[go.Scatter]:
    batches = [float(one.batch) for one in report.times]
    best = [one.best(report.alpha) for one in report.times]
    widest = [one.speedup(report.alpha, report.widest) for one in report.times]
    fixed = _line(f"gamma {report.widest}", batches, widest, ink["soft"], "dot")
    chosen = _line("best gamma", batches, [speedup for _, speedup in best], ink["accepted"])
    chosen.update(
        mode="lines+markers+text",
        text=[f"γ {gamma}" for gamma, _ in best],
        textposition="top center",
    )
    return [fixed, chosen]


def _line(
    name: str, x: list[float], y: list[float], colour: str, dash: str = "solid", times: float = 1
) -> go.Scatter:
    style: dict[str, Any] = {"color": colour, "dash": dash, "width": 2}
    return go.Scatter(
        x=x,
        y=[times * value for value in y],
        name=name,
        mode="lines",
        line=style,
        hovertemplate="%{x:.0f}: %{y:.3~f}<extra>" + name + "</extra>",
    )

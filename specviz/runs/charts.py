"""The style of a run's Plotly charts, the same on the live page and in exported pages.

The page receives `chart_specs()` once: layouts and styles without data, which it computes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..lanes import BASELINE, SPECULATIVE, label_of

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
    "requests": "A round’s request: ms by kB",
}
"""The titles of the charts by name, in the order of the page. The last one is only of runs whose
target is on a server."""

LANE_LINES = (
    *(("accepted", "solid"), ("bonus", "dash"), ("corrected", "dashdot"), ("rejected", "longdash")),
    *(("accepted", "dash"), ("bonus", "solid"), ("corrected", "longdash"), ("rejected", "dashdot")),
)
"""The colour of the palette and the dash of each speculative lane's line, where there are several;
the baseline's is always the grey dotted one."""

LANE = "@lane"

SEVERAL = {"rates": "α so far", "tau": "τ so far"}
"""The titles of charts that show less of each lane where there are several."""

FONT = "Source Sans Pro, system-ui, sans-serif"


def chart_specs() -> dict[str, Any]:
    """The layout and the trace styles of every chart, by theme and chart, as JSON-ready values.

    "traces": of a race of two. "lanes": of a race of as many lanes as there may be, the baseline
    last, if the chart has a trace for each lane; `LANE` stands for a lane's name.
    """
    return {
        theme: {
            name: {
                "layout": _layout(name, theme),
                "traces": _styles(name, theme, [(label_of(SPECULATIVE), "accepted", "solid")]),
                "lanes": _styles(name, theme, [(LANE, *style) for style in LANE_LINES]),
            }
            for name in CHARTS
        }
        for theme in PALETTE
    }


def _styles(name: str, theme: str, lanes: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """The style of each trace of a chart, without its points. lanes: label, colour of the palette
    and dash of each lane with drafts; one alone has more to show."""
    ink, alone = PALETTE[theme], len(lanes) == 1
    if name == "parts":
        colours = {"draft": ink["draft"], "verify": ink["accepted"], "overhead": ink["track"]}
        return [_bar(part, colour, "h") for part, colour in colours.items()]
    if alone and name == "rates":
        return [_line("α", ink["accepted"]), _line("efficiency", ink["bonus"], "dot")]
    if alone and name == "tau":
        return [_line("measured", ink["accepted"]), _line("predicted", ink["soft"], "dash")]
    if alone and name == "positions":
        return [_bar("α", ink["accepted"], "v")]
    lines = [_line(label, ink[colour], dash) for label, colour, dash in lanes]
    if name == "positions":
        return [{**line, "mode": "lines+markers"} for line in lines]
    if name in ("tokens", "speed", "requests"):
        lines.append(_line(label_of(BASELINE), ink["soft"], "dot"))
    if name == "tokens":
        return [{**line, "line": {**line["line"], "shape": "hv"}} for line in lines]
    return [_points(line) for line in lines] if name == "requests" else lines


def _line(label: str, colour: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "line": {"color": colour, "width": 2, "dash": dash},
        "hovertemplate": "%{y:.3~f}<extra>" + label + "</extra>",
    }


def _points(line: dict[str, Any]) -> dict[str, Any]:
    """The style of a line's points, one for each round."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": line["name"],
        "marker": {"color": line["line"]["color"], "size": 6, "opacity": 0.7},
        "hovertemplate": "%{x:.3~s} kB, %{y:.0f} ms<extra>" + line["name"] + "</extra>",
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
    """The layout of a chart, for a small size: the page shows six or seven charts side by side."""
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
        y["range"] = [0, 1.04 if name == "rates" else 1.3]
    if name == "positions":
        x["dtick"] = 1
    if name in ("tokens", "speed"):
        x["rangemode"] = "tozero"
    if name in ("rates", "tau"):
        x["tickformat"] = "d"
    if name == "requests":
        x["rangemode"] = "tozero"
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
        "hovermode": "closest" if name in ("parts", "positions", "requests") else "x unified",
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
    "requests": "kB there and back",
}

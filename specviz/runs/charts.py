"""The style of a run's Plotly charts, the same on the live page and in exported pages.

The page receives `chart_specs()` once: layouts and styles without data, which it computes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..lanes import BASELINE, SPECULATIVE, label_of

_COLOURS = {  # on light, on dark
    "page": ("#ffffff", "#0f1217"),
    "panel": ("#f8f9fa", "#151920"),
    "ink": ("#16181d", "#eef0f4"),
    "soft": ("#5b6270", "#9aa3b2"),
    "line": ("#e3e6ea", "#272d37"),
    "track": ("#e9ecf0", "#242a34"),
    "draft": ("#838c9a", "#8a94a5"),
    "accepted": ("#0072B2", "#3d9bdc"),
    "rejected": ("#D55E00", "#f0803c"),
    "corrected": ("#C8709F", "#e8a8cc"),
    "bonus": ("#009E73", "#45d6a0"),
}
PALETTE: dict[str, dict[str, str]] = {
    theme: {name: both[i] for name, both in _COLOURS.items()}
    for i, theme in enumerate(("light", "dark"))
}
"""The colours of outcomes follow Okabe and Ito, whose palette is safe for colour blindness. The
pink is darker here, for a contrast of 3:1 on the lanes; the dark theme has lighter colours."""

_FROM_ZERO = {"rangemode": "tozero"}
_ROUNDS = {"tickformat": "d"}
_CHARTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "tokens": ("Tokens against clock", "clock, s", _FROM_ZERO, {}),
    "rates": ("α and efficiency so far", "round", _ROUNDS, {"range": [0, 1.04]}),
    "tau": ("τ measured and predicted", "round", _ROUNDS, {}),
    "speed": ("Tokens per second", "clock, s", _FROM_ZERO, {}),
    "parts": (
        *("Where a round's time goes", "ms per round"),
        *({**_FROM_ZERO, "showgrid": True}, {"showgrid": False}),
    ),
    "positions": ("α by position", "place in the draft", {"dtick": 1}, {"range": [0, 1.3]}),
    "requests": ("A round’s request: ms by kB", "kB there and back", _FROM_ZERO, {}),
}
"""Title, words below the horizontal axis, and what is special of both axes."""

CHARTS: dict[str, str] = {name: title for name, (title, *_) in _CHARTS.items()}
"""The titles of the charts by name, in the order of the page. The last one is only of runs whose
target is on a server."""

LANE_LINES = (
    *(("accepted", "solid"), ("bonus", "dash"), ("corrected", "dashdot"), ("rejected", "longdash")),
    *(("accepted", "dash"), ("bonus", "solid"), ("corrected", "longdash"), ("rejected", "dashdot")),
)
"""The colour of the palette and the dash of each speculative lane's line, where there are several;
the baseline's is always the grey dotted one."""

_PARTS = {"draft": "draft", "verify": "accepted", "overhead": "track"}
_DRAWN = {"tokens": "steps", "parts": "across", "positions": "marked line", "requests": "points"}
_ALONE = {
    "rates": ("line", [("α", "accepted", "solid"), ("efficiency", "bonus", "dot")]),
    "tau": ("line", [("measured", "accepted", "solid"), ("predicted", "soft", "dash")]),
    "positions": ("up", [("α", "accepted", "")]),
}
"""How a chart is drawn where that is no line, and what it shows of a lane that is alone."""

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
    drawn = _DRAWN.get(name, "line")
    if name == "parts":
        lanes = [(part, colour, "") for part, colour in _PARTS.items()]
    elif name in ("tokens", "speed", "requests"):
        lanes = [*lanes, (label_of(BASELINE), "soft", "dot")]
    elif len(lanes) == 1:
        drawn, lanes = _ALONE[name]
    ink = PALETTE[theme]
    return [_style(drawn, label, ink[colour], dash) for label, colour, dash in lanes]


def _style(drawn: str, label: str, colour: str, dash: str) -> dict[str, Any]:
    style: dict[str, Any] = {"type": "scatter", "name": label}
    hover = "%{y:.3~f}"
    if drawn == "points":
        hover = "%{x:.3~s} kB, %{y:.0f} ms"
        style |= {"mode": "markers", "marker": {"color": colour, "size": 6, "opacity": 0.7}}
    elif drawn in ("across", "up"):
        hover = "%{x:.2f} ms" if drawn == "across" else "%{y:.2f}"
        marker = {"color": colour, "line": {"width": 0}, "cornerradius": 2}
        style |= {"type": "bar", "orientation": "h" if drawn == "across" else "v", "marker": marker}
        if drawn == "up":
            above = {"textposition": "outside", "textangle": 0, "cliponaxis": False}
            style |= {"texttemplate": hover, "textfont": {"size": 10}, **above}
    else:
        style["mode"] = "lines+markers" if drawn == "marked line" else "lines"
        style["line"] = {"color": colour, "width": 2, "dash": dash}
        if drawn == "steps":
            style["line"]["shape"] = "hv"
    return {**style, "hovertemplate": f"{hover}<extra>{label}</extra>"}


def _layout(name: str, theme: str) -> dict[str, Any]:
    """The layout of a chart, for a small size: the page shows six or seven charts side by side."""
    ink = PALETTE[theme]
    _, words, x, y = _CHARTS[name]
    title = {"standoff": 2, "font": {"size": 11}}
    axis = {**plain_axis(ink), "nticks": 4, "automargin": False, "title": title}
    return {
        **plain_layout(ink["soft"], 11),
        "margin": {"l": 78 if name == "parts" else 32, "r": 10, "t": 6, "b": 34},
        "showlegend": False,
        "barmode": "stack",
        "uniformtext": {"mode": "hide", "minsize": 9},
        "bargap": 0.32,
        "hovermode": "closest" if name in ("parts", "positions", "requests") else "x unified",
        "hoverlabel": {
            "bgcolor": ink["page"],
            "bordercolor": ink["line"],
            "font": {"family": FONT, "size": 12, "color": ink["ink"]},
        },
        "xaxis": {**axis, "title": {**title, "text": words}, "showgrid": False, **x},
        "yaxis": {**axis, **_FROM_ZERO, **y},
    }


def plain_axis(ink: dict[str, str]) -> dict[str, Any]:
    """What the axes of all charts have. ink: the palette of a theme."""
    return {"color": ink["soft"], "gridcolor": ink["line"], "zeroline": False, "fixedrange": True}


def plain_layout(colour: str, size: int) -> dict[str, Any]:
    """What the layouts of all charts have. colour, size: of the text."""
    clear = dict.fromkeys(("paper_bgcolor", "plot_bgcolor"), "rgba(0,0,0,0)")
    return {"font": {"family": FONT, "size": size, "color": colour}, **clear, "dragmode": False}

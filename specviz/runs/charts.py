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
    if name in ("tokens", "speed", "requests"):
        lanes = [*lanes, (label_of(BASELINE), "soft", "dot")]
    if name == "requests":
        return [_points(label, ink[colour]) for label, colour, _ in lanes]
    lines = [_line(label, ink[colour], dash) for label, colour, dash in lanes]
    for line in lines:
        if name == "positions":
            line["mode"] = "lines+markers"
        elif name == "tokens":
            line["line"]["shape"] = "hv"
    return lines


def _line(label: str, colour: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "line": {"color": colour, "width": 2, "dash": dash},
        "hovertemplate": f"%{{y:.3~f}}<extra>{label}</extra>",
    }


def _points(label: str, colour: str) -> dict[str, Any]:
    """A point for each round."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "marker": {"color": colour, "size": 6, "opacity": 0.7},
        "hovertemplate": f"%{{x:.3~s}} kB, %{{y:.0f}} ms<extra>{label}</extra>",
    }


def _bar(label: str, colour: str, orientation: str) -> dict[str, Any]:
    value = "%{x:.2f} ms" if orientation == "h" else "%{y:.2f}"
    above = {
        "texttemplate": value,
        "textposition": "outside",
        "textangle": 0,
        "cliponaxis": False,
        "textfont": {"size": 10},
    }
    return {
        "type": "bar",
        "name": label,
        "orientation": orientation,
        "marker": {"color": colour, "line": {"width": 0}, "cornerradius": 2},
        "hovertemplate": f"{value}<extra>{label}</extra>",
        **(above if orientation == "v" else {}),
    }


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
    return {
        "color": ink["soft"],
        "gridcolor": ink["line"],
        "zeroline": False,
        "fixedrange": True,
    }


def plain_layout(colour: str, size: int) -> dict[str, Any]:
    """What the layouts of all charts have. colour, size: of the text."""
    clear = "rgba(0,0,0,0)"
    return {
        "font": {"family": FONT, "size": size, "color": colour},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "dragmode": False,
    }

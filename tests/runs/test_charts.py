"""Charts: they show the points of a run, and their style is the same everywhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from toy_models import llama, pair_of, relative

from specviz import Settings, Trace, race
from specviz.base.environment import ASSETS
from specviz.runs.charts import ALL_LANES, CHARTS, all_figures, figures
from specviz.runs.charts_page import charts_html
from specviz.runs.palette import PALETTE
from specviz.runs.series import series

PAGE = ASSETS / "page"


@pytest.fixture(scope="module")
def trace() -> Trace:
    target = llama(40)
    pair = pair_of(target, relative(target, noise=0.1))
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=40, seed=3)
    return Trace.from_events(race(pair, [1, 2, 3], settings))


def test_the_figures_show_the_points_of_the_run(trace: Trace) -> None:
    points = series(trace.rounds)
    drawn = figures(trace)
    assert list(drawn) == [name for name in CHARTS if name != "requests"]  # its target is local
    for name, figure in drawn.items():
        assert [{"x": list(line.x), "y": list(line.y)} for line in figure.data] == points[name]
        assert figure.layout.title.text == CHARTS[name]


def test_both_themes_draw_the_same_in_their_own_colours(trace: Trace) -> None:
    by_theme = json.loads(json.dumps(all_figures(trace)))
    assert set(by_theme) == set(PALETTE)
    for theme, lanes in by_theme.items():
        assert list(lanes) == [ALL_LANES]
        for name, figure in lanes[ALL_LANES].items():
            assert figure["layout"]["font"]["color"] == PALETTE[theme]["soft"]
            others = by_theme["light"][ALL_LANES][name]["data"]
            assert [line["y"] for line in figure["data"]] == [line["y"] for line in others]


def test_the_page_of_charts_is_complete_and_safe(trace: Trace) -> None:
    prompt = "</script><img src=x>"
    page = charts_html(replace(trace, header=replace(trace.header, prompt=prompt)))
    assert "<img src=x" not in page
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)
    assert found
    told = json.loads(found.group(1))
    assert told["light"] == json.loads(json.dumps(all_figures(trace)))["light"][ALL_LANES]
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=", page)


@pytest.mark.parametrize("theme", PALETTE)
def test_colours_can_be_told_from_the_page(theme: str) -> None:
    colours = PALETTE[theme]
    for name in ("accepted", "rejected", "bonus", "draft"):
        assert _contrast(colours[name], colours["page"]) >= 3, name
    for surface in ("page", "panel"):
        assert _contrast(colours["ink"], colours[surface]) >= 7
        assert _contrast(colours["soft"], colours[surface]) >= 4.5


def test_style_sheets_name_no_colour_of_their_own() -> None:
    for sheet in PAGE.rglob("*.css"):
        assert not re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", sheet.read_text()), sheet.name


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

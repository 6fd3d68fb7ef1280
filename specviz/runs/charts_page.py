"""Charts as one interactive HTML file: it opens from disk, in the reader's theme, and makes no
requests. Plotly draws the charts, with its own buttons to zoom and to save a picture."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from .charts import figures_as_json
from .palette import FONT, PALETTE
from .trace import Trace

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
<h1>{title}</h1>
{intro}
<main></main>
<script>{plotly}</script>
<script type="application/json" id="charts">{charts}</script>
<script>{start}</script>
</html>
"""

_STYLE = """
:root { --page: %(page)s; --panel: %(panel)s; --ink: %(ink)s; --line: %(line)s; }
@media (prefers-color-scheme: dark) {
  :root {
    --page: %(dark_page)s; --panel: %(dark_panel)s;
    --ink: %(dark_ink)s; --line: %(dark_line)s;
  }
}
body {
  max-width: 90rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--page); color: var(--ink); font: 16px %(font)s;
}
main {
  display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%%), 1fr));
}
section { min-width: 0; }
h1, p, pre { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; background: var(--panel); padding: 1rem; }
table {
  display: block; overflow-x: auto; margin-bottom: 2rem;
  border-collapse: collapse; font-size: .85rem;
}
td, th {
  padding: .2rem .5rem; border-bottom: 1px solid var(--line);
  text-align: right; white-space: nowrap;
}
td:first-child, th:first-child { text-align: left; }
.best { font-weight: 700; }
"""

_START = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const main = document.querySelector("main");
// All places are there before the first is filled, so that each chart finds its width.
for (const name of Object.keys(charts.light)) {
  const plot = document.createElement("div");
  plot.id = name;
  main.appendChild(document.createElement("section")).append(plot);
}
const draw = () => {
  for (const [name, { data, layout }] of Object.entries(charts[dark.matches ? "dark" : "light"])) {
    const picture = { filename: `specviz-${name}`, scale: 2 };
    const options = { displaylogo: false, responsive: true, toImageButtonOptions: picture };
    Plotly.react(name, data, { ...layout, height: 420 }, options);
  }
};
dark.addEventListener("change", draw);
draw();
"""


def charts_html(trace: Trace) -> str:
    """All charts of a run, as a page."""
    header = trace.header
    identity = f"{header.target['name']} on {header.device}, {header.date}"
    charts = {theme: figures_as_json(trace, theme) for theme in PALETTE}
    return charts_page(
        (header.question or header.prompt)[:80], f"<p>{html.escape(identity)}</p>", charts
    )


def charts_page(title: str, intro: str, charts: Mapping[str, Mapping[str, dict[str, Any]]]) -> str:
    """A page of figures. intro: HTML between the title and the charts. charts: by theme and by the
    id that their element gets."""
    from plotly.offline import get_plotlyjs

    colours = dict(PALETTE["light"])
    for name, colour in PALETTE["dark"].items():
        colours[f"dark_{name}"] = colour
    return _PAGE.format(
        title=html.escape(title),
        style=_STYLE % {**colours, "font": FONT},
        intro=intro,
        plotly=get_plotlyjs(),
        # No text inside can close the element.
        charts=json.dumps(charts, ensure_ascii=False).replace("<", "\\u003c"),
        start=_START,
    )

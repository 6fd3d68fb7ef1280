"""The player: one HTML component that draws a trace from the deltas that it is handed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import gradio as gr

from ..charts import CHARTS, chart_specs
from .look import PAGE, PLOTLY, static_url
from .presets import Preset

_MOUNT = """
const config = %s;
const base = new URL(config.modules, document.baseURI);
import(new URL("player.js", base)).then((player) => {
  player.mount({ element, props, watch, server, config });
});
"""


def make_player(
    missed: Callable[[dict[str, Any]], list[str]], presets: Sequence[Preset]
) -> gr.HTML:
    """The component; its value is the newest delta, `missed` gives lost ones again."""
    config: dict[str, Any] = {
        "modules": static_url(PAGE) + "/",
        "plotly": static_url(PLOTLY),
        "charts": chart_specs(),
        "titles": CHARTS,
        "presets": [asdict(preset) for preset in presets],
    }
    return gr.HTML(
        value=None,
        html_template=(PAGE / "player.html").read_text("utf-8"),
        js_on_load=_MOUNT % json.dumps(config).replace("<", "\\u003c"),
        server_functions=[missed],
        apply_default_css=False,
        elem_id="player",
    )

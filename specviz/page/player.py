"""The player: one HTML component that draws a trace from the deltas that it is given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from ..core.theory import MOST_GAMMA
from ..kinds import drafter_names
from ..runs.charts import CHARTS, SEVERAL, chart_specs
from ..runs.html import PLOTLY
from ..runs.modules import PAGE
from ..runs.recording import MOST_PACKED
from ..runs.trace import SCHEMA
from ..vocabulary import vocabulary
from .choices import naming_choices, naming_defaults, pair_models
from .choosing import choose_config
from .controls import CHOICES, COMPARED, DEFAULTS, LIMITS, MOST_CHARACTERS, drafter_choices
from .experiment import MOST_DRAWS
from .files import find_recordings
from .look import static_url
from .offers import listed_drafters
from .presets import Preset
from .security.addresses import FILES

_MOUNT = """
const config = %s;
import("specviz/player.js").then((player) => {
  player.mount({ element, props, watch, server, config });
});
"""


def _links() -> dict[str, str]:
    """Where the line under the name leads, beside the paper; the source is known on a Space."""
    space = os.environ.get("SPACE_ID", "")
    source = {"source": f"https://huggingface.co/spaces/{space}/tree/main"} if space else {}
    return {"api": "?view=api", **source}


def make_player(
    functions: Sequence[Callable[[dict[str, Any]], Any]],
    presets: Sequence[Preset],
    recordings: Path,
    own: str,
) -> gr.HTML:
    """The component. Its value is the newest delta; `functions` are the server functions that it
    may call. own: the pair that the page was started with."""
    pairs = naming_choices(own)
    config: dict[str, Any] = {
        "served": True,
        "files": FILES.strip("/") + "/",
        "plotly": static_url(PLOTLY),
        "vocabulary": vocabulary(),
        "charts": chart_specs(),
        "titles": CHARTS,
        "several": SEVERAL,
        "links": _links(),
        "presets": [
            {
                "name": one.name,
                "prompt": one.prompt,
                "why": one.why,
                "settings": {**DEFAULTS, **one.settings},
            }
            for one in presets
        ],
        "recordings": find_recordings(recordings, [one.name for one in presets]),
        "defaults": {**DEFAULTS, **naming_defaults(own), "lanes": "one"},
        "limits": LIMITS,
        "choices": {**CHOICES, **pairs, "lanes": list(COMPARED.values())},
        "pairs": pair_models(),
        "drafters": {name: listed_drafters(name) for name in pairs["pair"]},
        "drafterLabels": drafter_choices(drafter_names()),
        "whole": [name for name, usual in DEFAULTS.items() if isinstance(usual, int)],
        "schema": SCHEMA,
        "mostPrompt": MOST_CHARACTERS,
        "mostPacked": MOST_PACKED,
        "mostGamma": MOST_GAMMA,
        "draws": MOST_DRAWS,
        "choose": choose_config(),
    }
    return gr.HTML(
        value=None,
        html_template=(PAGE / "player.html").read_text("utf-8"),
        js_on_load=_MOUNT % json.dumps(config).replace("<", "\\u003c"),
        server_functions=list(functions),
        apply_default_css=False,
        elem_id="player",
    )

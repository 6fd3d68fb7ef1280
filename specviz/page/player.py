"""The player: one HTML component that draws a trace from the deltas that it is given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from ..core.policy import MOST_GAMMA
from ..core.registry import drafter_kind, drafter_names
from ..environment import ASSETS, SERVED
from ..pairs.table import own_folder
from ..runs.charts import CHARTS
from ..runs.html import PAGE, PLOTLY
from ..runs.recording import MOST_PACKED
from ..runs.trace import SCHEMA
from ..vocabulary import vocabulary
from ..worker.loading import WEIGHTS
from .choices import OTHER, listed_drafters, pair_choices, pair_models
from .controls import CHOICES, COMPARED, LIMITS, MOST_CHARACTERS, defaults_of, drafter_choices
from .files import find_recordings
from .look import static_url
from .names import shown_pair
from .questions import MOST_DRAWS
from .security.addresses import FILES
from .sweeps import choose_config

PRESETS, QUESTIONS = "presets.json", "questions.json"
"""In a pair's folder: its presets, and which of the stage's questions its runs answer, with prompts
and settings of those that are no presets."""

SAMPLING = "sampling"


@dataclass(frozen=True, slots=True)
class Preset:
    """A prompt with a one-word name. why: what it shows. settings: those unlike the page's.

    It is greedy, so that both lanes write one text, unless it `teaches` "sampling".
    """

    name: str
    prompt: str
    why: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    teaches: str = ""

    def settings_on(self, pair: str) -> dict[str, Any]:
        """All settings that a page of this pair offers, as the preset has them."""
        usual = defaults_of(pair)
        if self.teaches != SAMPLING:
            usual["temperature"] = 0.0
        return {**usual, **self.settings}


def folder_of(pair: str) -> Path:
    """The folder with the presets of a pair; those of the built-in pair serve all others."""
    return own_folder(pair) or ASSETS / "pair"


def presets_of(pair: str) -> tuple[Preset, ...]:
    """The presets of a page that was started with this pair."""
    return tuple(Preset(**entry) for entry in _read(folder_of(pair) / PRESETS))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


_MOUNT = """
const config = %s;
import("specviz/player.js").then((player) => {
  player.mount({ element, props, watch, server, config });
});
"""


def _template(drafter: str) -> str:
    """The player before there is a run: its sentence names the helper that a visit begins with."""
    usual, first = (drafter_kind(name).clause for name in ("model", drafter))
    return (PAGE / "player.html").read_text("utf-8").replace(usual, first)


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
    pairs, usual = [value for _, value in pair_choices(own, None)], defaults_of(own)
    # In the order of the arguments of `chosen_pair`.
    naming = {"pair": own, "target": "", "draft": "", "weights": next(iter(WEIGHTS))}
    listed = {"pair": pairs, "weights": list(WEIGHTS), "lanes": list(COMPARED.values())}
    config: dict[str, Any] = {
        "served": True,
        "files": FILES.strip("/") + "/",
        "plotly": static_url(PLOTLY),
        "vocabulary": vocabulary(),
        "titles": CHARTS,
        "links": _links(),
        "presets": [{**asdict(one), "settings": one.settings_on(own)} for one in presets],
        "questions": _read(folder_of(own) / QUESTIONS)["asked"],
        "recordings": find_recordings(recordings, [one.name for one in presets]),
        "defaults": {**usual, **naming, "lanes": "one"},
        "limits": LIMITS,
        "choices": {**CHOICES, **listed},
        "pairs": pair_models(own),
        "pairTitles": {
            name: shown_pair(name).title for name in pairs if name not in (SERVED, OTHER)
        },
        "drafters": {name: listed_drafters(name) for name in pairs},
        "drafterLabels": drafter_choices(drafter_names()),
        "whole": [name for name, value in usual.items() if isinstance(value, int)],
        "schema": SCHEMA,
        "mostPrompt": MOST_CHARACTERS,
        "mostPacked": MOST_PACKED,
        "mostGamma": MOST_GAMMA,
        "draws": MOST_DRAWS,
        "choose": choose_config(own, pairs),
    }
    return gr.HTML(
        value=None,
        html_template=_template(str(usual["drafter"])),
        js_on_load=_MOUNT % json.dumps(config).replace("<", "\\u003c"),
        server_functions=list(functions),
        apply_default_css=False,
        elem_id="player",
    )

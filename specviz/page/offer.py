"""The page's offer, one JSON document: presets, pairs, controls, limits, recordings."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..base.environment import ASSETS, SERVED
from ..core.events import SCHEMA
from ..core.policy import MAX_GAMMA
from ..core.registry import drafter_names
from ..pairs.table import own_folder
from ..runs.charts import CHARTS
from ..runs.recording import MAX_PACKED
from ..runs.vocabulary import vocabulary
from ..worker.loading import WEIGHTS
from ..worker.tasks import Host
from .audits import watched_server
from .choices import OTHER, listed_drafters, pair_choices, pair_models
from .controls import (
    CHOICES,
    COMPARED,
    LIMITS,
    MAX_CHARACTERS,
    controls_of,
    defaults_of,
    drafter_choices,
)
from .files import find_recordings
from .follow_ups import MAX_DRAWS
from .local_pairs import listed_matches, local_drafters, local_models, local_titles
from .names import shown_pair
from .public import PLOTLY_NAME
from .security.addresses import FILES, QUESTION_PATH
from .sweeps import choose_config

PRESETS = "presets.json"
"""In a pair's folder: its presets."""

QUESTIONS = "questions.json"
"""In a pair's folder: the stage's questions that its runs answer, with prompts and settings unless
they are presets."""

SAMPLING = "sampling"


@dataclass(frozen=True, slots=True)
class Preset:
    """A prompt with a one-word name. why: its purpose. settings: those that differ from the page's.

    It is greedy, so that both lanes write one text, unless it `teaches` "sampling".
    """

    name: str
    prompt: str
    why: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    teaches: str = ""

    def settings_on(self, pair: str) -> dict[str, Any]:
        """The preset's value of each setting that a page of this pair offers."""
        usual = defaults_of(pair)
        if self.teaches != SAMPLING:
            usual["temperature"] = 0.0
        return {**usual, **self.settings}


def folder_of(pair: str) -> Path:
    """The folder with the presets of a pair; those of the built-in pair serve all others."""
    return own_folder(pair) or ASSETS / "pair"


def presets_of(pair: str) -> tuple[Preset, ...]:
    """The presets of a page that was started with this pair."""
    entries = _read(folder_of(pair) / PRESETS)
    return tuple(Preset(**entry) for entry in entries)


def _shown_preset(preset: Preset, pair: str, page_pair: str) -> dict[str, Any]:
    """A preset of `pair` for the browser, whose page runs `page_pair`. If the latter lacks the
    preset's drafter, its first drafter replaces that."""
    settings = preset.settings_on(pair)
    offered = listed_drafters(page_pair)
    if offered and settings["drafter"] not in offered:
        settings["drafter"] = offered[0]
    return {**asdict(preset), "settings": settings}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _links() -> dict[str, str]:
    """The links behind those of papers in Help: the source is known on a Space, and there is an
    audit if the operator's server speculates by itself."""
    links = {"api": "api"}
    space = os.environ.get("SPACE_ID", "")
    if space:
        links["source"] = f"https://huggingface.co/spaces/{space}/tree/main"
    if watched_server() is not None:
        links["audit"] = "audit"
    return links


def offer_of(
    page_pair: str,
    *,
    presets: Sequence[Preset],
    recordings: Path,
    machine: Host | None,
    is_loading: bool,
    awaited: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The document from which the browser makes the page: `Config` in `types.d.ts`.

    page_pair: the pair that the page was started with. machine: where models run; None while that
    is not known. is_loading: whether the page's pair is not in memory yet, or could not be loaded;
    the browser then polls its progress. awaited: the fetch state of a pair that is not on this
    machine yet and whose recordings are shown.
    """
    table = [value for _, value in pair_choices(page_pair, None)]
    matches = [match for match in listed_matches(machine) if match.name != page_pair]
    pairs = [*table, *(match.name for match in matches)]
    titles = {}
    for name in table:
        if name not in (SERVED, OTHER):
            titles[name] = shown_pair(name).title
    drafters = {name: listed_drafters(name) for name in table}
    usual = defaults_of(page_pair)
    weights = list(WEIGHTS)
    shown = page_pair
    if awaited is not None:
        shown = str(awaited["pair"])
    return {
        "served": True,
        "isLoading": is_loading,
        "awaited": awaited,
        "questionsAt": QUESTION_PATH.strip("/") + "/",
        "files": FILES.strip("/") + "/",
        "plotly": PLOTLY_NAME,
        "vocabulary": vocabulary(),
        "titles": CHARTS,
        "links": _links(),
        "presets": [_shown_preset(preset, shown, page_pair) for preset in presets],
        "questions": _read(folder_of(shown) / QUESTIONS)["asked"],
        "recordings": find_recordings(recordings, [preset.name for preset in presets]),
        "defaults": {
            **usual,
            "pair": page_pair,
            "target": "",
            "draft": "",
            "weights": weights[0],
            "lanes": "one",
        },
        "limits": LIMITS,
        "controls": controls_of(page_pair, machine, matches),
        "choices": {
            **CHOICES,
            "pair": pairs,
            "weights": weights,
            "lanes": list(COMPARED.values()),
        },
        "pairs": pair_models(page_pair) | local_models(matches),
        "pairTitles": titles | local_titles(matches),
        "drafters": drafters | local_drafters(matches),
        "drafterLabels": drafter_choices(drafter_names()),
        "whole": [name for name, value in usual.items() if isinstance(value, int)],
        "schema": SCHEMA,
        "mostPrompt": MAX_CHARACTERS,
        "mostPacked": MAX_PACKED,
        "mostGamma": MAX_GAMMA,
        "draws": MAX_DRAWS,
        "choose": choose_config(page_pair, pairs),
    }

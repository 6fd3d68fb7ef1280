"""Presets: example prompts that were chosen for a pair, with their settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environment import ASSETS

PRESETS = ASSETS / "pair" / "presets.json"
QUESTIONS = ASSETS / "pair" / "questions.json"
"""Prompts and settings of the runs that answer the stage's questions, where no preset does."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A prompt with a one-word name. why: what it shows. settings: those unlike the page's."""

    name: str
    prompt: str
    why: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


FALLBACK = (
    Preset("easy", "Once upon a time there was a", "A phrase that every model knows by heart."),
    Preset("hard", "Seven quartz jugglers vexed", "Words that hardly ever stand together."),
    Preset(
        "repeats",
        "One little, two little, three little, one little, two little, three little,",
        "A pattern that the draft sees as well as the target.",
    ),
    Preset(
        "loses",
        "It was a dark night and",
        "Long drafts at a high temperature: most of the work is thrown away.",
        {"gamma": 16, "temperature": 1.5},
    ),
)
"""For a pair without presets."""


def load_presets(path: Path) -> tuple[Preset, ...]:
    """The prompts in a JSON list of {"name", "prompt", "why", "settings"}, or the fallback."""
    if not path.is_file():
        return FALLBACK
    entries = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Preset(e["name"], e["prompt"], e.get("why", ""), e.get("settings") or {}) for e in entries
    )

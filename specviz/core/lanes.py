"""The lanes of a race by name: which there are, and how they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from .settings import Settings

Lane: TypeAlias = str
"""The name of a lane."""

SPECULATIVE: Lane = "speculative"
"""The lane with drafts in a race of two."""

BASELINE: Lane = "baseline"
"""The lane of the target alone, which is in every race."""

LANES: tuple[Lane, Lane] = (SPECULATIVE, BASELINE)
"""The lanes of a race of two."""

LANE_LABELS: dict[Lane, str] = {SPECULATIVE: "with drafts", BASELINE: "target alone"}
"""What these two are called in charts, tables and the terminal; other lanes go by their names."""

NO_SETTINGS = "the settings are {}: use Settings(gamma=5), for example, or one for each lane."

Several: TypeAlias = Mapping[str, Settings] | Sequence[Settings]
"""The settings of several speculative lanes: by name, or in a row, to be named by what differs."""


def label_of(lane: Lane) -> str:
    """What a lane is called in charts, tables and the terminal."""
    return LANE_LABELS.get(lane, lane)

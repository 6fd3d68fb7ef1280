"""The lanes of a race: their names, labels and settings."""

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
"""Labels of these two in charts, tables and the terminal; other lanes have their names."""

Several: TypeAlias = Mapping[str, Settings] | Sequence[Settings]
"""The settings of several speculative lanes: by name, or a sequence, named by differences."""


def label_of(lane: Lane) -> str:
    """The label of a lane in charts, tables and the terminal."""
    return LANE_LABELS.get(lane, lane)

"""Parts of a trace's JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LEGEND = ("accepted", "rejected", "ignored", "corrected", "bonus", "own")
"""The entries of the legend, by their attribute `data-count`."""

Values = dict[str, Any]


def tokens(r: Values) -> list[Values]:
    """All tokens of a round."""
    return [*r["drafted"], *([r["last"]] if r["last"] else [])]


def emitted(r: Values) -> list[Values]:
    """The tokens that a round added to the text."""
    return [token for token in tokens(r) if token["outcome"] not in ("rejected", "ignored")]


def settings(header: Values) -> Values:
    """The settings of the first lane."""
    return next(iter(header["lanes"].values()))  # type: ignore[no-any-return]


def legend_counts(rounds: Iterable[Values], lane: str = "speculative") -> dict[str, int]:
    """Count the tokens of a lane with drafts as the legend does.

    A bonus token follows drafts; the token of a round without drafts is the target's own.
    """
    counts = dict.fromkeys(LEGEND, 0)
    for r in rounds:
        if r["lane"] != lane:
            continue
        for token in tokens(r):
            is_own = token["outcome"] == "bonus" and not r["drafted"]
            counts["own" if is_own else token["outcome"]] += 1
    return counts

"""The doctor's report on a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from ..files.findings import Finding, Level
from ..files.source import named_source

MARKS: dict[Level, str] = {"good": "✓", "warning": "!", "stop": "✗"}
VERDICTS: dict[Level, str] = {
    "good": "ready to race.",
    "warning": "can race; read the warnings first.",
    "stop": "cannot race: the findings with a cross say what to do.",
}


@dataclass(frozen=True)
class Report:
    """All findings about a pair, in the order in which they were made.

    memory, drafters: empty if the models could not be read.
    """

    target: str  # its name as shown
    draft: str | None
    findings: tuple[Finding, ...]
    memory: dict[str, int] = field(default_factory=dict)  # bytes with caches, by precision
    free: int = 0  # bytes of the device, or of all GPUs together
    suggested: str | None = None  # the hub id of a known draft for the target
    drafters: tuple[str, ...] = ()  # those that the pair offers, as `Pair.drafters` has them

    @property
    def verdict(self) -> Level:
        """The worst level of all findings."""
        order: Sequence[Level] = get_args(Level)
        levels = [finding.level for finding in self.findings]
        return max(levels, key=order.index, default="good")

    @property
    def summary(self) -> str:
        """The verdict as a sentence."""
        models = self.target
        if self.draft:
            models += f" with {self.draft}"
        return f"{models} {VERDICTS[self.verdict]}"

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "target": self.target,
            "draft": self.draft,
            "verdict": self.verdict,
            "summary": self.summary,
            "memory": self.memory,
            "free": self.free,
            "drafters": self.drafters,
            "findings": [vars(finding) for finding in self.findings],
            "suggested_draft": self.suggested,
        }


def shown_model(name: str) -> str:
    """The model name that a report shows."""
    return named_source(name).shown

"""Access to the findings of the doctor's reports."""

from __future__ import annotations

from specviz.pairs.report import Report


def sentence_about(report: Report, topic: str, level: str) -> str:
    """The sentence of the only finding with this topic and level."""
    (finding,) = [f for f in report.findings if (f.topic, f.level) == (topic, level)]
    return finding.sentence

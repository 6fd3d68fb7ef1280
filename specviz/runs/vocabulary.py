"""The words of the page in a browser: names, labels and sentences of kinds, outcomes and lanes.

`python -m specviz.runs.vocabulary` writes `assets/page/vocabulary.json`, which has only what this
package defines; a served page has its own, with the kinds that were registered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..base.environment import ASSETS
from ..core.lanes import LANE_LABELS
from ..core.records import DrafterKind, VerdictKind
from ..core.registry import drafters, engines, verdicts

FILE = ASSETS / "page" / "vocabulary.json"

POLICIES = {
    "fixed": {"choice": "Fixed", "label": "fixed"},
    "heuristic": {"choice": "Heuristic", "label": "heuristic"},
    "optimal": {"choice": "Optimal", "label": "optimal"},
    "confidence": {"choice": "Confidence", "label": "confident"},
}
"""The policies for the number of drafts of a round."""

COMPARED = {
    "one": {"choice": "One", "label": "one lane with drafts"},
    "drafters": {"choice": "Drafters", "label": "drafters side by side"},
    "gammas": {"choice": "γ", "label": "several γ side by side"},
    "policies": {"choice": "Policies", "label": "γ policies side by side"},
    "verdicts": {"choice": "Verdicts", "label": "verdicts side by side"},
}
"""The settings in which the lanes with drafts of a run may differ."""

OUTCOMES = {
    "accepted": {"mark": "", "meaning": "drafted, accepted"},
    "rejected": {"mark": "✗", "meaning": "drafted, rejected"},
    "ignored": {"mark": "", "meaning": "drafted, never judged"},
    "corrected": {"mark": "↳", "meaning": "the target’s, after a rejection"},
    "bonus": {"mark": "★", "meaning": "the target’s, if all were accepted"},
    "untold": {"mark": "·", "meaning": "the end of a watched server’s step"},
}
"""The outcomes of a token."""

_DRAFTER_FIELDS = {
    "label": "label",
    "choice": "choice",
    "lane": "lane",
    "clause": "clause",
    "who": "round_start",
    "guessed": "round_sentence",
    "guessed_greedy": "greedy_round_sentence",
    "unguessed": "no_draft_sentence",
    "needs": "needs",
    "reads_memory": "reads_memory",
    "certain": "certain",
    "counted": "from_counts",
    "has_model": "has_model",
    "package": "package",
}
_VERDICT_FIELDS = {
    "label": "label",
    "choice": "choice",
    "exact": "exact",
    "warning": "warning",
    "clause": "clause",
    "law": "exactness_note",
    "note": "note",
    "left": "correction_label",
    "beta": "beta_label",
    "chance": "chance",
    "threshold": "threshold",
    "weighted": "weighted",
    "together": "judges_jointly",
    "draws": "draws",
    "residual": "residual",
    "package": "package",
}
"""Field of the JSON -> attribute of the record, for both."""


def vocabulary(*, registered: bool = True) -> dict[str, Any]:
    """The vocabulary as JSON. registered: with the kinds of other packages."""
    return {
        "drafters": _words(drafters(), _DRAFTER_FIELDS, registered),
        "verdicts": _words(verdicts(), _VERDICT_FIELDS, registered),
        "policies": POLICIES,
        "compared": COMPARED,
        "outcomes": OUTCOMES,
        "lanes": {lane: {"label": label} for lane, label in LANE_LABELS.items()},
        "engines": {kind.name: {"label": kind.label} for kind in engines()},
    }


def written() -> str:
    """The content of the file."""
    return json.dumps(vocabulary(registered=False), ensure_ascii=False, indent=1) + "\n"


def _words(
    kinds: Iterable[DrafterKind | VerdictKind], attributes: Mapping[str, str], registered: bool
) -> dict[str, dict[str, Any]]:
    words: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        if registered or not kind.package:
            words[kind.name] = {
                field: getattr(kind, attribute) for field, attribute in attributes.items()
            }
    return words


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")

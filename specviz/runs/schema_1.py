"""Traces of schema 1, which said some things twice, in the form of schema 2.

A round had the tokens that it "emitted" instead of the "last" one: the accepted ones stood in
"drafted" as well. A header had "settings" and "draft", and "lanes" and "drafts" only if lanes had
names of their own; an end had the fields of one `Agreement` beside "lanes" in the same way.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..base.errors import ADVICE, TraceError
from ..core.events import Agreement
from ..core.lanes import SPECULATIVE


def renewed(data: dict[str, Any]) -> dict[str, Any]:
    """The JSON values of schema 2 for those of schema 1, which may be of a stranger's file: only
    what goes is checked here. Raises `TraceError`."""
    try:
        renewed_data = {**data}
        renewed_data["schema"] = 2
        renewed_data["header"] = _with_lanes(data["header"])
        renewed_data["rounds"] = [
            _with_last(number, values) for number, values in enumerate(data["rounds"], 1)
        ]
        renewed_data["end"] = data["end"] and _with_agreements(data["end"])
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise TraceError(f"this recording of schema 1 lacks a part; {ADVICE}.") from error
    return renewed_data


def _with_lanes(header: dict[str, Any]) -> dict[str, Any]:
    values = {**header}
    settings = values.pop("settings")
    draft = values.pop("draft")
    if values.get("lanes") is None:
        values["lanes"] = {SPECULATIVE: settings}
    if values.get("drafts") is None:
        values["drafts"] = {SPECULATIVE: draft}
    lanes = values["lanes"]
    drafts = values["drafts"]
    first = next(iter(lanes), "")
    if (lanes.get(first), drafts.get(first)) != (settings, draft):
        raise TraceError(f"header: settings and draft are not those of the first lane; {ADVICE}.")
    return values


def _with_last(number: int, round_values: dict[str, Any]) -> dict[str, Any]:
    """number: of the round in the file, from 1."""
    values = {**round_values}
    emitted = values.pop("emitted")
    accepted = [token for token in values["drafted"] if token["outcome"] == "accepted"]
    last = emitted[len(accepted) :]
    if emitted[: len(accepted)] != accepted or len(last) > 1:
        raise TraceError(
            f"entry {number} of the rounds: its emitted tokens are not the accepted ones and one "
            f"more; {ADVICE}."
        )
    values["last"] = last[0] if last else None
    return values


def _with_agreements(end: dict[str, Any]) -> dict[str, Any]:
    values = {**end}
    agreement = {
        "identical": values.pop("identical"),
        "compared": values.pop("compared"),
        "divergence": values.pop("divergence"),
    }
    lanes = values.pop("lanes", None)
    if lanes is None and agreement == asdict(Agreement()):
        return values
    if lanes is None:
        lanes = {SPECULATIVE: agreement}
    if next(iter(lanes.values()), None) != agreement:
        raise TraceError(f"end: identical is not that of the first lane; {ADVICE}.")
    values["lanes"] = lanes
    return values

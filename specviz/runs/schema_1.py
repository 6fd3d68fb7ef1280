"""Traces of schema 1, which said some things twice, in the form of schema 2.

A round had the tokens that it "emitted" instead of the "last" one: the accepted ones stood in
"drafted" as well. A header had "settings" and "draft", and "lanes" and "drafts" only if lanes had
names of their own; an end had the fields of one `Agreement` beside "lanes" in the same way.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..core.events import Agreement
from ..errors import ADVICE, TraceError
from ..lanes import SPECULATIVE


def renewed(data: dict[str, Any]) -> dict[str, Any]:
    """The JSON values of schema 2 for those of schema 1, which may be of a stranger's file: only
    what goes is checked here. Raises `TraceError`."""
    try:
        end = data["end"]
        return {
            **data,
            "schema": 2,
            "header": _with_lanes(**data["header"]),
            "rounds": [_with_last(place, **one) for place, one in enumerate(data["rounds"], 1)],
            "end": end and _with_agreements(**end),
        }
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise TraceError(f"this recording of schema 1 lacks a part; {ADVICE}.") from error


def _with_lanes(
    settings: Any, draft: Any, lanes: Any = None, drafts: Any = None, **others: Any
) -> dict[str, Any]:
    lanes = {SPECULATIVE: settings} if lanes is None else lanes
    drafts = {SPECULATIVE: draft} if drafts is None else drafts
    first = next(iter(lanes), "")
    if (lanes.get(first), drafts.get(first)) != (settings, draft):
        raise TraceError(f"header: settings and draft are not those of the first lane; {ADVICE}.")
    return others | {"lanes": lanes, "drafts": drafts}


def _with_last(place: int, drafted: Any, emitted: Any, **others: Any) -> dict[str, Any]:
    accepted = [token for token in drafted if token["outcome"] == "accepted"]
    last = emitted[len(accepted) :]
    if emitted[: len(accepted)] != accepted or len(last) > 1:
        raise TraceError(
            f"entry {place} of the rounds: its emitted tokens are not the accepted ones and one "
            f"more; {ADVICE}."
        )
    return others | {"drafted": drafted, "last": last[0] if last else None}


def _with_agreements(
    identical: Any, compared: Any, divergence: Any, lanes: Any = None, **others: Any
) -> dict[str, Any]:
    said = {"identical": identical, "compared": compared, "divergence": divergence}
    if lanes is None and said == asdict(Agreement()):
        return others
    lanes = {SPECULATIVE: said} if lanes is None else lanes
    if next(iter(lanes.values())) != said:
        raise TraceError(f"end: identical is not that of the first lane; {ADVICE}.")
    return others | {"lanes": lanes}

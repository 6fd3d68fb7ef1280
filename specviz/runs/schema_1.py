"""Upgrade recordings of schema 1, which stored some values twice, to schema 2.

A round had the tokens that it "emitted" instead of the "last" one. A header had "settings" and
"draft", and an end the fields of one `Agreement`; "lanes" and "drafts" were added only if lanes had
names of their own.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..base.errors import ADVICE, TraceError
from ..core.events import Agreement
from ..core.lanes import SPECULATIVE


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Convert JSON values of schema 1 to schema 2. Only dropped values are checked: they must agree
    with the values that stay. Raises `TraceError`."""
    try:
        header = _upgraded_header({**data["header"]})
        rounds = []
        for number, fields in enumerate(data["rounds"], 1):
            rounds.append(_upgraded_round({**fields}, number))
        end = data["end"] and _upgraded_end({**data["end"]})
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise TraceError(f"this recording of schema 1 is incomplete; {ADVICE}.") from error
    return {**data, "schema": 2, "header": header, "rounds": rounds, "end": end}


def _upgraded_header(header: dict[str, Any]) -> dict[str, Any]:
    new_names = {"settings": "lanes", "draft": "drafts"}
    for old, new in new_names.items():
        value = header.pop(old)
        if header.get(new) is None:
            header[new] = {SPECULATIVE: value}
        fault = f"header: {old} differs from the first lane's"
        _check_same(value, _first(header[new]), fault)
    return header


def _upgraded_round(fields: dict[str, Any], number: int) -> dict[str, Any]:
    """number: of the round in the file, from 1."""
    emitted = fields.pop("emitted")
    accepted = [token for token in fields["drafted"] if token["outcome"] == "accepted"]
    after_accepted = emitted[len(accepted) :]
    last = after_accepted[:1]  # one token, or none
    fields["last"] = None
    if last:
        fields["last"] = last[0]
    fault = (
        f"entry {number} of the rounds: it emitted other tokens than its accepted ones and one more"
    )
    _check_same(emitted, accepted + last, fault)
    return fields


def _upgraded_end(end: dict[str, Any]) -> dict[str, Any]:
    nothing = asdict(Agreement())
    agreement = {name: end.pop(name) for name in nothing}
    if end.get("lanes") is None and agreement != nothing:
        end["lanes"] = {SPECULATIVE: agreement}
    if end.get("lanes") is not None:
        fault = "end: identical differs from the first lane's"
        _check_same(agreement, _first(end["lanes"]), fault)
    return end


def _first(lanes: dict[str, Any]) -> Any:
    return next(iter(lanes.values()), None)


def _check_same(dropped: object, remaining: object, fault: str) -> None:
    if dropped != remaining:
        raise TraceError(f"{fault}; {ADVICE}.")

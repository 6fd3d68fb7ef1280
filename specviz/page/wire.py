"""What travels to the browser: small numbered JSON deltas of one run.

A delta is `{"run", "seq", "over"}` and any of `header`, `rounds`, `end`, `status`, `error`; with an
error, `fall_back` if a recording should take the run's place; `remark` says why a run that has
no error ended early.
Numbers count up from 0 without a gap, so the player can drop what it has and ask for what it
missed. A round's accepted tokens are sent once, in `drafted`; `kept` says how many of them
`emitted` begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import orjson

from ..trace import End, Event, Header, Round

Note: TypeAlias = "Event | str"
"""An event of the race, or a sentence for the visitor."""


def encode_delta(
    run: str,
    seq: int,
    notes: Sequence[Note],
    *,
    error: str | None = None,
    remark: str | None = None,
    over: bool = False,
    fall_back: bool = False,
) -> str:
    """One delta as a string that is safe inside HTML."""
    delta: dict[str, Any] = {"run": run, "seq": seq, "over": over}
    rounds = [_round(note) for note in notes if isinstance(note, Round)]
    if rounds:
        delta["rounds"] = rounds
    for note in notes:
        if isinstance(note, Header):
            delta["header"] = note
        elif isinstance(note, End):
            delta["end"] = note
        elif isinstance(note, str):
            delta["status"] = note
    if error:
        delta["error"] = error
        if fall_back:
            delta["fall_back"] = True
    elif remark:
        delta["remark"] = remark
    # orjson reads dataclasses in C: encoding must not hold up the thread that decodes.
    return orjson.dumps(delta).decode().replace("<", "\\u003c")


def _round(event: Round) -> dict[str, Any]:
    kept = 0
    for drafted, emitted in zip(event.drafted, event.emitted, strict=False):
        if drafted != emitted:
            break
        kept += 1
    return {
        "lane": event.lane,
        "index": event.index,
        "drafted": event.drafted,
        "kept": kept,
        "emitted": event.emitted[kept:],
        "draft_seconds": event.draft_seconds,
        "verify_seconds": event.verify_seconds,
        "overhead_seconds": event.overhead_seconds,
        "clock": event.clock,
        "wall": event.wall,
    }

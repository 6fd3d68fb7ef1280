"""What is new about a run, and how that travels to the browser: small numbered JSON deltas.

A delta is `{"run", "seq", "over"}` and any of `header`, `rounds`, `end`, `status`, `error`,
`fall_back` and `remark`, which `Update` explains. Numbers count up from 0 without a gap, so the
player can drop a delta that it has and ask for one that it missed. A round's accepted tokens are
sent once, in `drafted`; `kept` says with how many of them `emitted` begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from ..core.events import End, Event, Header, Round
from ..runs.trace import event_dict

Note: TypeAlias = "Event | str"
"""An event of the race, or a sentence for the visitor."""


@dataclass(frozen=True, slots=True)
class Update:
    """What is new about a run since its last update.

    notes: events and sentences, in order. over: whether this is the last update. error: why the
    run failed. fall_back: whether a recording should play in place of the failed run. remark: why
    a run without an error ended early.
    """

    notes: Sequence[Note] = ()
    over: bool = False
    error: str | None = None
    fall_back: bool = False
    remark: str | None = None

    @property
    def header(self) -> Header | None:
        """The header, if it is among the notes."""
        return next((note for note in self.notes if isinstance(note, Header)), None)

    @property
    def rounds(self) -> list[Round]:
        """The rounds among the notes."""
        return [note for note in self.notes if isinstance(note, Round)]

    @property
    def end(self) -> End | None:
        """The end, if it is among the notes."""
        return next((note for note in self.notes if isinstance(note, End)), None)

    @property
    def status(self) -> str | None:
        """The last sentence among the notes."""
        return next((note for note in reversed(self.notes) if isinstance(note, str)), None)


def encode_delta(run: str, seq: int, update: Update) -> str:
    """One delta as a string that is safe inside HTML. seq: its number."""
    delta: dict[str, Any] = {"run": run, "seq": seq, "over": update.over}
    parts = {
        "header": update.header and event_dict(update.header),
        "rounds": [_round(one) for one in update.rounds],
        "end": update.end and event_dict(update.end),
        "status": update.status,
        "error": update.error,
        "fall_back": bool(update.error and update.fall_back),
        "remark": None if update.error else update.remark,
    }
    delta |= {name: value for name, value in parts.items() if value}
    # orjson reads dataclasses in C: encoding must not hold up the thread that reads the results.
    return orjson.dumps(delta).decode().replace("<", "\\u003c")


def _round(event: Round) -> dict[str, Any]:
    kept = 0
    for drafted, emitted in zip(event.drafted, event.emitted, strict=False):
        if drafted != emitted:
            break
        kept += 1
    rare = {name: getattr(event, name) for name in ("wall", "exchanged", "server_seconds")}
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
        **{name: value for name, value in rare.items() if value is not None},
    }

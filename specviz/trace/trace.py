"""The one currency of specviz: a lane yields `Round`s, a race yields `Header`, `Round`s, `End`.

The page, the charts, the metrics, the recordings and the tests read these and nothing else.
A `Trace` is such a sequence in memory; as JSON it is
`{"schema": 1, "header": {...}, "rounds": [...], "end": {...}}` with the field names used here,
and in a saved file also `"digest"`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from ..errors import TraceError
from .events import End, Event, Header, Lane, Round, Token
from .schema import SCHEMA, read_trace


@dataclass(slots=True)
class Trace:
    """A run: its header, the rounds of both lanes in clock order, and its end if it has one."""

    header: Header
    rounds: list[Round] = field(default_factory=list)
    end: End | None = None

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Trace:
        """The trace of a finished sequence of events. Raises `TraceError` without a header."""
        trace: Trace | None = None
        for event in events:
            if isinstance(event, Header):
                trace = cls(event)
            elif trace is None:
                raise TraceError("a trace must begin with its header: pass all events of a race.")
            elif isinstance(event, Round):
                trace.rounds.append(event)
            else:
                trace.end = event
        if trace is None:
            raise TraceError("there are no events: pass what race() yields.")
        return trace

    def lane(self, lane: Lane) -> list[Round]:
        """The rounds of one lane, in order."""
        return [r for r in self.rounds if r.lane == lane]

    def text(self, lane: Lane) -> str:
        """What a lane wrote."""
        return "".join(t.text for r in self.lane(lane) for t in r.emitted)

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON-ready values, by the schema in this module's docstring."""
        return {
            "schema": SCHEMA,
            "header": event_dict(self.header),
            "rounds": [event_dict(r) for r in self.rounds],
            "end": event_dict(self.end) if self.end else None,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trace:
        """The trace that `to_dict` made. Raises `TraceError` naming the first thing wrong."""
        return cls(*read_trace(data))

    def save(self, path: str | Path) -> None:
        """Write JSON to `path`, gzipped if its name ends in .gz. Raises `TraceError`."""
        data = self.to_dict()
        raw = orjson.dumps({**data, "digest": digest_of(data)})
        packed = gzip.compress(raw, mtime=0) if str(path).endswith(".gz") else raw
        write_whole(Path(path), packed)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote. Raises `TraceError` if the file is missing or no trace.

        For files of your own: `recording.read_recording` also holds a stranger's to its word.
        """
        try:
            raw = Path(path).read_bytes()
            data = orjson.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise TraceError(f"{Path(path).name} cannot be read as a trace: {error}.") from error
        return cls.from_dict(data)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or, on a full disk, as it was before.

    Raises `TraceError`.
    """
    # Beside it, for only within one file system does it replace the old one in one step. What
    # is no plain file, such as /dev/stdout, cannot be replaced.
    plain = path.is_file() or not path.exists()
    whole = path.resolve() if plain else path
    beside = whole.with_name(f".{whole.name}.{os.getpid()}.part") if plain else path
    try:
        beside.write_bytes(content)
        if plain:
            beside.replace(whole)
    except OSError as error:
        if plain:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
        raise TraceError(f"{path.name} cannot be written: {error.strerror}.") from error


def digest_of(data: dict[str, Any]) -> str:
    """A fingerprint of a trace's JSON values, the same whoever wrote them down.

    It finds accidents and careless edits; whoever wants to deceive can compute it too.
    """
    parts = {name: data[name] for name in ("header", "rounds", "end")}
    # JavaScript writes 1.0 as 1: all numbers are floats here.
    plain = json.loads(orjson.dumps(parts), parse_int=float)
    return "sha256:" + hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()


def event_dict(event: Event) -> dict[str, Any]:
    """One event as JSON-ready values. Empty and None fields of tokens are left out."""
    if not isinstance(event, Round):
        return asdict(event)
    values = {f.name: getattr(event, f.name) for f in fields(Round)}
    # By hand: asdict copies deeply, which a page that sends hundreds of tokens a second feels.
    for name in ("drafted", "emitted"):
        values[name] = [_token_dict(token) for token in values[name]]
    return values


TOKEN_FIELDS = tuple(f.name for f in fields(Token))
TOPS = ("top_p", "top_q", "top_residual")


def _token_dict(token: Token) -> dict[str, Any]:
    values = {}
    for name in TOKEN_FIELDS:
        value = getattr(token, name)
        if name in TOPS:
            value = [{"id": c.id, "text": c.text, "probability": c.probability} for c in value]
        if value is not None and value != []:
            values[name] = value
    return values

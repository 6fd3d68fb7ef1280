"""The trace of a run: the events of a race in memory, as JSON and in a file.

A lane yields `Round`s; a race yields a `Header`, `Round`s and an `End`. The page, the charts, the
metrics and the recordings derive everything from these events. As JSON a trace is
`{"schema": 2, "header": {...}, "rounds": [...], "end": {...}}` with the field names of the events;
a saved file also has `"digest"`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from ..base.errors import TraceError
from ..core.events import SCHEMA, UNKNOWN_ID, End, Event, Header, Round
from ..core.lanes import Lane

GZIP = b"\x1f\x8b"  # the first bytes of a gzipped file


@dataclass(slots=True, repr=False)
class Trace:
    """A run: its header, the rounds of all lanes in clock order, and its end if it has one."""

    header: Header
    rounds: list[Round] = field(default_factory=list)
    end: End | None = None

    def __repr__(self) -> str:
        """A one-line summary: a run may have thousands of rounds."""
        lanes = ", ".join(self.lanes)
        tokens = sum(len(r.emitted) for r in self.rounds)
        size = f"{len(self.rounds)} rounds, {tokens} tokens"
        if self.end is None:
            size += ", not finished"
        return f"<Trace of {self.header.target['name']}: {lanes}; {size}>"

    def _repr_html_(self) -> str | None:
        """The small player for a notebook cell; None if the run is too long."""
        from .html import cell_html

        return cell_html(self)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Trace:
        """The trace of all events of a race; raises `TraceError` if the header is not first.

        A round with the lane and the index of an earlier one replaces it and all later rounds of
        its lane: a watched server may report its drafts only at the end.
        """
        trace: Trace | None = None
        for event in events:
            if isinstance(event, Header):
                trace = cls(event)
            elif trace is None:
                raise TraceError("the first event is not the header: pass all events of a race.")
            elif isinstance(event, End):
                trace.end = event
            else:
                if trace.header.source is not None:
                    trace.rounds = [r for r in trace.rounds if not _is_replaced(r, event)]
                trace.rounds.append(event)
        if trace is None:
            raise TraceError("there are no events: pass those that race() yields.")
        return trace

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The names of all lanes, the baseline last."""
        return self.header.all_lanes

    def speculative_lane(self, lane: Lane | None = None) -> Lane:
        """The name of a lane with drafts: `lane`, or the first one for None. Raises `TraceError`
        if there is no such lane."""
        lanes = self.header.speculative
        if lane is None:
            return lanes[0]
        if lane not in lanes:
            names = ", ".join(map(repr, lanes))
            raise TraceError(f"this run has no lane {lane!r} with drafts: use one of {names}.")
        return lane

    def lane(self, lane: Lane) -> list[Round]:
        """The rounds of one lane, in order; none if there is no such lane."""
        return [r for r in self.rounds if r.lane == lane]

    def text(self, lane: Lane) -> str:
        """The text that a lane emitted."""
        texts: list[str] = []
        for r in self.lane(lane):
            texts += [token.text for token in r.emitted]
        return "".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON-ready values, in the form that this module's docstring gives."""
        end: dict[str, Any] | None = None
        if self.end is not None:
            end = event_dict(self.end)
        return {
            "schema": SCHEMA,
            "header": event_dict(self.header),
            "rounds": [event_dict(r) for r in self.rounds],
            "end": end,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trace:
        """The trace in the values that `to_dict` made.

        Raises `TraceError` with the first field that breaks the schema.
        """
        # This check comes first: a file of another version is not a damaged file.
        version = None
        if isinstance(data, dict):
            version = data.get("schema")
        if type(version) is int and not 1 <= version <= SCHEMA:
            raise TraceError(
                f"this recording has schema {version:.6g} and this version of specviz reads up to "
                f"schema {SCHEMA}: open it with a newer version."
            )
        if version == 1:
            from .schema_1 import upgraded

            data = upgraded(data)
        from .schema import read_parts  # imports pydantic, which only files need

        header, rounds, end = read_parts(data)
        return cls(header, rounds, end)

    def save(self, path: str | Path) -> None:
        """Write JSON to `path`, gzipped if the name ends in .gz.

        Raises `TraceError` if the file cannot be written.
        """
        data = self.to_dict()
        data["digest"] = digest_of(data)
        raw = orjson.dumps(data)
        if str(path).endswith(".gz"):
            raw = gzip.compress(raw, mtime=0)
        write_atomically(Path(path), raw)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote. Raises `TraceError` if it is missing or not a trace.

        Use it for your own files; for a file of another user use `recording.read_file`, which
        also checks sizes, digest and rules, as the verbs `check` and `export` and the page do.
        """
        try:
            raw = Path(path).read_bytes()
            if raw[:2] == GZIP:
                raw = gzip.decompress(raw)
            data = orjson.loads(raw)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise TraceError(f"{Path(path).name} cannot be read as a trace: {error}.") from error
        return cls.from_dict(data)


def _is_replaced(earlier: Round, later: Round) -> bool:
    return earlier.lane == later.lane and earlier.index >= later.index


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file in one step: after an error, such as a full disk, the old file is unchanged.

    Raises `TraceError` if it cannot be written.
    """
    # A file can replace another in one step only within one file system, so the new one is first
    # written next to it. What is not a plain file, such as /dev/stdout, cannot be replaced.
    is_plain = path.is_file() or not path.exists()
    try:
        if is_plain:
            _replace(path.resolve(), content)
        else:
            path.write_bytes(content)
    except OSError as error:
        raise TraceError(f"{path.name} cannot be written: {error.strerror}.") from error


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def digest_of(data: dict[str, Any]) -> str:
    """SHA-256 of a trace's JSON values, the same whether Python or JavaScript wrote them.

    It detects damage and careless edits. It does not protect against forgery: anyone can compute
    the digest of other values.
    """
    parts = {name: data[name] for name in ("header", "rounds", "end")}
    # JavaScript writes 1.0 as 1, so all numbers are made floats.
    plain = json.loads(orjson.dumps(parts), parse_int=float)
    canonical = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def event_dict(event: Event) -> dict[str, Any]:
    """One event as JSON-ready values. Empty and None fields of tokens are left out, and so is what
    only a race of named lanes, or with a server, has."""
    # Through JSON and not by asdict, whose deep copy is far slower than both ways in C.
    values = _without_rare(orjson.loads(orjson.dumps(event)))
    if isinstance(event, Round):
        values["drafted"] = [_without_empty(token) for token in values["drafted"]]
        if values["last"] is not None:
            values["last"] = _without_empty(values["last"])
    return values


def round_values(event: Round) -> dict[str, Any]:
    """The fields of a round, without what only some rounds have. Its tokens stay as they are."""
    values = {field.name: getattr(event, field.name) for field in fields(Round)}
    return _without_rare(values)


def _without_rare(values: dict[str, Any]) -> dict[str, Any]:
    left_out = {name for name in RARE if values.get(name) is None}
    return {name: value for name, value in values.items() if name not in left_out}


def _without_empty(token: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in token.items() if value not in EMPTY}


RARE = (
    "lanes",
    "source",
    "streaming_rate",
    "counted",
    "question",
    "messages",
    "wall",
    "exchanged",
    "server_seconds",
)
"""The fields of events that are left out where they are None."""
EMPTY: tuple[Any, ...] = (None, [], UNKNOWN_ID)  # no other field of a token can be negative
TOPS = ("top_p", "top_q", "top_residual")
"""The fields of a token that list the likeliest tokens of its position."""

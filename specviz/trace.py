"""The one currency of specviz: a lane yields `Round`s, a race yields `Header`, `Round`s, `End`.

The page, the charts, the metrics, the recordings and the tests read these and nothing else.
A `Trace` is such a sequence in memory; as JSON it is
`{"schema": 1, "header": {...}, "rounds": [...], "end": {...}}` with the field names used here.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .errors import TraceError
from .settings import Settings

SCHEMA = 1

Lane: TypeAlias = Literal["speculative", "baseline"]
LANES: tuple[Lane, Lane] = ("speculative", "baseline")

Outcome: TypeAlias = Literal["accepted", "rejected", "ignored", "corrected", "bonus"]
OUTCOMES: tuple[Outcome, ...] = ("accepted", "rejected", "ignored", "corrected", "bonus")

EndReason: TypeAlias = Literal["eos", "length", "context", "stop", "stopped"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One entry of a top five: a token and its probability."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Token:
    """One drafted or emitted token and what was known when it was judged.

    p, q: its probability under the processed target and draft distributions; `q` is None for
        a token that no draft proposed, `p` is None for a draft that was never judged.
    u: the uniform draw in [0, 1) that it was judged with: accepted if and only if u < p / q.
    beta: sum over the vocabulary of min(p, q) at its position, if it was judged.
    top_p, top_q, top_residual: the five likeliest tokens of each distribution at its position;
        the residual norm(max(0, p - q)) only where it was drawn from. When greedy, where p and
        q are one-hot, the lists hold the models' own softmax at temperature 1 instead, and
        `soft_p` and `soft_q` hold this token's probability in it.
    """

    id: int
    text: str
    outcome: Outcome
    p: float | None = None
    q: float | None = None
    u: float | None = None
    beta: float | None = None
    soft_p: float | None = None
    soft_q: float | None = None
    top_p: tuple[Choice, ...] = ()
    top_q: tuple[Choice, ...] = ()
    top_residual: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One draft run and one target pass over it.

    lane, index: which lane, and the round's number in it, from 0.
    drafted: all drafted tokens, in order; empty in the baseline lane.
    emitted: the accepted ones, then the corrected or bonus one (missing if an end cut it).
    draft_seconds, verify_seconds: the draft run; the target pass, probabilities and verdict.
    overhead_seconds: all else of the round that the lane's clock counts.
    clock: the lane's seconds at the end of the round, prefill not included.
    """

    lane: Lane
    index: int
    drafted: list[Token]
    emitted: list[Token]
    draft_seconds: float
    verify_seconds: float
    overhead_seconds: float
    clock: float


@dataclass(frozen=True, slots=True)
class Header:
    """What is known before the first round.

    prompt, prompt_ids: the text shown and the ids that were fed.
    target, draft: {"name": str, "parameters": int, "form": str}; draft is None without one.
    device, dtype, versions, threads, date: where and when it ran; date is ISO 8601 in UTC.
    prefill_seconds: lane -> model ("target", "draft") -> seconds.
    mode: "interleaved" or "sequential".
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    settings: Settings
    target: dict[str, Any]
    draft: dict[str, Any] | None
    device: str
    dtype: str
    versions: dict[str, str]
    threads: int
    date: str
    prefill_seconds: dict[str, dict[str, float]]
    mode: str = "interleaved"


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two greedy lanes part: the first differing place among the emitted tokens, and the
    target's top-two margin there (difference of logits in nats, from the baseline lane)."""

    index: int
    margin: float | None


@dataclass(frozen=True, slots=True)
class End:
    """How a race ended.

    reasons: lane -> why it ended; "stopped" if it was cut short from outside.
    identical: whether both lanes emitted the same ids as far as both got; None when sampling,
        where two lanes are two draws from one law and need not agree.
    compared: how many leading tokens `identical` speaks of.
    divergence: the first difference, if there is one and the run is greedy.
    """

    reasons: dict[str, EndReason]
    identical: bool | None = None
    compared: int = 0
    divergence: Divergence | None = None


Event: TypeAlias = Header | Round | End


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
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else None
            raise TraceError(f"this trace has schema {found!r}: this version reads {SCHEMA}.")
        try:
            return cls(
                _header(data["header"]),
                [_round(r) for r in data["rounds"]],
                _end(data["end"]) if data.get("end") else None,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise TraceError(f"this trace is damaged: {error}. Record it again.") from error

    def save(self, path: str | Path) -> None:
        """Write JSON to `path`, gzipped if its name ends in .gz."""
        raw = json.dumps(self.to_dict(), separators=(",", ":")).encode()
        packed = gzip.compress(raw, mtime=0) if str(path).endswith(".gz") else raw
        Path(path).write_bytes(packed)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote. Raises `TraceError` if the file is missing or no trace."""
        try:
            raw = Path(path).read_bytes()
            data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise TraceError(f"{Path(path).name} cannot be read as a trace: {error}.") from error
        return cls.from_dict(data)


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


def _token(data: dict[str, Any]) -> Token:
    tops = {name: tuple(Choice(**choice) for choice in data[name]) for name in TOPS if name in data}
    return Token(**{**data, **tops})


def _round(data: dict[str, Any]) -> Round:
    drafted, emitted = (list(map(_token, data[name])) for name in ("drafted", "emitted"))
    return Round(**{**data, "drafted": drafted, "emitted": emitted})


def _header(data: dict[str, Any]) -> Header:
    names = {f.name for f in fields(Header)}
    values = {k: v for k, v in data.items() if k in names}
    settings = Settings.from_dict(values["settings"])
    return Header(**{**values, "settings": settings, "prompt_ids": tuple(values["prompt_ids"])})


def _end(data: dict[str, Any]) -> End:
    divergence = Divergence(**data["divergence"]) if data.get("divergence") else None
    return End(**{**data, "divergence": divergence})

"""The bodies of requests: read up to a limit, and checked before Gradio parses them."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from starlette.types import Message, Receive

KIB, MIB = 2**10, 2**20
SMALL = 256 * KIB  # bytes; every request fits but a file, and a sweep of a visitor's own prompts
QUESTION = MIB  # bytes of a call of a server function
EVENT = 128 * KIB  # bytes; the longest prompt fits, with all its characters as escapes
MOST_ARGUMENTS = 64  # values of an event, and texts in one of them
FORM = 16 * KIB  # bytes of a name and a password
LARGE_AT_ONCE = 4
LARGE_OF_CLIENT = 2  # of these, from one address
PATIENCE = 60.0  # seconds that a body may take to arrive
SILENCE = 5.0  # seconds between two parts of it
SLOWEST = 16 * KIB  # bytes per second, after the first `SILENCE`
MOST_STRINGS = (
    300  # in a large body, which is the wish of a sweep: a kind and a text of each prompt
)
NAME = re.compile(r"[\w.-]{1,64}")

NOT_OURS = "This request is not one that the page makes, nor one of the API (docs/api.md)."
TOO_LARGE = "This request holds more than {} KiB, the most that is taken here."
TOO_SLOW = "This request took too long to arrive: try again."
CROWDED = "Too many large files are arriving at once: try again in a minute."
SHARE_USED = "Too many large files of your network are arriving at once: try again in a minute."
RETRY = 10  # seconds after which a refused client may try again


class Refused(Exception):
    """A request is refused. status: of the HTTP answer; str() is its sentence. retry: seconds after
    which the client may try again, if that helps."""

    def __init__(self, status: int, sentence: str, *, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry = retry


class Bodies:
    """Limits the large bodies in memory to `LARGE_AT_ONCE` at a time, so that many senders together
    cannot fill it, and to `LARGE_OF_CLIENT` of each address, so that none keeps others out."""

    def __init__(self) -> None:
        self._large: Counter[str] = Counter()

    @contextmanager
    def room(self, client: str) -> Iterator[Body]:
        """A body of this client to be read. If it is large, it counts as such until the end of the
        block."""
        body = Body(lambda: self._take_place(client))
        try:
            yield body
        finally:
            self._large -= Counter({client: int(body.large)})

    def _take_place(self, client: str) -> None:
        if self._large.total() >= LARGE_AT_ONCE:
            raise Refused(503, CROWDED, retry=RETRY)
        if self._large[client] >= LARGE_OF_CLIENT:
            raise Refused(429, SHARE_USED, retry=RETRY)
        self._large[client] += 1


class Body:
    """The body of one request. take_place: called when it becomes a large one; raises `Refused` if
    there are too many. large: whether it counts as a large one."""

    def __init__(self, take_place: Callable[[], None]) -> None:
        self.raw = b""
        self.large = False
        self._take_place = take_place

    async def read(self, receive: Receive, most: int, promised: str | None) -> None:
        """Read it to its end. Raises `Refused` as soon as it has more than `most` bytes, or if its
        header, `promised`, says so; no more is kept."""
        if promised and (not promised.isdigit() or int(promised[:18]) > most):
            raise Refused(413, TOO_LARGE.format(most // KIB))
        parts, size, more = [], 0, True
        began = time.monotonic()
        while more:
            behind = began + SILENCE + size / SLOWEST
            deadline = min(began + PATIENCE, time.monotonic() + SILENCE, behind)
            message = await _before(deadline, receive)
            part = message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
            size += len(part)
            if size > most:
                raise Refused(413, TOO_LARGE.format(most // KIB))
            if size > SMALL and not self.large:
                self._take_place()
                self.large = True
            parts.append(part)
        self.raw = b"".join(parts)

    def replay(self, receive: Receive) -> Receive:
        """A `Receive` that gives the body to the next reader, and then the messages after it."""
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": self.raw, "more_body": False}

        return again


async def _before(deadline: float, receive: Receive) -> Message:
    try:
        return await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
    except (TimeoutError, asyncio.TimeoutError):
        raise Refused(408, TOO_SLOW) from None


def check_event(raw: bytes) -> None:
    """Raise `Refused` unless this is a request for an event, as the page or a client sends it.

    Its values must be plain: an object could name a file or an address that Gradio fetches.
    """
    body = _object(raw)
    data = body.get("data", [])
    _check_names(body, "session_hash", "event_id")
    if not isinstance(data, list) or len(data) > MOST_ARGUMENTS or not all(map(_plain, data)):
        raise Refused(400, NOT_OURS)
    if body.get("batched") or not isinstance(body.get("fn_index"), int | None):
        raise Refused(400, NOT_OURS)


def check_named_values(raw: bytes) -> None:
    """Raise `Refused` unless these are plain values by name."""
    values = _object(raw).values()
    if len(values) > MOST_ARGUMENTS or not all(map(_plain, values)):
        raise Refused(400, NOT_OURS)


def check_question(raw: bytes) -> None:
    """Raise `Refused` unless this is a call of a server function, as the player sends it."""
    if len(raw) > SMALL and _structure(raw) > SMALL:
        raise Refused(400, NOT_OURS)
    body = _object(raw)
    _check_names(body, "session_hash", "fn_name")
    if not isinstance(body.get("data"), dict) or not isinstance(body.get("component_id"), int):
        raise Refused(400, NOT_OURS)


def check_object(raw: bytes) -> None:
    """Raise `Refused` unless this is a JSON object whose names are short."""
    _check_names(_object(raw), "session_hash", "event_id")


def _structure(raw: bytes) -> int:
    """Bytes outside of strings, or `len(raw)` if there are many strings. It measures what a parser
    would have to build, without parsing."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MOST_STRINGS:
        return len(raw)
    return sum(map(len, plain.split(b'"')[::2]))


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Refused(400, NOT_OURS) from None
    if not isinstance(value, dict):
        raise Refused(400, NOT_OURS)
    return value


def _check_names(body: dict[str, Any], *names: str) -> None:
    # Gradio keeps these for as long as it runs.
    for name in names:
        value = body.get(name)
        if value is not None and not (isinstance(value, str) and NAME.fullmatch(value)):
            raise Refused(400, NOT_OURS)


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MOST_ARGUMENTS and all(isinstance(one, str) for one in value)
    return value is None or isinstance(value, str | int | float)

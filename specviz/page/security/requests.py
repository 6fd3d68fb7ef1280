"""Requests: their senders, the request being answered, and bodies, which are read up to a limit and
checked before Gradio parses them."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Literal, TypeAlias
from uuid import uuid4

import orjson
from pydantic import BaseModel, Field, TypeAdapter
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from ...base.logs import REQUEST

ID = "x-request-id"
_RANGE = re.compile(rb"bytes=\d{1,9}-(\d{1,9})?")
_PROXY_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)  # by a proxy


def with_id(scope: Scope) -> Scope:
    """Give a request an id: the proxy's own id if it sent one."""
    scope = dict(scope)
    headers = MutableHeaders(scope=scope)
    proxy_id = headers.get(ID, "")
    if _PROXY_ID.fullmatch(proxy_id):
        headers[ID] = proxy_id
    else:
        headers[ID] = uuid4().hex[:16]
    return scope


def without_origin(app: ASGIApp) -> ASGIApp:
    """Wrap Gradio's application so that it gets no `origin` header, and `range` only in forms that
    it understands. Gradio would let the site that `origin` names read the answer, and it fails for
    most forms of `range`, which may be ignored."""

    async def passed(scope: Scope, receive: Receive, send: Send) -> None:
        headers = []
        for name, value in scope["headers"]:
            if _is_for_gradio(name, value):
                headers.append((name, value))
        await app({**scope, "headers": headers}, receive, send)

    return passed


def _is_for_gradio(name: bytes, value: bytes) -> bool:
    if name == b"origin":
        return False
    if name == b"range":
        return bool(_RANGE.fullmatch(value))
    return True


def client_of(scope: Scope) -> str:
    """The client's address; for IPv6 its network, since one visitor has many addresses in it.
    Behind a proxy that uvicorn trusts it is the address that the proxy names.
    """
    client = scope.get("client") or ("",)
    host = str(client[0])
    try:
        return str(ipaddress.IPv6Network((host, 64), strict=False))
    except ValueError:
        return host


CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The address of the request that is being answered; empty without one."""


def note(scope: Scope) -> None:
    """Set the context's address for jobs and its request id for the log: Gradio runs events outside
    of their requests."""
    CLIENT.set(client_of(scope))
    REQUEST.set(Headers(scope=scope).get(ID, ""))


KIB = 2**10
MIB = 2**20
SMALL = 256 * KIB  # bytes; every request fits but a file, and a sweep of a visitor's own prompts
QUESTION = MIB  # bytes of a question of the page
EVENT = 128 * KIB  # bytes; the longest prompt fits, with all its characters as escapes
FORM = 16 * KIB  # bytes of a name and a password
LARGE_AT_ONCE = 4
LARGE_OF_CLIENT = 2  # large bodies from one address
BODY_PATIENCE = 60.0  # seconds that a body may take to arrive
SILENCE = 5.0  # seconds between two parts of it
SLOWEST = 16 * KIB  # bytes per second, after the first `SILENCE`
MAX_STRINGS = 300  # in a large body: a sweep's request has a kind and a text for each prompt

NOT_OURS = "This request is neither one of the page's nor one of the API's (docs/api.md)."
TOO_LARGE = "This request is larger than {} KiB, the limit here."
TOO_SLOW = "This request took too long to arrive: try again."
CROWDED = "Too many large files are arriving at once: try again in a minute."
SHARE_USED = "Too many large files from your network are arriving at once: try again in a minute."
RETRY = 10  # seconds after which a refused client may try again


class Refused(Exception):
    """A refused request. status: of the HTTP answer; str() is its sentence. retry: seconds after
    which the client may try again, if that helps."""

    def __init__(self, status: int, sentence: str, *, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry = retry


class Bodies:
    """Limits the large bodies in memory to `LARGE_AT_ONCE` in all, so that many senders together
    cannot fill it, and to `LARGE_OF_CLIENT` for each address, so that none blocks others."""

    def __init__(self) -> None:
        self._large: Counter[str] = Counter()

    @asynccontextmanager
    async def read(
        self, receive: Receive, max_bytes: int, promised: str | None, client: str
    ) -> AsyncIterator[bytes]:
        """Read the whole body of a request. A large body counts as such until the end of the block.
        Raises `Refused` as soon as it has more than `max_bytes`, or if its length header,
        `promised`, exceeds that; no more is stored."""
        if promised:
            is_too_large = not promised.isdigit() or int(promised[:18]) > max_bytes
            if is_too_large:
                raise Refused(413, TOO_LARGE.format(max_bytes // KIB))
        parts = []
        size = 0
        more = True
        large = 0
        began = time.monotonic()
        try:
            while more:
                spent = time.monotonic() - began
                allowed = min(BODY_PATIENCE, SILENCE + size / SLOWEST)
                left = min(SILENCE, allowed - spent)
                try:
                    message = await asyncio.wait_for(receive(), max(0.0, left))
                except asyncio.TimeoutError:
                    raise Refused(408, TOO_SLOW) from None
                part = message.get("body", b"")
                more = message["type"] == "http.request" and message.get("more_body", False)
                size += len(part)
                if size > max_bytes:
                    raise Refused(413, TOO_LARGE.format(max_bytes // KIB))
                if size > SMALL and not large:
                    self._take_place(client)
                    large = 1
                parts.append(part)
            yield b"".join(parts)
        finally:
            self._large -= Counter({client: large})

    def _take_place(self, client: str) -> None:
        if self._large.total() >= LARGE_AT_ONCE:
            raise Refused(503, CROWDED, retry=RETRY)
        if self._large[client] >= LARGE_OF_CLIENT:
            raise Refused(429, SHARE_USED, retry=RETRY)
        self._large[client] += 1


MAX_ARGUMENTS = 64  # values of an event, and strings or numbers in one value
# Gradio keeps names for as long as it runs.
Name = Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")]
# An object could name a file or an address that Gradio would fetch.
_Texts = Annotated[list[str], Field(max_length=MAX_ARGUMENTS)]
_Numbers = Annotated[list[int | float], Field(max_length=MAX_ARGUMENTS)]
Plain = str | int | float | bool | None | _Texts | _Numbers


class _Named(BaseModel, strict=True):
    session_hash: Name | None = None
    event_id: Name | None = None


class _Event(_Named):
    data: Annotated[list[Plain], Field(max_length=MAX_ARGUMENTS)] = []
    fn_index: int | None = None
    batched: Literal[False] | None = None


Kind: TypeAlias = TypeAdapter[Any]
_PLAIN: Kind = TypeAdapter(Plain)
_NUMBERS: Kind = TypeAdapter(_Numbers)
NAMED: Kind = TypeAdapter(_Named)
EVENTS: Kind = TypeAdapter(_Event)  # as the page or a client sends it
VALUES: Kind = TypeAdapter(Annotated[dict[str, Plain], Field(max_length=MAX_ARGUMENTS)])
QUESTIONS: Kind = TypeAdapter(dict[str, Any])  # a question of the page


def check(raw: bytes, kind: Kind) -> None:
    """Raise `Refused` unless this is JSON of this kind."""
    try:
        if len(raw) > SMALL and _structure(raw) > SMALL:
            raise ValueError
        kind.validate_python(orjson.loads(raw), strict=True)
    except ValueError:
        raise Refused(400, NOT_OURS) from None


def is_plain(value: object) -> bool:
    """Whether a field of an event may hold this value."""
    return _is(_PLAIN, value)


def are_numbers(value: object) -> bool:
    """Whether the value is a list of numbers, which few fields take."""
    return bool(value) and _is(_NUMBERS, value)


def _is(kind: Kind, value: object) -> bool:
    try:
        kind.validate_python(value, strict=True)
    except ValueError:
        return False
    return True


def _structure(raw: bytes) -> int:
    """Count the bytes outside of strings, or all bytes if there are many strings: an estimate of a
    parser's work, without parsing."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MAX_STRINGS:
        return len(raw)
    outside_strings = plain.split(b'"')[::2]
    return sum(map(len, outside_strings))

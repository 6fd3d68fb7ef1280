"""What every request gets: an id, and in its answer headers that say how long it may be kept; and
who sends it."""

from __future__ import annotations

import ipaddress
import re
from uuid import uuid4

from gradio.context import LocalContext
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..logs import REQUEST

ID = "x-request-id"
_GIVEN = re.compile(r"[\w.-]{1,64}", re.ASCII)  # by a proxy
_HASHED = re.compile(r"/assets/.*-[\w-]{8}\.\w+")  # Gradio's: another content has another name
_FILES = re.compile(r"/(assets|static|favicon|gradio_api/file=)|/$")

FOR_EVER = "public, max-age=31536000, immutable"
CHECKED = "no-cache"  # may be kept, and is asked for again: a new release must not mix with an old
NEVER = "no-store"  # answers that may hold what visitors wrote


class Requests:
    """The ASGI middleware. A proxy's own X-Request-ID is taken over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        given = asked.get(ID, "")
        name = given if _GIVEN.fullmatch(given) else uuid4().hex[:16]
        others = [pair for pair in scope["headers"] if pair[0] != ID.encode()]
        scope = {**scope, "headers": [*others, (ID.encode(), name.encode())]}
        kept = asked.get("if-none-match", "").removeprefix("W/")  # a proxy that compresses adds it
        answer = _Answer(send, name, scope["path"], kept)
        before = REQUEST.set(name)
        try:
            await self._app(scope, receive, answer.send)
        finally:
            REQUEST.reset(before)


class _Answer:
    """Adds headers to an answer, and leaves out a file that the client has kept."""

    def __init__(self, send: Send, name: str, path: str, kept: str) -> None:
        self._send = send
        self._name, self._path, self._kept = name, path, kept
        self._unchanged = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = self._with_headers(message)
        elif self._unchanged:
            message = {**message, "body": b""}
        await self._send(message)

    def _with_headers(self, message: Message) -> Message:
        headers = MutableHeaders(raw=list(message.get("headers", [])))
        headers[ID] = self._name
        if message["status"] in (200, 206):
            headers["cache-control"] = _lifetime(self._path)
        else:
            headers.setdefault("cache-control", NEVER)
        tag = headers.get("etag")
        self._unchanged = message["status"] == 200 and tag is not None and tag == self._kept
        if self._unchanged:
            del headers["content-length"]
        status = 304 if self._unchanged else message["status"]
        return {**message, "status": status, "headers": headers.raw}


def _lifetime(path: str) -> str:
    if _HASHED.search(path):
        return FOR_EVER
    return CHECKED if _FILES.search(path) else NEVER


def note_request() -> None:
    """Write the id of the visitor's request to the log from now on. For handlers of events, which
    Gradio runs outside of their requests."""
    request = LocalContext.request.get(None)
    headers = getattr(request, "headers", None)
    if headers is not None:
        REQUEST.set(str(headers.get(ID, "")))


def client_of(scope: Scope) -> str:
    """The address of a request; of IPv6 its network, in which one visitor has many addresses.

    Behind a proxy it is the address that the proxy names, if uvicorn trusts the proxy.
    """
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def client_here() -> str:
    """The address of the request that Gradio is answering in this thread; empty without one."""
    request = LocalContext.request.get(None)
    scope = getattr(getattr(request, "request", request), "scope", None)
    return client_of(scope) if scope else ""

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
    """The ASGI middleware. A proxy's own X-Request-ID is taken over, and a file that the client has
    kept is left out of its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = dict(scope)
        asked = MutableHeaders(scope=scope)
        given = asked.get(ID, "")
        asked[ID] = name = given if _GIVEN.fullmatch(given) else uuid4().hex[:16]
        kept = asked.get("if-none-match", "").removeprefix("W/")  # a proxy that compresses adds it
        unchanged = False

        async def answer(message: Message) -> None:
            nonlocal unchanged
            if message["type"] == "http.response.start":
                headers, status = MutableHeaders(scope=message), message["status"]
                headers[ID] = name
                if status in (200, 206):
                    headers["cache-control"] = _lifetime(scope["path"])
                headers.setdefault("cache-control", NEVER)
                if unchanged := bool(kept) and status == 200 and headers.get("etag") == kept:
                    message["status"] = 304
                    del headers["content-length"]
            elif unchanged:
                message = {**message, "body": b""}
            await send(message)

        before = REQUEST.set(name)
        try:
            await self._app(scope, receive, answer)
        finally:
            REQUEST.reset(before)


def _lifetime(path: str) -> str:
    if _HASHED.search(path):
        return FOR_EVER
    return CHECKED if _FILES.search(path) else NEVER


def _scope_here() -> Scope:
    """The request that Gradio is answering in this thread; empty without one."""
    request = LocalContext.request.get(None)
    return getattr(getattr(request, "request", request), "scope", None) or {}


def note_request() -> None:
    """Write the id of the visitor's request to the log from now on. For handlers of events, which
    Gradio runs outside of their requests."""
    if scope := _scope_here():
        REQUEST.set(Headers(scope=scope).get(ID, ""))


def client_of(scope: Scope) -> str:
    """The address of a request; of IPv6 its network, in which one visitor has many addresses.

    Behind a proxy it is the address that the proxy names, if uvicorn trusts the proxy.
    """
    host = str((scope.get("client") or ("",))[0])
    try:
        return str(ipaddress.IPv6Network((host, 64), strict=False))
    except ValueError:
        return host


def client_here() -> str:
    """The address of the request that Gradio is answering in this thread; empty without one."""
    return client_of(_scope_here())

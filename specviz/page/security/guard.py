"""The middleware between the network and Gradio.

It decides which addresses exist and how large a request may be, adds headers to every answer, and
replaces the details of failures by sentences.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import orjson
from gradio.data_classes import _StaticFiles
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...worker.failures import FAILED
from .bodies import (
    FORM,
    LARGE,
    NOT_OURS,
    SMALL,
    Bodies,
    Body,
    Refused,
    check_event,
    check_named_values,
    check_object,
    check_question,
)
from .card import address_of, with_card
from .headers import security_headers, with_nonce

log = logging.getLogger(__name__)

NOTHING = "There is nothing at this address."
SENTENCES = {
    400: NOT_OURS,
    401: "This page has a password: sign in first.",
    404: NOTHING,
    405: NOTHING,
    422: NOT_OURS,
    500: FAILED,
    503: "The server is busy: try again in a minute.",
}
OTHERWISE = "This request was refused."

API = "/gradio_api/"
FILE = API + "file="
OPEN = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|pwa_icon|logout)/?"
    r"|/(assets|static)/[\w./-]+"
    r"|/gradio_api/(info|openapi\.json|app_id|user|login_check|token|theme\.css|startup-events"
    r"|queue/status|queue/data|heartbeat/[\w.-]{1,64})/?"
    r"|/gradio_api/call/(v2/)?(generate|race|doctor)/\w{1,64}"
)
"""The addresses that may be read, besides files. Gradio itself would start any event by its name,
also the page's own."""


class Post(NamedTuple):
    """An address for POST. most: bytes of a body. check: raises `Refused` for a wrong body."""

    path: re.Pattern[str]
    most: int
    check: Callable[[bytes], None] | None


POSTS = (
    Post(re.compile(r"/login/?"), FORM, None),
    Post(re.compile(r"/gradio_api/component_server/?"), LARGE, check_question),
    Post(re.compile(r"/gradio_api/call/v2/(generate|race|doctor)/?"), SMALL, check_named_values),
    Post(re.compile(r"/gradio_api/(queue/join|call/(generate|race|doctor)/?)"), SMALL, check_event),
    Post(re.compile(r"/gradio_api/(cancel|reset/?)"), SMALL, check_object),
)
TOOLS = re.compile(r"/gradio_api/mcp(/.*)?")
TOOL_POST = Post(TOOLS, SMALL, None)


class Guard:
    """The ASGI middleware. tools: whether Gradio's MCP server is on."""

    def __init__(self, app: ASGIApp, *, tools: bool = False) -> None:
        self._app = app
        self._tools = tools
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = Answer(send, head=scope["method"] == "HEAD", address=address_of(scope))
        try:
            with self._bodies.room() as body:
                receive = await self._admitted(scope, receive, body)
                await self._app(scope, receive, answer.send)
        except Refused as refused:
            await answer.refuse(refused.status, str(refused))
        except Exception:
            # Events and server functions handle their failures: here, the body was malformed.
            malformed = scope["method"] == "POST"
            log.log(logging.INFO if malformed else logging.ERROR, "a request failed", exc_info=True)
            await answer.refuse(400 if malformed else 500)

    async def _admitted(self, scope: Scope, receive: Receive, body: Body) -> Receive:
        """The `Receive` from which Gradio reads an admitted request. Raises `Refused`."""
        method, path = scope["method"], _path_of(scope)
        tools = self._tools and bool(TOOLS.fullmatch(path))
        if method in ("GET", "HEAD"):
            if not (tools or _readable(path)):
                raise Refused(404, NOTHING)
            return receive
        if tools and method == "DELETE":
            return receive
        posts = (*POSTS, TOOL_POST) if tools else POSTS
        post = next((one for one in posts if one.path.fullmatch(path)), None)
        if method != "POST" or post is None:
            raise Refused(404, NOTHING)
        headers = Headers(scope=scope)
        # Another site can make a browser send forms here, but not JSON.
        json = headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"
        if post.check is not None and not json:
            raise Refused(400, NOT_OURS)
        await body.read(receive, post.most, headers.get("content-length"))
        if post.check is not None:
            post.check(body.raw)
        return body.replay(receive)


class Answer:
    """Changes an answer while it is sent: it adds headers, turns failures into sentences, gives
    the page's own scripts the nonce without which the browser does not run them, and has a link to
    the page at `address` show what it is."""

    def __init__(self, send: Send, *, head: bool, address: str | None) -> None:
        self._send = send
        self._head = head
        self._address = address
        self._nonce = secrets.token_urlsafe(16)
        self._started = False
        self._held: Message | None = None  # the start of an HTML page, until its body is complete
        self._page = b""
        self._muted = False

    async def send(self, message: Message) -> None:
        """Pass a part of Gradio's answer on."""
        if self._muted:
            return
        if message["type"] == "http.response.start":
            await self._start(message)
        elif self._held is not None:
            self._page += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page()
        else:
            await self._send(message)

    async def refuse(self, status: int, sentence: str | None = None) -> None:
        """Answer with a sentence, unless another answer has begun."""
        self._muted = True
        if self._started:
            return
        shown = sentence or SENTENCES.get(status, OTHERWISE)
        raw = orjson.dumps({"detail": shown, "error": shown})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(raw))]
        await self._begin({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"" if self._head else raw})

    async def _start(self, message: Message) -> None:
        if message["status"] >= 400:
            await self.refuse(message["status"])
        elif Headers(raw=message["headers"]).get("content-type", "").startswith("text/html"):
            self._held = message
        else:
            await self._begin(message)

    async def _begin(self, message: Message) -> None:
        self._started = True
        headers = MutableHeaders(raw=list(message.get("headers", [])))
        for name, value in security_headers(self._nonce).items():
            headers[name] = value
        await self._send({**message, "headers": headers.raw})

    async def _send_page(self) -> None:
        assert self._held is not None
        start, self._held = self._held, None
        page = with_card(with_nonce(self._page, self._nonce), self._address)
        headers = MutableHeaders(raw=list(start["headers"]))
        if not self._head:
            headers["content-length"] = str(len(page))
        await self._begin({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": page})


def _path_of(scope: Scope) -> str:
    """The path of a request, without the prefix that a proxy added."""
    path: str = scope["path"]
    front: str = scope.get("root_path", "").rstrip("/")
    return path[len(front) :] if front and path.startswith(front + "/") else path


def _readable(path: str) -> bool:
    if path.startswith(FILE):
        return is_public(path[len(FILE) :])
    return bool(OPEN.fullmatch(path)) and ".." not in path


def is_public(name: str) -> bool:
    """Whether this is the name of a public file, after links and dots in it are resolved.

    Gradio itself would also fetch addresses, and send every file in its cache.
    """
    try:
        path = Path(name)
        real = path.resolve()
        hidden = any(part.startswith(".") for part in path.parts[-1:])
        if not path.is_absolute() or hidden or not real.is_file():
            return False
    except (OSError, ValueError):
        return False
    return any(real == one or one in real.parents for one in _StaticFiles.all_paths)

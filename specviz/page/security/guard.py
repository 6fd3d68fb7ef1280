"""The middleware between the network and Gradio.

It decides which addresses exist and how large a request may be, asks for the password, adds headers
to every answer, and replaces the details of failures by sentences.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import time
from contextlib import nullcontext
from typing import Any

from gradio.routes import App, ORJSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...logs import REQUEST, brief
from ...variables import AUTH, MCP
from ..probes import probed
from .addresses import (
    API,
    LOGIN,
    POSTS,
    PREFLIGHT,
    SIGN_IN,
    TOOL_POST,
    TOOLS,
    Post,
    Sites,
    is_readable,
    path_of,
    stream_of,
)
from .answers import END, LOST_BY_PAGE, LOST_BY_PROGRAM, NOTHING, Answer
from .blocks import check_libraries
from .fields import check_fields
from .requests import NOT_OURS, Bodies, Refused, check, client_of, with_id

log = logging.getLogger(__name__)

NO_TOOLS = (
    "SPECVIZ_MCP is set, but MCP is not installed: the page starts without it. "
    "Install it with 'pip install -r requirements-mcp.txt'."
)
NOT_BOTH = "SPECVIZ_MCP and SPECVIZ_AUTH are both set: MCP knows no password, so it stays off."

MOST_TRIES = 5  # of one address, without a pause
PAUSE = 10.0  # seconds after which one more is allowed
SLOWER = 0.5  # seconds that a try waits for each wrong one before it
MOST_CLIENTS = 10_000  # that are remembered

LOCKED = "This page has a password: sign in first."
WRONG = "The name or the password is wrong."
PAUSED = "The name or the password was wrong too often: wait a minute, then try again."
HINT = f"After {MOST_TRIES} wrong attempts, wait a minute before the next one."

_RANGE = re.compile(rb"bytes=\d{1,9}-(\d{1,9})?")


class GuardedApp(App):
    """Gradio's application behind its guard, which also comes before Gradio's own middleware: that
    would answer other sites by itself."""

    guard: Middleware

    def build_middleware_stack(self) -> ASGIApp:
        self.user_middleware.insert(0, self.guard)
        return super().build_middleware_stack()


class Guard:
    """The ASGI middleware. sites: which may use the page. tools: whether Gradio's MCP server is
    on."""

    def __init__(self, app: ASGIApp, *, sites: Sites, tools: bool = False) -> None:
        self._app = app
        self._sites = sites
        self._tools = tools
        self._bodies = Bodies()
        self._attempts = Attempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # the page uses none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = with_id(scope)
        answer = Answer(scope, send, self._sites.frames)
        before = REQUEST.set(answer.id)
        try:
            await self._answer(scope, receive, answer)
        except Refused as refused:
            if refused.retry is not None:
                answer.added["retry-after"] = str(refused.retry)
            await answer.refuse(refused.status, str(refused))
        except Exception as error:
            # Events and server functions handle their failures: here, the body was malformed.
            if scope["method"] == "POST":
                log.info("a request was malformed: %s", brief(error))
                await answer.refuse(400)
            else:
                log.exception("a request failed")
                await answer.refuse(500)
        finally:
            REQUEST.reset(before)

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        headers, page, path = Headers(scope=scope), scope["app"].get_blocks(), path_of(scope)
        # A probe has no session, and may name any host.
        told = probed(scope, getattr(page, "runs", None))
        if told is not None:
            await answer.give(told)
            return
        answer.added |= self._sites.admit(headers, page.share_url)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            answer.added |= PREFLIGHT if answer.added else {}
            await answer.give(Response(status_code=204))
            return
        post = self._wanted(scope["method"], path, headers)
        check_signed_in(scope, path)
        if post is None:
            await self._read(scope, receive, answer)
            return
        client, promised = client_of(scope), headers.get("content-length")
        async with self._bodies.read(receive, post.most, promised, client) as raw:
            if post.kind is not None:
                if post.begins:
                    check_fields(path, raw, page.programs, page.event_names)
                check(raw, post.kind)
            if post.reads is not None:
                found = await run_in_threadpool(page.reader.answer, post.reads, raw)
                await answer.give(Response(found, media_type="application/json"))
            elif post is LOGIN:
                answer.sentences = {400: WRONG}
                await self._attempts.begin(client)
                await self._pass(scope, receive, answer, raw)
                if answer.status < 400:
                    self._attempts.succeeded(client)
            else:
                with page._queue.arriving(client) if post.begins else nullcontext():
                    await self._pass(scope, receive, answer, raw)

    async def _read(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Answer what brings nothing. A stream of results is read for as long as it lasts."""
        queue, path = scope["app"].get_blocks()._queue, path_of(scope)
        name = stream_of(path, scope["query_string"])
        session = None if name is None else queue.session_of(name)
        if name is not None and session is None:
            lost = LOST_BY_PAGE if path.startswith(API + "queue") else LOST_BY_PROGRAM
            told = END if queue.has_read_all(name) else lost
            await answer.give(Response(told, media_type="text/event-stream"))
            return
        with nullcontext() if session is None else queue.listening(session):
            await self._pass(scope, receive, answer)

    async def _pass(
        self, scope: Scope, receive: Receive, answer: Answer, raw: bytes | None = None
    ) -> None:
        # Gradio lets the site that `origin` names read the answer, and fails for most forms of
        # `range`, which may be ignored.
        kept = [
            (name, value)
            for name, value in scope["headers"]
            if name != b"origin" and (name != b"range" or _RANGE.fullmatch(value))
        ]
        await self._app({**scope, "headers": kept}, answer.watched(receive, raw), answer.send)

    def _wanted(self, method: str, path: str, headers: Headers) -> Post | None:
        """What an admitted POST brings; None for other methods. Raises `Refused`."""
        tools = self._tools and bool(TOOLS.fullmatch(path))
        if method in ("GET", "HEAD") and is_readable(path):
            return None
        if tools and method in ("GET", "HEAD", "DELETE"):
            return None
        found = (one for one in POSTS if one.path.fullmatch(path))
        post = next(found, TOOL_POST if tools else None)
        if method != "POST" or post is None:
            raise Refused(404, NOTHING)
        # Another site can make a browser send forms here, but neither of these.
        wanted = "application/json" if post.reads is None else "application/octet-stream"
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != wanted and (post.kind or post.reads):
            raise Refused(400, NOT_OURS)
        return post


def check_signed_in(scope: Scope, path: str) -> None:
    """Raise `Refused` if the page has a password, and this request came without it to anything but
    the sign-in page."""
    app: Any = scope["app"]
    if app.auth is None or SIGN_IN.fullmatch(path):
        return
    cookies = Request(scope).cookies
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    if not any(cookies.get(name) in app.tokens for name in names):
        raise Refused(401, LOCKED)


class Attempts:
    """Counts wrong passwords by address: each makes the next try slower, and after `MOST_TRIES`
    there is one more in every `PAUSE`."""

    def __init__(self) -> None:
        self._forgiven: dict[str, float] = {}  # when all tries of an address are

    async def begin(self, client: str) -> None:
        """Count a try, and wait. Raises `Refused` if there were too many."""
        now = time.monotonic()
        forgiven = max(now, self._forgiven.get(client, now))
        spent = (forgiven - now) / PAUSE
        if spent > MOST_TRIES - 1:
            raise Refused(429, PAUSED, retry=int(PAUSE))
        # Counted before it is known to be wrong, so that many at once gain nothing.
        self._forgiven.pop(client, None)  # the one that tried last comes last
        self._forgiven[client] = forgiven + PAUSE
        if len(self._forgiven) > MOST_CLIENTS:
            del self._forgiven[next(iter(self._forgiven))]
        await asyncio.sleep(SLOWER * spent)

    def succeeded(self, client: str) -> None:
        """The try was right: forget the earlier ones."""
        self._forgiven.pop(client, None)


def guarded_options() -> dict[str, Any]:
    """The options of `launch()` for a page on a public network. Raises `SettingsError`."""
    check_libraries()
    password = AUTH.read()
    tools = _tools(password is not None)
    # FastAPI's own pages load scripts from another host.
    app = GuardedApp(
        default_response_class=ORJSONResponse, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.guard = Middleware(Guard, sites=Sites.from_environment(), tools=tools)
    return {
        "_app": app,
        "auth": password,
        "auth_message": HINT if password else None,
        "mcp_server": tools,
        "show_error": False,
        "max_file_size": "1b",
        "enable_monitoring": False,
        "strict_cors": True,
    }


def _tools(password: bool) -> bool:
    if not MCP.read():
        return False
    if password or importlib.util.find_spec("mcp") is None:
        log.warning(NOT_BOTH if password else NO_TOOLS)
        return False
    return True

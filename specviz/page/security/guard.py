"""The middleware between the network and Gradio.

It decides which addresses exist and how large a request may be, adds headers to every answer, and
replaces the details of failures by sentences.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import ExitStack

from gradio.routes import App, ORJSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...logs import brief
from .addresses import API, LOGIN, POSTS, TOOL_POST, TOOLS, Post, is_readable, path_of, stream_of
from .answers import NOTHING, Answer
from .bodies import NOT_OURS, Bodies, Body, Refused
from .clients import client_of
from .sign_in import WRONG, Attempts, check_signed_in
from .sites import PREFLIGHT, Sites, is_preflight

log = logging.getLogger(__name__)

_RANGE = re.compile(rb"bytes=\d{1,9}-(\d{1,9})?")


class GuardedApp(App):
    """Gradio's application behind a `Guard`, which also comes before Gradio's own middleware:
    that would answer other sites by itself. front: what comes before the guard."""

    def __init__(self, *, sites: Sites, tools: bool, front: Sequence[Middleware] = ()) -> None:
        # FastAPI's own pages load scripts from another host.
        super().__init__(
            default_response_class=ORJSONResponse, docs_url=None, redoc_url=None, openapi_url=None
        )
        self._sites = sites
        self._tools = tools
        self._front = front

    def build_middleware_stack(self) -> ASGIApp:
        guard = Middleware(Guard, sites=self._sites, tools=self._tools)
        self.user_middleware[:0] = [*self._front, guard]
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
        answer = Answer(scope, send, self._sites.frames)
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

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        headers, page = Headers(scope=scope), scope["app"].get_blocks()
        answer.added |= self._sites.admit(headers, page.share_url)
        if is_preflight(scope["method"], headers):
            answer.added |= PREFLIGHT if answer.added else {}
            await answer.allow()
            return
        path, client = path_of(scope), client_of(scope)
        post = self._wanted(scope["method"], path, headers)
        check_signed_in(scope, path)
        with ExitStack() as until_answered:
            if post is not None:
                body = until_answered.enter_context(self._bodies.room(client))
                receive = await _checked(post, body, receive, headers)
                if post is LOGIN:
                    await self._attempts.begin(client)
                if post.begins:
                    until_answered.enter_context(page._queue.arriving(client))
            elif (name := stream_of(path, scope["query_string"])) is not None:
                session = page._queue.session_of(name)
                if session is None:
                    await answer.lose(to_page=path.startswith(API + "queue"))
                    return
                until_answered.enter_context(page._queue.listening(session))
            if post is not None and post.reads is not None:
                told = await run_in_threadpool(page.reader.answer, post.reads, body.raw)
                await Response(told, media_type="application/json")(scope, receive, answer.send)
                return
            if post is LOGIN:
                answer.sentences = {400: WRONG}
            await self._app(_for_gradio(scope), answer.watched(receive), answer.send)
        if post is LOGIN and answer.status < 400:
            self._attempts.succeeded(client)

    def _wanted(self, method: str, path: str, headers: Headers) -> Post | None:
        """What an admitted POST brings; None for other methods. Raises `Refused`."""
        tools = self._tools and bool(TOOLS.fullmatch(path))
        if method in ("GET", "HEAD") and (tools or is_readable(path)):
            return None
        if tools and method == "DELETE":
            return None
        posts = (*POSTS, TOOL_POST) if tools else POSTS
        post = next((one for one in posts if one.path.fullmatch(path)), None)
        if method != "POST" or post is None:
            raise Refused(404, NOTHING)
        # Another site can make a browser send forms here, but neither of these.
        wanted = "application/json" if post.reads is None else "application/octet-stream"
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != wanted and (post.check or post.reads):
            raise Refused(400, NOT_OURS)
        return post


async def _checked(post: Post, body: Body, receive: Receive, headers: Headers) -> Receive:
    """The `Receive` from which Gradio reads the body, once all of it is here. Raises `Refused`."""
    await body.read(receive, post.most, headers.get("content-length"))
    if post.check is not None:
        post.check(body.raw)
    return body.replay(receive)


def _for_gradio(scope: Scope) -> Scope:
    """The request without what Gradio gets wrong: it lets the site that `origin` names read the
    answer, and fails for most forms of `range`, which may be ignored."""
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name != b"origin" and (name != b"range" or _RANGE.fullmatch(value))
    ]
    return {**scope, "headers": kept}

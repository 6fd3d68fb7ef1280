"""What stands between the network and the page's application.

It decides which addresses exist and how large a request may be, asks for the password, adds headers
to every answer, and replaces the details of failures by sentences.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from inspect import Signature
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...base.logs import brief
from ..probes import probed
from .addresses import (
    API,
    LOGIN,
    POSTS,
    PREFLIGHT,
    TOOL_POST,
    TOOLS,
    Post,
    Sites,
    is_readable,
    path_of,
    stream_of,
)
from .answers import END, LOST_BY_CLIENT, LOST_BY_PROGRAM, NOTHING, Answer
from .fields import check_fields
from .owner import MAY_FETCH, SEES_MODELS, may_fetch, sees_models
from .password import WRONG, Password
from .requests import NOT_OURS, Bodies, Refused, check, client_of, note, with_id
from .sessions import Sessions

if TYPE_CHECKING:
    from ..files import FileReader
    from ..queue import RunQueue

log = logging.getLogger(__name__)

_RANGE = re.compile(rb"bytes=\d{1,9}-(\d{1,9})?")


class Guard:
    """Answers requests, or has `app` answer them.

    runs: the queue. reader: of visitors' files. password: None if there is none. policy: headers of
    every answer. tools: whether Gradio's MCP server is on. programs: the parameters of endpoints by
    name, in the order in which Gradio numbers them. shared: the address of Gradio's tunnel, if
    there is one.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        runs: RunQueue,
        reader: FileReader,
        sites: Sites,
        password: Password | None,
        policy: Mapping[str, str],
        tools: bool,
        sessions: Sessions,
    ) -> None:
        self.programs: dict[str, Signature] = {}
        self.shared: str | None = None
        self._app = app
        self._runs = runs
        self._reader = reader
        self._sites = sites
        self._password = password
        self._policy = policy
        self._tools = tools
        self._bodies = Bodies()
        self.sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # the page uses none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = with_id(scope)
        note(scope)
        MAY_FETCH.set(may_fetch(scope))
        SEES_MODELS.set(sees_models(scope))
        answer = Answer(scope, send, self._policy)
        try:
            await self._answer(scope, receive, answer)
        except Refused as refused:
            if refused.retry is not None:
                answer.added["retry-after"] = str(refused.retry)
            await answer.refuse(refused.status, str(refused))
        except Exception as error:
            if scope["method"] == "POST":
                log.info("a request was malformed: %s", brief(error))
                await answer.refuse(400)
            else:
                log.exception("a request failed")
                await answer.refuse(500)

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        headers = Headers(scope=scope)
        path = path_of(scope)
        # A probe has no session, and may name any host.
        response = probed(scope, self._runs)
        if response is not None:
            await answer.give(response)
            return
        answer.added |= self._sites.admit(headers, self.shared)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            answer.added |= PREFLIGHT if answer.added else {}
            await answer.give(Response(status_code=204))
            return
        post = self._wanted(scope["method"], path, headers)
        if self._password is not None:
            self._password.check(scope, path)
        if post is None:
            await self._read(scope, receive, answer)
        else:
            await self._take(post, scope, receive, answer)

    async def _read(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Answer what brings nothing. A stream of results is read for as long as it lasts."""
        path = path_of(scope)
        name = stream_of(path, scope["query_string"])
        if name is None:
            await self._pass(scope, answer.watched(receive), answer.send)
            return
        session = self.sessions.session_of(name)
        if session is None:
            lost = LOST_BY_CLIENT if path.startswith(API + "queue") else LOST_BY_PROGRAM
            events = END if self.sessions.was_read_whole(name) else lost
            await answer.give(Response(events, media_type="text/event-stream"))
            return

        async def passed(receive: Receive, send: Send) -> None:
            await self._pass(scope, receive, send)

        await self.sessions.read(passed, session, answer.watched(receive), answer.send)

    async def _take(self, post: Post, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Answer a request with a body."""
        client = client_of(scope)
        promised = Headers(scope=scope).get("content-length")
        path = path_of(scope)

        async def passed(receive: Receive, send: Send) -> None:
            await self._pass(scope, receive, send)

        async with self._bodies.read(receive, post.most, promised, client) as raw:
            if post.begins:
                check_fields(path, raw, self.programs)
            if post.kind is not None:
                check(raw, post.kind)
            received = answer.watched(receive, raw)
            if post.reads is not None:
                body = await run_in_threadpool(self._reader.answer, post.reads, raw)
                await answer.give(Response(body, media_type="application/json"))
            elif post.begins:
                await self.sessions.begin(passed, client, received, answer.send)
            elif post is LOGIN and self._password is not None:
                answer.sentences = {400: WRONG}
                async with self._password.attempt(client) as attempt:
                    await passed(received, answer.send)
                    attempt.is_right = answer.status < 400
            else:
                await passed(received, answer.send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Gradio lets the site that `origin` names read the answer, and fails for most forms of
        # `range`, which may be ignored.
        kept = [
            (name, value)
            for name, value in scope["headers"]
            if name != b"origin" and (name != b"range" or _RANGE.fullmatch(value))
        ]
        await self._app({**scope, "headers": kept}, receive, send)

    def _wanted(self, method: str, path: str, headers: Headers) -> Post | None:
        """What an admitted POST brings; None for other methods. Raises `Refused`."""
        tools = self._tools and bool(TOOLS.fullmatch(path))
        if method in ("GET", "HEAD") and is_readable(path):
            return None
        if tools and method in ("GET", "HEAD", "DELETE"):
            return None
        matching = (post for post in POSTS if post.path.fullmatch(path))
        post = next(matching, TOOL_POST if tools else None)
        if method != "POST" or post is None:
            raise Refused(404, NOTHING)
        # Another site can make a browser send forms here, but neither of these.
        wanted = "application/json" if post.reads is None else "application/octet-stream"
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != wanted and (post.kind or post.reads):
            raise Refused(400, NOT_OURS)
        return post

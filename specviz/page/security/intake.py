"""Requests with a body: questions, runs, events of programs, files, and the sign-in."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Signature
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .addresses import LOGIN, Post, path_of
from .answers import Answer
from .fields import check_fields
from .password import WRONG, Password
from .requests import Bodies, check, client_of
from .sessions import Sessions

if TYPE_CHECKING:
    from ..files import FileReader


class Intake:
    """Reads and checks bodies, then passes requests on to the application. sessions: those of
    Gradio's queue. reader: the reader of visitors' files. password: None if there is none.
    programs: the parameters of endpoints by name, in Gradio's order.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: Sessions,
        reader: FileReader,
        password: Password | None,
        programs: Mapping[str, Signature],
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._reader = reader
        self._password = password
        self._programs = programs
        self._bodies = Bodies()

    async def answer(self, post: Post, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Answer a request with a body. Raises `Refused`."""
        client = client_of(scope)
        promised = Headers(scope=scope).get("content-length")
        async with self._bodies.read(receive, post.max_bytes, promised, client) as raw:
            if post.begins:
                check_fields(path_of(scope), raw, self._programs)
            if post.kind is not None:
                check(raw, post.kind)
            if post.reads is not None:
                body = await run_in_threadpool(self._reader.answer, post.reads, raw)
                await answer.give(Response(body, media_type="application/json"))
            else:
                await self._pass(post, scope, answer.watched(receive, raw), answer)

    async def _pass(self, post: Post, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Pass a request with a valid body on to the application."""
        client = client_of(scope)

        async def passed(receive: Receive, send: Send) -> None:
            await self._app(scope, receive, send)

        if post.begins:
            await self._sessions.begin(passed, client, receive, answer.send)
        elif post is LOGIN and self._password is not None:
            answer.sentences = {400: WRONG}
            async with self._password.attempt(client) as attempt:
                await passed(receive, answer.send)
                attempt.is_right = answer.status < 400
        else:
            await passed(receive, answer.send)

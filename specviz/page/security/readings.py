"""Requests without a body: pages, files, and streams of results."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .addresses import API, path_of, stream_of
from .answers import END, LOST_BY_CLIENT, LOST_BY_PROGRAM, Answer
from .sessions import Sessions


class Readings:
    """Passes requests without a body on to the application. sessions: those of Gradio's queue."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Answer a request. A stream of results is read for as long as it lasts."""
        path = path_of(scope)
        name = stream_of(path, scope["query_string"])
        if name is None:
            await self._app(scope, answer.watched(receive), answer.send)
            return
        session = self._sessions.session_of(name)
        if session is None:
            await answer.give(self._without_session(name, path))
            return

        async def passed(receive: Receive, send: Send) -> None:
            await self._app(scope, receive, send)

        await self._sessions.read(passed, session, answer.watched(receive), answer.send)

    def _without_session(self, name: str, path: str) -> Response:
        """The whole stream of a session that is already forgotten."""
        if self._sessions.was_read_whole(name):
            events = END
        elif path.startswith(API + "queue"):
            events = LOST_BY_CLIENT
        else:
            events = LOST_BY_PROGRAM
        return Response(events, media_type="text/event-stream")

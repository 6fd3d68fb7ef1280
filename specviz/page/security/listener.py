"""The events of programs and of the page on their way through Gradio: what begins one, and the
streams that bring its results. From both it is seen who reads what."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import orjson
from anyio import move_on_after
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .addresses import API
from .sessions import Sessions

_VALUE = re.compile(rb'event: generating\n|data: \{"msg":"process_generating"')
_END = re.compile(rb'event: (complete|error)\n|data: \{"msg":"process_completed"')
ENDS_WITHIN = 5.0  # seconds that endpoints have to end when their reader has left
LEAVES_AFTER = 0.05  # seconds; until then Gradio's stream has begun

Pass = Callable[[Receive, Send], Awaitable[None]]
"""Has Gradio answer a request."""


class Listener:
    """Notes events and their readers. app: Gradio's application, with no guard before it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self.sessions = Sessions(self._leave)

    async def begin(
        self, passed: Pass, raw: bytes, client: str, receive: Receive, send: Send
    ) -> None:
        """Pass on a request that begins an event, and note the event. Raises `Refused`."""
        session = _field(raw, "session_hash")
        answer: list[Message] = []

        async def kept(message: Message) -> None:
            answer.append(message)

        with self.sessions.arriving(client):
            if session in self._leaving:  # Gradio would take the new event for an old one
                await self._leaving[session]
            if session is not None:
                self.sessions.expect(session)
            await passed(receive, kept)
        event = _field(b"".join(message.get("body", b"") for message in answer), "event_id")
        if event is not None:
            self.sessions.begun(event, session, client)
        # Only now, as the client reads the results at once.
        for message in answer:
            await send(message)

    async def read(self, passed: Pass, name: str, receive: Receive, send: Send) -> None:
        """Pass on the results of a session for as long as they are read.

        Whoever leaves amid them ends the endpoints, and what they still say is read in the client's
        place: Gradio then keeps nothing of them.
        """
        over = asyncio.Event()
        has_left = False
        with self.sessions.reading(name) as session:

            async def watched() -> Message:
                nonlocal has_left
                message = await receive()
                if message["type"] == "http.disconnect" and session.unfinished > 0:
                    if not has_left:
                        has_left = True
                        self.sessions.leave(session, name)
                    with move_on_after(ENDS_WITHIN):
                        await over.wait()
                        await asyncio.sleep(LEAVES_AFTER)  # Gradio's stream then ends by itself
                return message

            async def counted(message: Message) -> None:
                await send(message)
                body = message.get("body", b"")
                if _VALUE.match(body):
                    self.sessions.sent(session, name)
                elif _END.match(body):
                    session.unfinished -= 1
                    if session.unfinished <= 0:
                        over.set()

            await passed(watched, counted)

    def _leave(self, name: str, is_over: bool) -> None:
        after = LEAVES_AFTER if is_over else ENDS_WITHIN
        task = asyncio.get_running_loop().create_task(self._gone(name, after))
        self._leaving[name] = task
        task.add_done_callback(lambda _: self._leaving.pop(name, None))

    async def _gone(self, name: str, after: float) -> None:
        """Open a stream of the session in Gradio and end it: what Gradio then forgets is the
        session with all its results. A stream that ends by itself, because there was a result,
        leaves the session behind."""
        with contextlib.suppress(Exception):  # Gradio may have forgotten it before
            while not await self._ended(name, after):
                after = LEAVES_AFTER

    async def _ended(self, name: str, after: float) -> bool:
        """Whether a stream of this session waited for results until it was ended, after so many
        seconds."""
        questions = 0
        has_ended = False
        begun = asyncio.Event()

        async def receive() -> Message:
            nonlocal questions, has_ended
            questions += 1
            if questions > 1:  # Gradio's own question, which the first would answer for good
                await asyncio.Event().wait()
            await begun.wait()
            await asyncio.sleep(after)
            has_ended = True
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            begun.set()

        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": API + "queue/data",
            "raw_path": (API + "queue/data").encode(),
            "root_path": "",
            "query_string": b"session_hash=" + quote(name).encode(),
            "headers": [(b"host", b"localhost")],
            "client": None,
            "server": ("localhost", 80),
        }
        await self._app(scope, receive, send)
        return has_ended


def _field(raw: bytes, name: str) -> str | None:
    """A text in a JSON object; None if it has none of this name."""
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    field = value.get(name) if isinstance(value, dict) else None
    return field if isinstance(field, str) else None

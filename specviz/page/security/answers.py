"""Change answers on their way to the client: failures become sentences, and headers say which
scripts may run, which sites may frame the page, and how long an answer may be cached."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import orjson
from anyio import move_on_after
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...worker.failures import FAILED
from .requests import ID, NOT_OURS

_FILES = re.compile(r"/((page|recordings)/.+|style\.css|favicon\.ico)?")
CHECKED = "no-cache"  # may be cached but is revalidated: a new release must not mix with an old
NEVER = "no-store"  # answers that may hold visitors' texts

STALLED = 30.0  # timeout in seconds for a client to receive one part of an answer
LOST = "The results of this run are gone: start it again."
NOTHING = "There is nothing at this address."
SENTENCES = {
    400: NOT_OURS,
    404: NOTHING,
    405: NOTHING,
    422: NOT_OURS,
    500: FAILED,
    503: "The server is busy: try again in a minute.",
}
OTHERWISE = "This request was refused."


END = b'data: {"msg":"close_stream","event_id":null}\n\n'
"""Without it a client of Gradio would think that the stream is open, and never open another."""

_GONE = {"msg": "unexpected_error", "message": LOST, "success": False, "session_not_found": True}
LOST_BY_CLIENT = b"data: " + orjson.dumps(_GONE) + b"\n\n" + END
LOST_BY_PROGRAM = b"event: error\ndata: " + orjson.dumps({"error": LOST}) + b"\n\n"


class Answer:
    """Changes an answer while it is sent: adds headers, turns failures into sentences, says how
    long the answer may be cached, and leaves out a file that the client has cached.

    scope: the request, with its id. policy: the headers of `security_headers`. added: further
    headers. sentences: those of failures, by status. status: of the answer, or 500 before there is
    one.
    """

    def __init__(self, scope: Scope, send: Send, policy: Mapping[str, str]) -> None:
        self.added: dict[str, str] = {}
        self.sentences: dict[int, str] = {}
        self.status = 500
        self._scope = scope
        self._send = send
        self._policy = policy
        self._request_headers = Headers(scope=scope)
        self.id = self._request_headers[ID]
        self._started = False
        self._muted = False
        self._stalled = False
        self._unchanged = False
        self._open = False  # whether a last part ends the answer, not its length

    def watched(self, receive: Receive, raw: bytes | None = None) -> Receive:
        """A `Receive` that reports a disconnect if the client stops receiving. raw: the body, if it
        was read."""
        unread: list[Message] = []
        if raw is not None:
            unread.append({"type": "http.request", "body": raw})

        async def received() -> Message:
            if unread:
                return unread.pop()
            if self._stalled:
                return {"type": "http.disconnect"}
            return await receive()

        return received

    async def send(self, message: Message) -> None:
        """Pass a part of Gradio's answer on."""
        if self._muted:
            return
        if message["type"] == "http.response.start":
            status = message["status"]
            if status == 500 and self._scope["method"] == "POST":
                # Endpoints and questions handle their failures: here, the body was malformed.
                status = 400
            if status >= 400:
                await self.refuse(status)
            else:
                await self._begin(message["status"], message["headers"])
            return
        if self._unchanged:
            message = {**message, "body": b""}
        with move_on_after(STALLED) as timeout:
            await self._send(message)
        self._stalled = timeout.cancelled_caught
        self._muted = timeout.cancelled_caught

    async def refuse(self, status: int, sentence: str | None = None) -> None:
        """Answer with a sentence, unless another answer has begun, which then ends."""
        if not self._started:
            usual = self.sentences.get(status) or SENTENCES.get(status, OTHERWISE)
            shown = sentence or usual
            raw = orjson.dumps({"detail": shown, "error": shown})
            await self.give(Response(raw, status, media_type="application/json"))
        elif self._open and not self._stalled:
            await self._send({"type": "http.response.body", "body": b""})
        self._muted = True

    async def give(self, response: Response) -> None:
        """Send this answer, and drop whatever Gradio still sends."""
        self._muted = True
        body = bytes(response.body)
        await self._send_all(response.status_code, response.raw_headers, body)

    async def _send_all(self, status: int, headers: list[tuple[bytes, bytes]], raw: bytes) -> None:
        await self._begin(status, headers)
        await self._send({"type": "http.response.body", "body": raw})

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        self.status = status
        changed = MutableHeaders(raw=list(headers))
        self._open = "content-length" not in changed
        changed.update({**self._policy, **self.added})
        if self.added:
            changed.add_vary_header("Origin")
        changed[ID] = self.id
        if status in (200, 206):
            if _FILES.fullmatch(self._scope["path"]) is None:
                changed["cache-control"] = NEVER
            else:
                changed.setdefault("cache-control", CHECKED)
        changed.setdefault("cache-control", NEVER)
        # A proxy that compresses adds a mark.
        cached_tag = self._request_headers.get("if-none-match", "").removeprefix("W/")
        has_cached = cached_tag != "" and cached_tag == changed.get("etag", "")
        self._unchanged = status == 200 and has_cached
        if self._unchanged:
            status = 304
            del changed["content-length"]
        await self._send({"type": "http.response.start", "status": status, "headers": changed.raw})


def security_headers(
    scripts: Sequence[str] = (), styles: Sequence[str] = (), frames: Sequence[str] = ()
) -> dict[str, str]:
    """The security headers by name. scripts, styles: hashes of the page's inline ones. frames: the
    sites that may show the page in a frame, besides the page itself."""
    policy = (
        "default-src 'self'",
        " ".join(["script-src 'self'", *scripts]),
        "script-src-attr 'none'",
        " ".join(["style-src 'self'", *styles]),
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self' data:",  # Plotly's pictures are data: addresses
        "worker-src 'none'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        " ".join(["frame-ancestors 'self'", *frames]),
    )
    return {
        "content-security-policy": "; ".join(policy),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    }

"""Answers on their way to the client: failures as sentences, the headers that say which scripts may
run and which sites may frame the page, and what is changed in Gradio's HTML.

Where a link is shared, title, sentence and picture are the page's own, not those of Gradio's
template. Sites that show links run no scripts, so this is in the HTML.

Before all scripts of Gradio come the names of the page's own modules, and the end of a loop, so
that an idle page does nothing: the sign of loading that Gradio shows at first has a timer, which
counts on in each frame when that sign has long gone. No such timer is ever shown on this page.
"""

from __future__ import annotations

import html
import os
import re
import secrets
from collections.abc import Sequence
from functools import cache

import orjson
from anyio import move_on_after
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from ...environment import ASSETS
from ...runs.html import PAGE, first_modules, served_map
from ...worker.failures import FAILED
from .addresses import HUB
from .bodies import NOT_OURS

TITLE = "specviz: speculative decoding, token by token"
DESCRIPTION = (
    "A language model races against itself, once alone and once helped by a small draft model. "
    "Every token is shown, and every number is measured."
)
PICTURE = ASSETS / "pictures" / "race-light.png"
"""A wheel does not have it; the card then has no picture."""

_TEMPLATE = re.compile(rb"<meta\s+(?:property=\"og:|name=\"twitter:)[^>]*>\s*")
_HOST = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")
NO_TIMER = b"""<script>
{
  const next = window.requestAnimationFrame.bind(window);
  const isTimer = (text) => text.length < 120 && /performance\\.now\\(\\)-.*1e3/.test(text);
  window.requestAnimationFrame = (then) => (isTimer(String(then)) ? 0 : next(then));
}
</script>"""
_FONTS = (
    f"gradio_api/file={PAGE}/fonts/source-serif-4-latin.woff2",
    *(f"static/fonts/SourceSansPro/SourceSansPro-{one}.woff2" for one in ("Regular", "Bold")),
)
"""Those of the first screen: one that comes later moves what is there."""
_BASE = re.compile(rb"<head>(?:\s*<(?:meta|base)\b[^>]*>)*")


def address_of(scope: Scope) -> str | None:
    """Where the visitor found the page, without a slash at its end; None if that is not known."""
    headers = Headers(scope=scope)
    host = headers.get("x-forwarded-host") or headers.get("host", "")
    scheme = headers.get("x-forwarded-proto", scope.get("scheme", "http"))
    if scheme not in ("http", "https") or not _HOST.fullmatch(host):
        return None
    return f"{scheme}://{host}{scope.get('root_path', '').rstrip('/')}"


def with_card(page: bytes, address: str | None) -> bytes:
    """The HTML page with this card instead of Gradio's. address: what `address_of` gives."""
    facts = {"title": TITLE, "description": DESCRIPTION, "type": "website"}
    if address is not None:
        facts["url"] = address + "/"
        if PICTURE.is_file():
            facts["image"] = f"{address}/gradio_api/file={PICTURE}"
    card = "".join(
        f'<meta property="og:{name}" content="{html.escape(value)}">'
        for name, value in facts.items()
    )
    size = "summary_large_image" if "image" in facts else "summary"
    card += f'<meta name="twitter:card" content="{size}">'
    return _TEMPLATE.sub(b"", page).replace(b"<head>", b"<head>" + card.encode(), 1)


def with_scripts(page: bytes) -> bytes:
    """The HTML page with the import map, the timer, and links to what the first screen needs,
    behind the address that all others on it start from. Gradio keeps the timer that it finds, and
    a browser may ignore an import map behind the first module."""
    names = served_map(f"gradio_api/file={PAGE}/").encode()
    added = b'<script type="importmap">%s</script>%s%s' % (names, NO_TIMER, _preloads())
    return _BASE.sub(lambda head: head.group() + added, page, count=1)


@cache
def _preloads() -> bytes:
    fonts = "".join(
        f'<link rel="preload" as="font" type="font/woff2" crossorigin href="{url}">'
        for url in _FONTS
    )
    modules = "".join(
        f'<link rel="modulepreload" href="gradio_api/file={path}">' for path in first_modules()
    )
    return (fonts + modules).encode()


_SCRIPT = re.compile(rb"<script\b", re.IGNORECASE)
_ANY_SITE = re.compile(rb"SameSite=none", re.IGNORECASE)
# Gradio's manifest is not needed here. Without a link to an icon, a browser asks for one at the
# root of the host, which may belong to another site.
_MANIFEST = re.compile(rb'<link rel="manifest"[^>]*>')
_ICON = b'<link rel="icon" type="image/svg+xml" href="favicon.ico">'

STALLED = 30.0  # seconds that a client may take for one part of an answer
LOST = "The results of this run are gone: start it again."
LOCKED = "This page has a password: sign in first."
NOTHING = "There is nothing at this address."
SENTENCES = {
    400: NOT_OURS,
    401: LOCKED,
    404: NOTHING,
    405: NOTHING,
    422: NOT_OURS,
    500: FAILED,
    503: "The server is busy: try again in a minute.",
}
OTHERWISE = "This request was refused."


EVENTS = {"content-type": "text/event-stream"}
# Without it the page would take the stream for open, and never open another.
END = b'data: {"msg":"close_stream","event_id":null}\n\n'


class Answer:
    """Changes an answer while it is sent: it adds headers, turns failures into sentences, gives the
    page's own scripts the nonce without which the browser does not run them, and has a link to the
    page show what it is.

    scope: the request. frames: the sites that may show the page. added: further headers.
    sentences: those of failures, by status. status: of the answer, or 500 before there is one.
    """

    def __init__(self, scope: Scope, send: Send, frames: Sequence[str]) -> None:
        self.added: dict[str, str] = {}
        self.sentences: dict[int, str] = {}
        self.status = 500
        self._send = send
        self._head = scope["method"] == "HEAD"
        self._https = scope["scheme"] == "https"
        self._frames = frames
        self._address = address_of(scope)
        self._nonce = secrets.token_urlsafe(16)
        self._started = False
        self._held: Message | None = None  # the start of an HTML page, until its body is complete
        self._page = b""
        self._muted = False
        self._open = False  # whether the answer ends by a last part and not by its length
        self._stalled = False

    def watched(self, receive: Receive) -> Receive:
        """A `Receive` that says that a client has left if it takes nothing any more."""

        async def received() -> Message:
            return {"type": "http.disconnect"} if self._stalled else await receive()

        return received

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
            with move_on_after(STALLED) as patience:
                await self._send(message)
            self._stalled = self._muted = patience.cancelled_caught

    async def refuse(self, status: int, sentence: str | None = None) -> None:
        """Answer with a sentence, unless another answer has begun, which then ends."""
        self._muted = True
        if self._started:
            if self._open and not self._stalled:
                await self._send({"type": "http.response.body", "body": b""})
            return
        shown = sentence or self.sentences.get(status) or SENTENCES.get(status, OTHERWISE)
        raw = orjson.dumps({"detail": shown, "error": shown})
        length = {"content-length": str(len(raw))}
        await self._whole(status, {"content-type": "application/json", **length}, raw)

    async def allow(self) -> None:
        """Answer that a request may be sent."""
        await self._whole(204, {}, b"")

    async def lose(self, *, to_page: bool) -> None:
        """Answer a client that asks for the results of an event that is forgotten, in the form
        that the page or a program expects."""
        if to_page:
            known = {"msg": "unexpected_error", "event_id": None, "message": LOST}
            raw = b"data: %s\n\n" % orjson.dumps(
                {**known, "success": False, "session_not_found": True}
            )
            raw += END
        else:
            raw = b"event: error\ndata: %s\n\n" % orjson.dumps({"error": LOST})
        await self._whole(200, EVENTS, raw)

    async def end_stream(self) -> None:
        """Answer the page that asks for results and has them all."""
        await self._whole(200, EVENTS, END)

    async def _whole(self, status: int, headers: dict[str, str], raw: bytes) -> None:
        start = {"type": "http.response.start", "status": status}
        await self._begin({**start, "headers": Headers(headers).raw})
        await self._send({"type": "http.response.body", "body": b"" if self._head else raw})

    async def _start(self, message: Message) -> None:
        if message["status"] >= 400:
            await self.refuse(message["status"])
        elif Headers(raw=message["headers"]).get("content-type", "").startswith("text/html"):
            self._held = message
        else:
            await self._begin(message)

    async def _begin(self, message: Message) -> None:
        self._started, self.status = True, message["status"]
        raw = [
            (name, self._cookie(value) if name == b"set-cookie" else value)
            for name, value in message.get("headers", [])
        ]
        headers = MutableHeaders(raw=raw)
        self._open = "content-length" not in headers
        for name, value in (security_headers(self._nonce, self._frames) | self.added).items():
            headers[name] = value
        if self.added:
            headers.add_vary_header("Origin")
        await self._send({**message, "headers": headers.raw})

    def _cookie(self, value: bytes) -> bytes:
        return strict_cookie(value, framed=bool(self._frames), https=self._https)

    async def _send_page(self) -> None:
        assert self._held is not None
        start, self._held = self._held, None
        page = with_nonce(with_scripts(self._page), self._nonce)
        page = with_card(page, self._address)
        headers = MutableHeaders(raw=list(start["headers"]))
        if not self._head:
            headers["content-length"] = str(len(page))
        await self._begin({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": page})


def security_headers(nonce: str, frames: Sequence[str] = ()) -> dict[str, str]:
    """Headers by name. nonce: of the inline scripts that may run. frames: the sites that may show
    the page in a frame, beside the page itself.

    Gradio compiles templates and listeners in the browser, so scripts may evaluate text
    ('unsafe-eval'); its components and Plotly set styles inline. Scripts in attributes, or in
    elements that are added later, do not run.
    """
    return {
        "content-security-policy": "; ".join(
            f"{name} {value}" for name, value in _policy(nonce, frames).items()
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    }


def strict_cookie(cookie: bytes, *, framed: bool, https: bool) -> bytes:
    """A `Set-Cookie` of Gradio for this page: other sites do not send it, unless one of them shows
    the page in a frame, and it does not travel over plain HTTP if the page came over HTTPS."""
    if not framed:
        cookie = _ANY_SITE.sub(b"SameSite=lax", cookie)
    return cookie if not https or b"secure" in cookie.lower().split(b"; ") else cookie + b"; Secure"


def _policy(nonce: str, frames: Sequence[str]) -> dict[str, str]:
    # On a Space, Gradio loads its top bar from the hub.
    hub = f" {HUB}" if os.environ.get("SPACE_ID") else ""
    return {
        "default-src": "'self'",
        "script-src": f"'self' 'nonce-{nonce}' 'unsafe-eval'",
        "script-src-attr": "'none'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": f"'self' data: blob:{hub}",
        "font-src": "'self' data:",
        "connect-src": f"'self' data:{hub}",  # Plotly's pictures are data: addresses
        "worker-src": "'none'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": " ".join(["'self'", *frames]),
    }


def with_nonce(page: bytes, nonce: str) -> bytes:
    """The page with the nonce in its own inline scripts, and with its icon. The page holds no text
    of visitors, so all its scripts are its own."""
    page = _MANIFEST.sub(_ICON, page)
    return _SCRIPT.sub(b'<script nonce="%s"' % nonce.encode(), page)

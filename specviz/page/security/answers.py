"""Answers on their way to the client: failures as sentences, the headers that say which scripts may
run and which sites may frame the page, and what is changed in Gradio's HTML.

Where a link is shared, title, sentence and picture are the page's own, not those of Gradio's
template. Sites that show links run no scripts, so this is in the HTML.

Before all scripts of Gradio comes the end of a loop, so that an idle page does nothing: the sign of
loading that Gradio shows at first has a timer, which counts on in each frame when that sign has
long gone. No such timer is ever shown on this page.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from functools import cache, partial
from html import escape

import orjson
from anyio import move_on_after
from gradio.server_messages import CloseStreamMessage, UnexpectedErrorMessage
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...environment import ASSETS
from ...runs.html import PAGE, first_modules, served_map
from ...worker.failures import FAILED
from .addresses import HOST, HUB
from .requests import ID, NOT_OURS

TITLE = "specviz: speculative decoding, token by token"
DESCRIPTION = (
    "A language model races against itself, once alone and once helped by a small draft model. "
    "Every token is shown, and every number is measured."
)
PICTURE = ASSETS / "pictures" / "race-light.png"
"""A wheel does not have it; the card then has no picture."""

# Gradio's manifest is not needed here.
_TEMPLATE = re.compile(
    rb"<(meta\s+(property=\"og:|name=\"twitter:)|link rel=\"manifest\")[^>]*>\s*"
)
_HEAD = re.compile(rb"<head>(?:\s*<(?:meta|base)\b[^>]*>)*")
_SCRIPT = re.compile(rb"<script\b", re.IGNORECASE)
_ANY_SITE = re.compile(rb"SameSite=none", re.IGNORECASE)
NO_TIMER = """<script>
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


def address_of(scope: Scope) -> str | None:
    """Where the visitor found the page, without a slash at its end; None if that is not known."""
    headers = Headers(scope=scope)
    host = headers.get("x-forwarded-host") or headers.get("host", "")
    scheme = headers.get("x-forwarded-proto", scope.get("scheme", "http"))
    if scheme not in ("http", "https") or not HOST.fullmatch(host):
        return None
    return f"{scheme}://{host}{scope.get('root_path', '').rstrip('/')}"


def our_page(page: bytes, address: str | None, nonce: str) -> bytes:
    """Gradio's HTML page with this card, this icon and the page's own scripts and modules.

    They come behind the address that all others on the page start from. Gradio keeps the timer that
    it finds, and a browser may ignore an import map behind the first module. Each script has the
    nonce: the page holds no text of visitors, so all of them are its own. address: what
    `address_of` gives.
    """
    added = (_card(address) + _modules()).encode()
    page = _HEAD.sub(lambda head: head.group() + added, _TEMPLATE.sub(b"", page), count=1)
    return _SCRIPT.sub(b'<script nonce="%s"' % nonce.encode(), page)


def _card(address: str | None) -> str:
    facts = {"title": TITLE, "description": DESCRIPTION, "type": "website"}
    if address is not None:
        facts["url"] = address + "/"
        if PICTURE.is_file():
            facts["image"] = f"{address}/gradio_api/file={PICTURE}"
    size = "summary_large_image" if "image" in facts else "summary"
    return f'<meta name="twitter:card" content="{size}">' + "".join(
        f'<meta property="og:{name}" content="{escape(value)}">' for name, value in facts.items()
    )


@cache
def _modules() -> str:
    # Without a link to an icon, a browser asks for one at the root of the host, which may belong to
    # another site.
    links = ['<link rel="icon" type="image/svg+xml" href="favicon.ico">']
    font = '<link rel="preload" as="font" type="font/woff2" crossorigin href="{}">'
    links += map(font.format, _FONTS)
    links += map('<link rel="modulepreload" href="gradio_api/file={}">'.format, first_modules())
    names = served_map(f"gradio_api/file={PAGE}/")
    return f'<script type="importmap">{names}</script>{NO_TIMER}{"".join(links)}'


_HASHED = re.compile(r"/assets/.*-[\w-]{8}\.\w+")  # Gradio's: another content has another name
_FILES = re.compile(r"/(assets|static|favicon|gradio_api/file=)|/$")
FOR_EVER = "public, max-age=31536000, immutable"
CHECKED = "no-cache"  # may be kept, and is asked for again: a new release must not mix with an old
NEVER = "no-store"  # answers that may hold what visitors wrote

STALLED = 30.0  # seconds that a client may take for one part of an answer
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


# Without it the page would take the stream for open, and never open another.
END = f"data: {CloseStreamMessage().model_dump_json()}\n\n"
_GONE = UnexpectedErrorMessage(message=LOST, session_not_found=True)
LOST_BY_PAGE = f"data: {_GONE.model_dump_json()}\n\n{END}"
LOST_BY_PROGRAM = f"event: error\ndata: {orjson.dumps({'error': LOST}).decode()}\n\n"


class Answer:
    """Changes an answer while it is sent: it adds headers, turns failures into sentences, gives the
    page's own scripts the nonce without which the browser does not run them, and has a link to the
    page show what it is.

    It says how long an answer may be kept, and leaves out a file that the client has kept.

    scope: the request, with its id. frames: the sites that may show the page. added: further
    headers. sentences: those of failures, by status. status: of the answer, or 500 before there is
    one.
    """

    def __init__(self, scope: Scope, send: Send, frames: Sequence[str]) -> None:
        self.added: dict[str, str] = {}
        self.sentences: dict[int, str] = {}
        self.status = 500
        self._scope, self._send, self._frames = scope, send, frames
        self._asked = Headers(scope=scope)
        self.id = self._asked[ID]
        self._nonce = secrets.token_urlsafe(16)
        self._held: Message | None = None  # the start of an HTML page, until its body is complete
        self._page = b""
        self._started = self._muted = self._stalled = self._unchanged = False
        self._open = False  # whether the answer ends by a last part and not by its length

    def watched(self, receive: Receive, raw: bytes | None = None) -> Receive:
        """A `Receive` that says that a client has left if it takes nothing any more. raw: the body,
        if it was read."""
        read: list[Message] = [] if raw is None else [{"type": "http.request", "body": raw}]

        async def received() -> Message:
            if read:
                return read.pop()
            return {"type": "http.disconnect"} if self._stalled else await receive()

        return received

    async def send(self, message: Message) -> None:
        """Pass a part of Gradio's answer on."""
        if self._muted:
            return
        if message["type"] == "http.response.start":
            if message["status"] >= 400:
                await self.refuse(message["status"])
            elif Headers(raw=message["headers"]).get("content-type", "").startswith("text/html"):
                self._held = message
            else:
                await self._begin(message["status"], message["headers"])
        elif self._held is not None:
            self._page += message.get("body", b"")
            if not message.get("more_body", False):
                page = our_page(self._page, address_of(self._scope), self._nonce)
                headers = MutableHeaders(raw=self._held["headers"])
                headers["content-length"] = str(len(page))
                await self._whole(self._held["status"], headers.raw, page)
        else:
            with move_on_after(STALLED) as patience:
                await self._send({**message, "body": b""} if self._unchanged else message)
            self._stalled = self._muted = patience.cancelled_caught

    async def refuse(self, status: int, sentence: str | None = None) -> None:
        """Answer with a sentence, unless another answer has begun, which then ends."""
        if not self._started:
            shown = sentence or self.sentences.get(status) or SENTENCES.get(status, OTHERWISE)
            raw = orjson.dumps({"detail": shown, "error": shown})
            await self.give(Response(raw, status, media_type="application/json"))
        elif self._open and not self._stalled:
            await self._send({"type": "http.response.body", "body": b""})
        self._muted = True

    async def give(self, response: Response) -> None:
        """Answer with this, whatever Gradio still sends."""
        self._muted = True
        await self._whole(response.status_code, response.raw_headers, bytes(response.body))

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], raw: bytes) -> None:
        await self._begin(status, headers)
        await self._send({"type": "http.response.body", "body": raw})

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started, self.status = True, status
        https = self._scope["scheme"] == "https"
        strict = partial(strict_cookie, framed=bool(self._frames), https=https)
        changed = MutableHeaders(
            raw=[(key, strict(one) if key == b"set-cookie" else one) for key, one in headers]
        )
        self._open = "content-length" not in changed
        changed.update(security_headers(self._nonce, self._frames) | self.added)
        if self.added:
            changed.add_vary_header("Origin")
        changed[ID] = self.id
        if status in (200, 206):
            changed["cache-control"] = _lifetime(self._scope["path"])
        changed.setdefault("cache-control", NEVER)
        # A proxy that compresses adds a mark.
        kept = self._asked.get("if-none-match", "").removeprefix("W/")
        self._unchanged = status == 200 and changed.get("etag", "") == kept != ""
        if self._unchanged:
            status = 304
            del changed["content-length"]
        await self._send({"type": "http.response.start", "status": status, "headers": changed.raw})


def _lifetime(path: str) -> str:
    if _HASHED.search(path):
        return FOR_EVER
    return CHECKED if _FILES.search(path) else NEVER


def security_headers(nonce: str, frames: Sequence[str] = ()) -> dict[str, str]:
    """Headers by name. nonce: of the inline scripts that may run. frames: the sites that may show
    the page in a frame, beside the page itself.

    Gradio compiles templates and listeners in the browser, so scripts may evaluate text
    ('unsafe-eval'); its components and Plotly set styles inline. Scripts in attributes, or in
    elements that are added later, do not run.
    """
    # On a Space, Gradio loads its top bar from the hub.
    hub = f" {HUB}" if os.environ.get("SPACE_ID") else ""
    policy = (
        "default-src 'self'",
        f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
        "script-src-attr 'none'",
        "style-src 'self' 'unsafe-inline'",
        f"img-src 'self' data: blob:{hub}",
        "font-src 'self' data:",
        f"connect-src 'self' data:{hub}",  # Plotly's pictures are data: addresses
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


def strict_cookie(cookie: bytes, *, framed: bool, https: bool) -> bytes:
    """A `Set-Cookie` of Gradio for this page: other sites do not send it, unless one of them shows
    the page in a frame, and it does not travel over plain HTTP if the page came over HTTPS."""
    if not framed:
        cookie = _ANY_SITE.sub(b"SameSite=lax", cookie)
    return cookie if not https or b"secure" in cookie.lower().split(b"; ") else cookie + b"; Secure"

"""The middleware between the network and Gradio.

It decides which addresses exist and how large a request may be, adds headers to every answer, and
replaces the details of failures by sentences.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gradio.data_classes import _StaticFiles
from gradio.routes import App, ORJSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import NOTHING, Answer
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
from .sites import PREFLIGHT, Sites, is_preflight

log = logging.getLogger(__name__)

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


class GuardedApp(App):
    """Gradio's application behind a `Guard`, which also comes before Gradio's own middleware:
    that would answer other sites by itself."""

    def __init__(self, *, sites: Sites, tools: bool) -> None:
        # FastAPI's own pages load scripts from another host.
        super().__init__(
            default_response_class=ORJSONResponse, docs_url=None, redoc_url=None, openapi_url=None
        )
        self._sites = sites
        self._tools = tools

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), sites=self._sites, tools=self._tools)


class Guard:
    """The ASGI middleware. sites: which may use the page. tools: whether Gradio's MCP server is
    on."""

    def __init__(self, app: ASGIApp, *, sites: Sites, tools: bool = False) -> None:
        self._app = app
        self._sites = sites
        self._tools = tools
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # the page uses none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = Answer(scope, send, self._sites.frames)
        try:
            headers = Headers(scope=scope)
            answer.added |= self._sites.admit(headers, scope["app"].get_blocks().share_url)
            if is_preflight(scope["method"], headers):
                answer.added |= PREFLIGHT if answer.added else {}
                await answer.allow()
                return
            with self._bodies.room() as body:
                receive = await self._admitted(scope, receive, body)
                await self._app(_without_origin(scope), receive, answer.send)
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


def _without_origin(scope: Scope) -> Scope:
    """The request without its site, which Gradio would allow to read the answer."""
    kept = [(name, value) for name, value in scope["headers"] if name != b"origin"]
    return {**scope, "headers": kept}


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

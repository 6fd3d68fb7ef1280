"""The entrance of the page: admit requests by address, site and password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from ..probes import probed
from .addresses import POSTS, PREFLIGHT, TOOL_POST, TOOLS, Post, Sites, is_readable, path_of
from .answers import NOTHING, Answer
from .password import Password
from .requests import NOT_OURS, Refused

if TYPE_CHECKING:
    from ..queue import RunQueue


class Entrance:
    """Admits requests. queue: of runs, for the operator's probes. sites: those that may use the
    page. password: None if there is none. has_tools: whether Gradio's MCP server is on. shared: the
    address of Gradio's tunnel, if there is one.
    """

    def __init__(
        self, *, queue: RunQueue, sites: Sites, password: Password | None, has_tools: bool
    ) -> None:
        self.shared: str | None = None
        self._queue = queue
        self._sites = sites
        self._password = password
        self._has_tools = has_tools

    def admit(self, scope: Scope, answer: Answer) -> Post | Response | None:
        """Return the address of a request with a body, None for one without, or a response if it is
        answered here. Adds the headers that its site needs to the answer. Raises `Refused`."""
        headers = Headers(scope=scope)
        path = path_of(scope)
        # A probe has no session, and may name any host.
        response = probed(scope, self._queue)
        if response is not None:
            return response
        answer.added |= self._sites.admit(headers, self.shared)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            if answer.added:
                answer.added |= PREFLIGHT
            return Response(status_code=204)
        post = self._wanted(scope["method"], path, headers)
        if self._password is not None:
            self._password.check(scope, path)
        return post

    def _wanted(self, method: str, path: str, headers: Headers) -> Post | None:
        """Return the address of an admitted POST; None for other methods. Raises `Refused`."""
        is_tool = self._has_tools and bool(TOOLS.fullmatch(path))
        if method in ("GET", "HEAD") and is_readable(path):
            return None
        if is_tool and method in ("GET", "HEAD", "DELETE"):
            return None
        post = _post_at(path)
        if post is None and is_tool:
            post = TOOL_POST
        if method != "POST" or post is None:
            raise Refused(404, NOTHING)
        _check_type(post, headers)
        return post


def _post_at(path: str) -> Post | None:
    for post in POSTS:
        if post.path.fullmatch(path):
            return post
    return None


def _check_type(post: Post, headers: Headers) -> None:
    """Raise `Refused` unless a body has the type of its address. Another site can make a browser
    send forms here, but neither JSON nor files."""
    if post.reads is not None:
        wanted = "application/octet-stream"
    elif post.kind is not None:
        wanted = "application/json"
    else:
        return
    content_type, _, _ = headers.get("content-type", "").partition(";")
    if content_type.strip().lower() != wanted:
        raise Refused(400, NOT_OURS)

"""Addresses for those who operate the page: whether it lives, whether it is ready, and its figures.

/healthz answers 200 while the server answers at all. /readyz answers 200 from when the models have
loaded the pair until the server is about to end, and 503 otherwise. /metrics is for Prometheus.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import secrets
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..environment import AUTH, METRICS

if TYPE_CHECKING:
    from .queue import RunQueue

HEALTH, READY, FIGURES = "/healthz", "/readyz", "/metrics"
NOT_INSTALLED = (
    "SPECVIZ_METRICS is set, but prometheus_client is not installed: install it with "
    "'pip install -r requirements-metrics.txt'."
)
SIGN_IN = "This page has a password: send it with HTTP's Basic authentication."


class Probes:
    """The ASGI middleware. Raises `SettingsError` for a variable that is not valid."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._password = AUTH.read()
        self._figures = METRICS.read()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if scope.get("method") not in ("GET", "HEAD"):
            path = ""
        runs: RunQueue | None = getattr(scope["app"].get_blocks(), "runs", None) if path else None
        answer: Response
        if path == HEALTH:
            answer = _told(200, "alive")
        elif path == READY and runs is not None:
            answer = readiness(runs)
        elif path == FIGURES and runs is not None and self._figures:
            answer = await self._figures_for(Headers(scope=scope), runs)
        else:
            await self._app(scope, receive, send)
            return
        await answer(scope, receive, send)

    async def _figures_for(self, headers: Headers, runs: RunQueue) -> Response:
        if self._password and not _signed_in(headers.get("authorization", ""), self._password):
            return _told(401, SIGN_IN, {"www-authenticate": 'Basic realm="specviz"'})
        if importlib.util.find_spec("prometheus_client") is None:
            return _told(501, NOT_INSTALLED)
        from .figures import FORMAT, figures

        # Looking at the memory of processes takes some milliseconds.
        return Response(await run_in_threadpool(figures, runs), media_type=FORMAT)


def readiness(runs: RunQueue) -> Response:
    """Whether visitors may be sent here: 200 or 503, with the reason."""
    if runs.closing:
        return _told(503, "The server is being restarted.")
    if not runs.answered:
        return _told(503, "The models have not loaded their pair yet, or could not: see the log.")
    return _told(200, "ready")


def _told(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(text + "\n", status, headers)


def _signed_in(authorization: str, wanted: tuple[str, str]) -> bool:
    kind, _, packed = authorization.partition(" ")
    try:
        given = base64.b64decode(packed, validate=True)
    except binascii.Error:
        return False
    same = secrets.compare_digest(given, ":".join(wanted).encode())
    return kind.lower() == "basic" and same

"""The health probes for the page's operator.

/healthz answers 200 while the server runs. /readyz answers 200 once the pair is loaded, until the
server is about to end, and 503 otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

if TYPE_CHECKING:
    from .queue import RunQueue

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
NOT_LOADED = "The pair is not loaded yet, or could not be loaded: see the log."


def probed(scope: Scope, queue: RunQueue) -> Response | None:
    """The answer to a health probe; None for any other request."""
    if scope["method"] not in ("GET", "HEAD"):
        return None
    path = scope["path"]
    if path == HEALTH_PATH:
        return _plain_response(200, "alive")
    if path != READY_PATH:
        return None
    if queue.closing:
        return _plain_response(503, "The server is being restarted.")
    if not queue.answered:
        return _plain_response(503, NOT_LOADED)
    return _plain_response(200, "ready")


def _plain_response(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)

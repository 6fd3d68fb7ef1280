"""Addresses for those who operate the page: whether it lives, whether it is ready, and its figures.

/healthz answers 200 while the server answers at all. /readyz answers 200 from when the models have
loaded the pair until the server is about to end, and 503 otherwise. /metrics is for Prometheus.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..core.events import OUTCOMES
from ..lanes import LANES
from ..variables import AUTH, METRICS
from .tally import ENDS

if TYPE_CHECKING:
    from .queue import RunQueue

HEALTH, READY, FIGURES = "/healthz", "/readyz", "/metrics"
FORMAT = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus's exposition format
Row: TypeAlias = "tuple[str, str, str, Mapping[Any, float]]"
"""A figure's name and meaning, and its values by what the third says, which may be empty."""
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
        # Looking at the memory of processes takes some milliseconds.
        return Response(await run_in_threadpool(figures, runs), media_type=FORMAT)


def readiness(runs: RunQueue) -> Response:
    """Whether visitors may be sent here: 200 or 503, with the reason."""
    if runs.closing:
        return _told(503, "The server is being restarted.")
    if not runs.answered:
        return _told(503, "The models have not loaded their pair yet, or could not: see the log.")
    return _told(200, "ready")


def figures(runs: RunQueue) -> str:
    """All figures of the page with this queue, in Prometheus's format."""
    tally = runs.tally
    ready = runs.answered and not runs.closing
    counters: list[Row] = [
        ("runs", "Runs and experiments that have ended.", "end", _of(tally.runs, ENDS)),
        ("rounds", "Rounds.", "lane", _of(tally.rounds, LANES)),
        ("tokens", "Emitted tokens.", "lane", _of(tally.tokens, LANES)),
        (
            "decoding_seconds",
            "On the lanes' clocks, without prefill.",
            "lane",
            tally.seconds,
        ),
        ("drafted_tokens", "By outcome.", "outcome", _of(tally.drafted, OUTCOMES[:3])),
        ("refusals", "The queue was full, or the server ending.", "", {"": tally.refused}),
        ("model_process_restarts", "Times it was replaced.", "", {"": runs.restarts}),
    ]
    gauges: list[Row] = [
        ("waiting", "Runs and experiments that wait in the queue.", "", {"": runs.waiting}),
        ("running", "Whether one uses the models.", "", {"": runs.current is not None}),
        ("ready", "Whether /readyz answers 200.", "", {"": ready}),
        ("resident_bytes", "Memory.", "process", _resident()),
    ]
    told = [_figure("counter", row, "_total") for row in counters]
    return "".join([*told, *(_figure("gauge", row) for row in gauges)])


def _of(counts: Mapping[Any, float], keys: Iterable[Any]) -> dict[str, float]:
    return {str(key): counts.get(key, 0) for key in keys}


def _figure(kind: str, row: Row, end: str = "") -> str:
    name, meaning, label, values = row
    name = f"specviz_{name}{end}"
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for key, value in values.items():
        which = f'{{{label}="{key}"}}' if label else ""
        lines.append(f"{name}{which} {float(value)!r}")
    return "\n".join(lines) + "\n"


def _resident() -> dict[str, int]:
    """Bytes of memory of this process, and of those of the models and the doctor together."""
    page = psutil.Process()
    models = 0
    for child in page.children():
        try:
            models += child.memory_info().rss
        except psutil.Error:  # it has just ended
            continue
    return {"page": page.memory_info().rss, "models": models}


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

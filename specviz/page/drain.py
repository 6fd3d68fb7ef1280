"""The end of the page: what still runs may end, and nothing new begins."""

from __future__ import annotations

import time
from typing import Any

from .jobs import GRACE
from .queue import RunQueue

CUT_SHORT = "The server is being restarted, so this run ended with what it had."
LAST_WORDS = 1.0  # seconds for visitors to be sent the last results of their runs
_STEP = 0.02


def drain(runs: RunQueue, seconds: float) -> None:
    """End the queue: waiting jobs are refused at once, the current one has `seconds` to end by
    itself and `GRACE` more to stop. Returns when visitors were sent its results, or soon after."""
    runs.refuse_from_now_on()
    deadline = time.monotonic() + seconds
    while runs.current is not None and time.monotonic() < deadline:
        time.sleep(_STEP)
    job = runs.current
    if job is not None:
        job.end_early(CUT_SHORT)
    deadline = time.monotonic() + GRACE
    while runs.current is not None and time.monotonic() < deadline:
        time.sleep(_STEP)
    deadline = time.monotonic() + LAST_WORDS
    while _unread(runs) and time.monotonic() < deadline:
        time.sleep(_STEP)


def close_page(page: Any) -> None:
    """Close Gradio's server, also if visitors keep connections open."""
    page.server.config.timeout_graceful_shutdown = 1
    page.close(verbose=False)


def _unread(runs: RunQueue) -> bool:
    """Whether a visitor waits for the last results of a run or a sweep."""
    return any(not (job.delivered or job.abandoned()) for job in runs.jobs())

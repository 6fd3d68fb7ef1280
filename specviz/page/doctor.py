"""The doctor on the page: it examines a pair once it is chosen, beside the queue of runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from html import escape
from typing import Any, cast

from ..errors import SpecvizError
from ..worker.client import Worker, results_of
from ..worker.tasks import ExamineTask
from .offers import Offers

MARKS = {"good": "✓", "warning": "!", "stop": "✕"}
READING = "Reading configs and tokenizers; no weights are fetched."
IDLE = 120.0  # seconds without a question after which its process ends


class Doctor:
    """Examines pairs one at a time, in a worker of its own: a race need not wait for it.

    offers: what it has learnt of the pairs' drafters.
    """

    def __init__(self, worker: Worker, offers: Offers | None = None) -> None:
        self._worker = worker
        self.offers = offers or Offers()
        self._lock = threading.Lock()
        self._idle: threading.Timer | None = None

    def examine(self, pair: str) -> dict[str, Any]:
        """The report about a pair. Raises `SpecvizError`."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            *_, report = results_of(self._worker, ExamineTask(pair))
            self.offers.learn(pair, report.get("drafters", ()))
            self._idle = threading.Timer(IDLE, self._close)
            self._idle.daemon = True
            self._idle.start()
        return cast(dict[str, Any], report)

    def _close(self) -> None:
        with self._lock:
            self._worker.close()


def report_views(doctor: Doctor, pair: str) -> Iterator[str]:
    """HTML for the page: first that the doctor reads, then its report."""
    yield f'<p class="sv-reading">{READING}</p>'
    try:
        yield report_html(doctor.examine(pair))
    except SpecvizError as error:
        yield refusal_html(str(error))


def refusal_html(sentence: str) -> str:
    """Why nothing was examined, as HTML."""
    return f'<p class="stop">{escape(sentence)}</p>'


def report_html(report: dict[str, Any]) -> str:
    """A report of the doctor as an HTML list, the worst findings first."""
    levels = list(reversed(MARKS))
    findings = sorted(report["findings"], key=lambda one: levels.index(one["level"]))
    rows = "".join(
        f'<li class="{one["level"]}"><i aria-label="{one["level"]}">{MARKS[one["level"]]}</i>'
        f"<span><b>{escape(one['topic'])}</b> {escape(one['sentence'])}</span></li>"
        for one in findings
    )
    summary = f'<p class="{report["verdict"]}">{escape(report["summary"])}</p>'
    return f"{summary}<ul>{rows}</ul>"

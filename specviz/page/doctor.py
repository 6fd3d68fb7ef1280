"""The doctor on the page: asked as soon as a pair is chosen, without a place in the line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from html import escape
from typing import Any

from ..errors import SpecvizError
from ..worker.client import Worker
from ..worker.tasks import ExamineTask

MARKS = {"good": "✓", "warning": "!", "stop": "✕"}
READING = "Reading configs and tokenizers; no weights are fetched."
RESTING = 120.0  # seconds without a question after which its process ends


class Doctor:
    """Examines pairs in a process of its own, one at a time, while the lanes race in theirs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._turn = threading.Lock()
        self._rest: threading.Timer | None = None

    def examine(self, pair: str) -> dict[str, Any]:
        """The report about a pair. Raises `SpecvizError`."""
        reports: list[dict[str, Any]] = []

        def take(item: Any) -> bool:
            reports.append(item)
            return True

        with self._turn:
            if self._rest is not None:
                self._rest.cancel()
            self._worker.run(ExamineTask(pair), take)
            self._rest = threading.Timer(RESTING, self._close)
            self._rest.daemon = True
            self._rest.start()
        return reports[-1]

    def _close(self) -> None:
        with self._turn:
            self._worker.close()


def report_views(doctor: Doctor, pair: str) -> Iterator[str]:
    """What the page shows while the doctor reads, and then: HTML that holds text only."""
    yield f'<p class="sv-reading">{READING}</p>'
    try:
        yield report_html(doctor.examine(pair))
    except SpecvizError as error:
        yield refusal_html(str(error))


def refusal_html(sentence: str) -> str:
    """Why nothing was examined."""
    return f'<p class="stop">{escape(sentence)}</p>'


def report_html(report: dict[str, Any]) -> str:
    """A report of the doctor as a list, the worst findings first."""
    levels = list(reversed(MARKS))
    findings = sorted(report["findings"], key=lambda one: levels.index(one["level"]))
    rows = "".join(
        f'<li class="{one["level"]}"><i aria-label="{one["level"]}">{MARKS[one["level"]]}</i>'
        f"<span><b>{escape(one['topic'])}</b> {escape(one['sentence'])}</span></li>"
        for one in findings
    )
    summary = f'<p class="{report["verdict"]}">{escape(report["summary"])}</p>'
    return f"{summary}<ul>{rows}</ul>"

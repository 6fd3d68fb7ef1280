"""The doctor on the page: it examines a pair once it is chosen, outside the queue of runs, and
remembers which drafters the pair offers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

from ..files.memory import shown_bytes
from ..pairs.table import download_bytes, fetch_command, missing_files, named_pair
from ..worker.client import Worker, results_of
from ..worker.loading import pair_and_options
from ..worker.tasks import ExamineTask
from .choices import Offers, requested_pair
from .failures import PageQuestion
from .fair_turns import FairTurns
from .files import after
from .security.requests import CLIENT

IDLE = 120.0  # seconds without a question after which its process ends
MAX_WAITING = 24  # requests; each holds a thread of the server
MAX_OF_CLIENT = 4  # of these, of one address
CROWDED = "Many pairs are being examined at the moment: choose this one again in a minute."
SHARE_USED = (
    "The limit of waiting pairs for your network is reached: choose this one again in a minute."
)


class Doctor:
    """Examines pairs one at a time, in its own worker, so that a race need not wait for it.
    Visitors' addresses take turns. offers: the drafters of pairs, which it updates. turns: the
    turns of waiting visitors.
    """

    def __init__(self, worker: Worker, offers: Offers | None = None) -> None:
        self._worker = worker
        self.offers = offers or Offers()
        self.turns = FairTurns()
        self._lock = threading.Lock()
        self._idle: threading.Timer | None = None

    def examine(self, pair: str) -> dict[str, Any]:
        """Examine a pair. Raises `SpecvizError`, also if too many visitors wait."""
        turn = self.turns.turn(
            CLIENT.get(),
            limit=MAX_WAITING,
            limit_of_client=MAX_OF_CLIENT,
            crowded=CROWDED,
            share_used=SHARE_USED,
        )
        with turn, self._lock:
            if self._idle is not None:
                self._idle.cancel()
            *_, report = results_of(self._worker, ExamineTask(pair))
            self.offers.learn(pair, report.get("drafters", ()))
            self._idle = after(IDLE, self._close)
        return cast(dict[str, Any], report)

    def _close(self) -> None:
        with self._lock:
            self._worker.close()


def doctor_questions(doctor: Doctor, page_pair: str) -> list[PageQuestion]:
    """The question that examines the pair that a visitor has chosen. page_pair: the pair that the
    page was started with."""

    def examine(request: dict[str, Any]) -> dict[str, Any]:
        name = requested_pair(request, page_pair=page_pair)
        models, _ = pair_and_options(name)
        report = _unfetched(models)
        if report is None:
            report = doctor.examine(name)
        return _shown_report(report, doctor.offers.of(name), models)

    return [examine]


def _shown_report(report: dict[str, Any], drafters: Sequence[str], models: str) -> dict[str, Any]:
    """A report for the browser. models: the pair without the form of its weights."""
    return {
        "verdict": report["verdict"],
        "summary": report["summary"],
        "findings": report["findings"],
        "fetch": report.get("fetch"),
        "drafters": list(drafters),
        "models": models,
    }


def _unfetched(pair: str) -> dict[str, Any] | None:
    """The report about a pair whose files must be fetched first; None if they are here."""
    row = named_pair(pair)
    if row is None or not missing_files(row):
        return None
    size = shown_bytes(download_bytes(row))
    return {
        "verdict": "warning",
        "summary": f"Not on this machine yet: {size} to download.",
        "findings": [],
        "fetch": fetch_command(row),
    }

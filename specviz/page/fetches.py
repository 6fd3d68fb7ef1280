"""The published pair while it is not on this machine yet: its state on the page, and the fetch that
one press begins. Afterwards the page opens with it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..base.environment import BUILTIN
from ..base.errors import PairError, SpecvizError
from ..base.variables import FETCH
from ..files.progress import FetchStopped, Progress
from ..pairs.fetch import bytes_here, fetch, fetch_plan, usual_seconds
from ..pairs.opening import first_pair
from ..pairs.table import NamedPair
from ..worker.failures import FAILED
from .failures import PageQuestion
from .names import shown_pair, without_owner
from .queue import RunQueue
from .security.owner import MAY_FETCH

log = logging.getLogger(__name__)

NOT_YOURS = (
    "Only a visitor on the page's own machine may fetch a pair: the operator can allow it with the "
    f"variable {FETCH.name}."
)
NOTHING = "There is nothing to fetch: this page has its pair."
EARLIEST = 1.0  # seconds of a fetch after which its speed predicts the rest


class PairFetch:
    """The fetch of the pair that the page would open with. Its state is one of "idle", "running",
    "stopped", "failed" and "done". row: the pair's row of the table; None if nothing is missing.
    """

    def __init__(self, queue: RunQueue, row: NamedPair | None = None) -> None:
        self.row = row
        self._queue = queue
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._state = "idle"
        self._error: str | None = None
        self._step = ""
        self._began = 0.0  # by the monotonic clock
        self._max_done = 0  # bytes on this machine, at most so far
        self._first = 0  # bytes on this machine when it began

    @property
    def is_missing(self) -> bool:
        """Whether the pair is not here yet."""
        return self.row is not None and self._state != "done"

    def begin(self) -> None:
        """Begin the fetch, or resume a stopped one. Raises `PairError`."""
        with self._lock:
            if self.row is None or self._state == "done":
                raise PairError(NOTHING)
            if self._state == "running":
                return
            self._state = "running"
            self._error = None
            self._max_done = 0
            self._first = bytes_here(self.row)
            self._step = "looking for a source"
            self._began = time.monotonic()
            self._stopping.clear()
            self._thread = threading.Thread(
                target=self._fetch, args=(self.row,), name="fetch", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop it soon; the partial download stays."""
        self._stopping.set()

    def close(self) -> None:
        """End it, with the processes that it has started, before the program ends."""
        self.stop()
        if self._thread is not None:
            self._thread.join(5.0)

    def state(self) -> dict[str, Any] | None:
        """The fetch's state for the browser; None if nothing is missing."""
        if self.row is None:
            return None
        total = sum(file.bytes for file in self.row.files)
        done = bytes_here(self.row)
        elapsed = None
        if self._state == "running":
            # A partial file is missing for a moment while it is renamed.
            self._max_done = done = max(done, self._max_done)
            elapsed = time.monotonic() - self._began
        may_fetch = MAY_FETCH.get()
        error: str | None = None
        if may_fetch:
            error = self._error
        return {
            "state": self._state,
            "pair": self.row.name,
            "title": _models_of(self.row),
            "running": _shown_models(self._queue.page_pair),
            "mayFetch": may_fetch,
            "bytes": total,
            "done": done,
            "step": self._step,
            "elapsed": elapsed,
            "left": self._left(total - done, done - self._first, elapsed),
            "error": error,
        }

    def _left(self, missing: int, received: int, elapsed: float | None) -> float | None:
        """Estimate the seconds to fetch the missing bytes. received: bytes since it began. elapsed:
        seconds since then, None if it is not running."""
        if elapsed is None:
            return usual_seconds(missing)
        if received <= 0 or elapsed < EARLIEST:
            return None
        return elapsed / received * missing

    def _fetch(self, row: NamedPair) -> None:
        error = None
        state = "failed"
        try:
            self._carry_out(row)
            state = "done"
        except FetchStopped:
            state = "stopped"
        except SpecvizError as failure:
            error = str(failure)
        except Exception:
            log.exception("a pair could not be fetched")
            error = FAILED
        with self._lock:
            self._state = state
            self._error = error

    def _carry_out(self, row: NamedPair) -> None:
        """Fetch the missing files, and make the page open with the pair. Raises `PairError`."""
        plan = fetch_plan(row, "either", self._note)
        if plan is not None:
            log.info("fetching %s", plan.sentence)
            fetch(plan, self._note, self._stopping)
        self._queue.open_with(first_pair())

    def _note(self, progress: Progress) -> None:
        self._step = progress.sentence
        if self._stopping.is_set():
            raise FetchStopped("the fetch was stopped.")


def _models_of(row: NamedPair) -> str:
    """The names of a row's target and of its draft, without the form of their weights."""
    names = [without_owner(row.target.name)]
    if row.draft is not None:
        names.append(without_owner(row.draft.name))
    return " + ".join(names)


def _shown_models(pair: str) -> str:
    """The models that the page runs, as the end of a sentence."""
    if pair == BUILTIN:
        return "the built-in pair"
    shown = shown_pair(pair)
    if shown.draft is None:
        return shown.target
    return f"{shown.target} + {shown.draft}"


def fetch_questions(fetching: PairFetch, offer: Callable[[], dict[str, Any]]) -> list[PageQuestion]:
    """The questions that begin and stop the fetch and report its progress. offer: the page's offer,
    which the browser gets once the pair is here."""

    def state() -> dict[str, Any]:
        fetch_state = fetching.state()
        if fetch_state is None:
            raise PairError(NOTHING)
        if fetch_state["state"] == "done":
            fetch_state["offer"] = offer()
        return fetch_state

    def begin_fetch(_: dict[str, Any]) -> dict[str, Any]:
        _check_owner()
        fetching.begin()
        return state()

    def stop_fetch(_: dict[str, Any]) -> dict[str, Any]:
        _check_owner()
        fetching.stop()
        return state()

    def ask_fetch(_: dict[str, Any]) -> dict[str, Any]:
        return state()

    return [begin_fetch, stop_fetch, ask_fetch]


def _check_owner() -> None:
    """Raise `PairError` for a stranger."""
    if not MAY_FETCH.get():
        raise PairError(NOT_YOURS)

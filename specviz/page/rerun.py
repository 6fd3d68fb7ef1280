"""The check "Run it again": a job in the queue that races a recorded run once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from ..environment import on_zerogpu
from ..errors import SettingsError, TraceError
from ..runs.identities import check_trace
from ..runs.trace import Trace
from ..worker.rerun import Again, RerunTask
from .controls import MAX_LENGTH, MOST_CHARACTERS, MOST_OTHERS
from .delivery import finished_run
from .jobs import Polled
from .queue import RunQueue

NOT_LENT = "this page is lent its GPU for races alone: use check --rerun on your own machine."
TOO_LONG = "this run is longer than this page allows: use check --rerun on your own machine."


class SecondRun(Polled):
    """Races a recorded run again."""

    def __init__(self, session: str, pair: str, recorded: Trace) -> None:
        super().__init__(session, RerunTask(pair, recorded))
        self._again: Again | None = None

    def add(self, item: Any) -> None:
        super().add(item)
        if isinstance(item, Again):
            self._again = item

    def has_result(self) -> bool:
        return self._again is not None

    def news(self, since: int, *, over: bool) -> dict[str, Any]:
        news: dict[str, Any] = {"status": self.said} if self.said else {}
        if not over or self._again is None:
            return {**news, "stopped": over}
        return {**news, "result": self._again._asdict()}


def rerun_functions(runs: RunQueue, pair: str) -> list[Callable[[dict[str, Any]], Any]]:
    """The server function that begins a second run. pair: the pair for visitors without a run."""

    def begin_rerun(asked: dict[str, Any]) -> dict[str, Any]:
        if on_zerogpu():
            raise SettingsError(NOT_LENT)
        run = finished_run(runs, asked)
        session, name = (uuid4().hex, pair) if run is None else (run.session, run.task.pair)
        again = SecondRun(session, name, read_run(asked.get("trace")))
        runs.submit(again)
        return again.state(runs.status_of(again))

    return [begin_rerun]


def read_run(value: Any) -> Trace:
    """The run that a browser shows. Raises `TraceError`, also for one that is longer than the page
    allows."""
    trace = Trace.from_dict(value)
    check_trace(trace)
    header = trace.header
    is_long = header.settings.max_new_tokens > MAX_LENGTH
    too_many = len(header.speculative) > 1 + MOST_OTHERS
    if is_long or too_many or len(header.prompt_ids) > MOST_CHARACTERS:
        raise TraceError(TOO_LONG)
    return trace

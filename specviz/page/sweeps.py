"""A visitor's sweep in the queue: it comes and goes in pieces, and keeps what it has found."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..measure.sweep.export import sweep_csv
from ..measure.sweep.figures import TITLES, figure_specs
from ..measure.sweep.types import Plan, Progress, Row, SweepRequest, SweepResult
from ..runs.charts import PALETTE
from ..worker.sweeping import Rest, SweepTask
from .jobs import GRACE, Job

RESTARTED = "The server is being restarted, so this sweep ended with what it had."
PATIENCE = 10.0  # seconds without a question after which the visitor has left
HIDDEN_PATIENCE = 75.0  # the same for a hidden tab, whose timers a browser runs once a minute


class SweepJob(Job):
    """A sweep, of which the models do a few pieces at a time.

    plan, progress, result: the newest of each. rows: by the keys of their configurations. version:
    grows with every news. asked_at: when the browser asked last, by the monotonic clock.
    """

    def __init__(self, session: str, pair: str, request: SweepRequest) -> None:
        super().__init__(session, SweepTask(pair, request))
        self.plan: Plan | None = None
        self.progress: Progress | None = None
        self.result: SweepResult | None = None
        self.rows: dict[str, Row] = {}
        self.version = 0
        self.asked_at = time.monotonic()
        self._patience = PATIENCE
        self._found_at = 0  # the version that brought `result`
        self._versions: dict[str, int] = {}  # of the rows
        self._rest: Rest | None = None

    def add(self, item: Any) -> None:
        super().add(item)
        self.version += 1
        if isinstance(item, Plan):
            self.plan = item
            self._keep_rows(item.rows)
        elif isinstance(item, Row):
            self._keep_rows((item,))
        elif isinstance(item, Progress):
            self.progress = item
        elif isinstance(item, SweepResult):
            self._find(item)
        elif isinstance(item, Rest):
            self._rest = item
            self._find(item.result)

    def abandoned(self) -> bool:
        return time.monotonic() - self.asked_at > self._patience

    def has_more(self) -> bool:
        rest = self._rest
        if rest is None or rest.done or not isinstance(self.task, SweepTask):
            return False
        self.task = replace(self.task, state=rest.state)
        self.begun = None  # the limit of a run holds for each turn
        return True

    def finish(self) -> None:
        if self.has_more() and not (self.stopping.is_set() or self.error):
            self.remark = RESTARTED  # nothing else ends a sweep between two turns
        self._rest = None  # its state is of no use any more
        if self.result is None and not self.error:
            self.error = self.remark

    def state(self, waiting: str, since: int = 0, *, hidden: bool = False) -> dict[str, Any]:
        """What is new since version `since`. waiting: why it does not go on. hidden: whether the
        browser shows another tab."""
        self.asked_at = time.monotonic()
        self._patience = HIDDEN_PATIENCE if hidden else PATIENCE
        over = self.delivered = self._is_over_for_visitor()
        version = self.version  # read first: what comes meanwhile is sent again
        state: dict[str, Any] = {"id": self.id, "over": over, "version": version}
        state |= {"status": waiting, "error": self.error, "remark": self.remark}
        if version == since and not over:
            return state
        if self.plan is not None and since == 0:
            state |= {"kinds": self.plan.kinds, "pieces": self.plan.pieces}
            state |= {"seconds": self.plan.seconds}
        state["progress"] = self.progress and self.progress.to_dict()
        state["rows"] = [
            {"key": key, **row.to_dict()}
            for key, row in list(self.rows.items())
            if self._versions[key] > since or over
        ]
        if self.result is not None and (self._found_at > since or over):
            state |= _found(self.result, whole=over)
        return state

    def _keep_rows(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            key = row.configuration.key
            if self.rows.get(key) != row:
                self._versions[key] = self.version
                self.rows[key] = row

    def _find(self, result: SweepResult) -> None:
        self.result = result
        self._found_at = self.version = self.version + 1
        self._keep_rows(result.rows)

    def _is_over_for_visitor(self) -> bool:
        """Whoever stopped it need not wait for the end of its piece."""
        if self.over or not self.stopping.is_set():
            return self.over
        self.stopped_at = self.stopped_at or time.monotonic()
        return time.monotonic() - self.stopped_at > GRACE


def _found(result: SweepResult, *, whole: bool) -> dict[str, Any]:
    """The findings for the browser. whole: with the result as a program reads it."""
    full = result.to_dict()
    found = {"recommendations": full["recommendations"], "machine": full["machine"]}
    found |= {"link": result.link, "spent": result.spent, "stopped": result.stopped}
    found["figures"] = {
        theme: {
            name: {**spec, "title": TITLES[name]}
            for name, spec in figure_specs(result, theme).items()
        }
        for theme in PALETTE
    }
    return {**found, "whole": full, "csv": sweep_csv(result)} if whole else found

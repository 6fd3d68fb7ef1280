"""A visitor's sweep in the queue: it comes and goes in pieces, and keeps what it has found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..measure.sweep.export import sweep_csv
from ..measure.sweep.figures import TITLES, figure_specs
from ..measure.sweep.types import Plan, Progress, Row, SweepRequest, SweepResult
from ..runs.charts import PALETTE
from ..worker.tasks import Rest, SweepTask
from .jobs import Polled

RESTARTED = "The server is being restarted, so this sweep ended with what it had."


class SweepJob(Polled):
    """A sweep, of which the models do a few pieces at a time.

    plan, progress, result: the newest of each. rows: by the keys of their configurations.
    """

    def __init__(self, session: str, pair: str, request: SweepRequest) -> None:
        super().__init__(session, SweepTask(pair, request))
        self.plan: Plan | None = None
        self.progress: Progress | None = None
        self.result: SweepResult | None = None
        self.rows: dict[str, Row] = {}
        self._found_at = 0  # the number of the news that brought `result`
        self._numbers: dict[str, int] = {}  # of the rows
        self._rest: Rest | None = None

    def add(self, item: Any) -> None:
        super().add(item)
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
        super().finish()

    def has_result(self) -> bool:
        return self.result is not None

    def news(self, since: int, *, over: bool) -> dict[str, Any]:
        news: dict[str, Any] = {"progress": self.progress and self.progress.to_dict()}
        if self.plan is not None and since <= 0:
            news |= {"kinds": self.plan.kinds, "pieces": self.plan.pieces}
            news |= {"seconds": self.plan.seconds}
        news["rows"] = [
            {"key": key, **row.to_dict()}
            for key, row in list(self.rows.items())
            if self._numbers[key] > since or over
        ]
        if self.result is not None and (self._found_at > since or over):
            news |= _found(self.result, whole=over)
        return news

    def _keep_rows(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            key = row.configuration.key
            if self.rows.get(key) != row:
                self._numbers[key] = self.number
                self.rows[key] = row

    def _find(self, result: SweepResult) -> None:
        self.result = result
        self._found_at = self.number = self.number + 1
        self._keep_rows(result.rows)


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

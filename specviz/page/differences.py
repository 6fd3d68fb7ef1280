"""The check "A tie or a bug?": a job in the queue that scores the place of a difference again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from ..environment import on_zerogpu
from ..errors import SettingsError, SpecvizError, TraceError
from ..inspect.parting import Difference, Parting
from ..pairs.spec import MOST_NAME
from ..settings import RANGES
from ..worker.differences import DifferenceTask
from ..worker.failures import FAILED
from .controls import MAX_LENGTH, MOST_CHARACTERS
from .experiment import Polled
from .jobs import Run
from .queue import RunQueue

MOST_DRAFTED = int(RANGES["gamma"][1])
MOST_ID = 2**31 - 1
NOT_LENT = "this page is lent its GPU for races alone: run explain-difference on your own machine."
UNREADABLE = "this difference cannot be read: open the recording again."


class Check(Polled):
    """Scores the place where two lanes part."""

    def __init__(self, session: str, pair: str, parting: Parting) -> None:
        super().__init__(session, DifferenceTask(pair, parting))
        self._difference: Difference | None = None

    def add(self, item: Any) -> None:
        super().add(item)
        if isinstance(item, Difference):
            self._difference = item

    def progress(self, waiting: str) -> dict[str, Any]:
        return {"status": self.said or waiting}

    def found(self) -> dict[str, Any] | None:
        one = self._difference
        if one is None:
            return None
        scored = [row._asdict() for row in one.scored]
        return {**asdict(one), "scored": scored, "verdict": one.verdict, "summary": one.summary}


def difference_functions(runs: RunQueue, pair: str) -> list[Callable[[dict[str, Any]], Any]]:
    """The server function that begins a check; the experiment's ask for its state and end it.

    pair: the pair for visitors without a run.
    """

    def begin_difference(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if on_zerogpu():
                raise SettingsError(NOT_LENT)
            run = runs.job(str(asked.get("run")))
            if run is not None and not run.over:
                raise SettingsError("your run is still under way: wait for its end, or stop it.")
            known = isinstance(run, Run)
            check = Check(
                run.session if known else uuid4().hex,  # type: ignore[union-attr]
                run.task.pair if known else pair,  # type: ignore[union-attr]
                read_parting(asked.get("parting")),
            )
            runs.submit(check)
        except SpecvizError as error:
            return {"over": True, "error": str(error)}
        except (AttributeError, KeyError, TypeError, ValueError):
            return {"over": True, "error": FAILED}
        return check.state(runs.status_of(check))

    return [begin_difference]


def read_parting(value: Any) -> Parting:
    """The place of a difference as the browser tells it. Raises `TraceError`."""
    try:
        passes = tuple(
            (_ids(drafted, MOST_DRAFTED), _ids(emitted, MOST_DRAFTED + 1))
            for drafted, emitted in value["passes"]
        )
        parting = Parting(
            prompt=_ids(value["prompt"], MOST_CHARACTERS),
            passes=passes,
            theirs=_ids(value["theirs"], MAX_LENGTH),
            gamma=max(0, min(int(value["gamma"]), MOST_DRAFTED)),
            target=str(value["target"])[:MOST_NAME],
            dtype=str(value["dtype"])[:MOST_NAME],
        )
        before = sum(len(emitted) for _, emitted in passes[:-1])
        if not (before < len(parting.theirs) == len(parting.ours) and all(e for _, e in passes)):
            raise ValueError
        if parting.ours[:-1] != parting.theirs[:-1] or parting.ours[-1] == parting.theirs[-1]:
            raise ValueError
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise TraceError(UNREADABLE) from None
    return parting


def _ids(value: Any, most: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError
    if any(type(one) is not int or not 0 <= one <= MOST_ID for one in value):
        raise ValueError
    return tuple(value)

"""The sampling experiment on the page: a job in the queue whose progress the browser asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from ..errors import SettingsError, SpecvizError
from ..inspect.equivalence import Cell
from ..settings import RANGES, Settings
from ..worker.failures import FAILED
from ..worker.tasks import Compared, Drawn, Read, SampleTask, Task
from .controls import MOST_CHARACTERS, checked_settings
from .jobs import Job, Run
from .queue import RunQueue

MOST_DRAWS = 300  # in each lane
LENGTH = 2  # tokens: long enough for a draft, a correction and a bonus, short enough to repeat
LISTED = 8  # continuations that are shown
MOST_PROMPT = 64  # tokens: every draw reads the prompt anew
PATIENCE = 10.0  # seconds without a question after which the visitor has left


@dataclass(frozen=True, slots=True)
class Asked:
    """What the browser asks for. draws: continuations of the prompt in each lane. pair: the pair of
    the visitor's run."""

    session: str
    pair: str
    prompt: str
    settings: Settings
    draws: int


class Polled(Job):
    """A job whose state the browser asks for, again and again.

    asked_at: when it asked last, by the monotonic clock.
    """

    def __init__(self, session: str, task: Task) -> None:
        super().__init__(session, task)
        self.asked_at = time.monotonic()

    def abandoned(self) -> bool:
        return time.monotonic() - self.asked_at > PATIENCE

    def finish(self) -> None:
        if self.remark and self.found() is None and not self.error:
            self.error = self.remark

    def found(self) -> dict[str, Any] | None:
        """The result as the browser reads it, or None before there is one."""
        raise NotImplementedError

    def progress(self, waiting: str) -> dict[str, Any]:
        """How far it is. waiting: why it has not begun."""
        raise NotImplementedError

    def state(self, waiting: str) -> dict[str, Any]:
        """How far it is, and the result once it is over. waiting: why it has not begun."""
        self.asked_at = time.monotonic()
        over = self.over  # read first: if it is set, the result below is complete
        state = {"id": self.id, "over": over, **self.progress(waiting)}
        if self.error:
            return {**state, "error": self.error}
        found = self.found()
        return {**state, "result": found} if over and found else {**state, "stopped": over}


class Experiment(Polled):
    """Draws one continuation in each lane by turns, until both have enough.

    done: draws of each lane so far. read: what the draws read of the prompt. compared: the result.
    """

    def __init__(self, asked: Asked) -> None:
        task = SampleTask(
            asked.pair, asked.prompt, asked.settings, asked.draws, LENGTH, MOST_PROMPT
        )
        super().__init__(asked.session, task)
        self.draws = self.length = asked.draws
        self.done = 0
        self.read = Read(0, False)
        self.compared: Compared | None = None

    def add(self, item: Any) -> None:
        super().add(item)
        if isinstance(item, Read):
            self.read = item
        elif isinstance(item, Drawn):
            self.done = item.draws
        elif isinstance(item, Compared):
            self.compared = item

    def progress(self, waiting: str) -> dict[str, Any]:
        status = "" if self.done else waiting
        return {"done": self.done, "draws": self.draws, "status": status}

    def found(self) -> dict[str, Any] | None:
        return self._result(self.compared) if self.compared else None

    def _result(self, compared: Compared) -> dict[str, Any]:
        comparison = compared.comparison
        return {
            "length": comparison.length,
            "tokens": self.read.tokens,
            "shortened": self.read.shortened,
            "statistic": comparison.statistic,
            "degrees": comparison.degrees,
            "p_value": comparison.p_value,
            "cells": _shown(comparison.cells, compared.texts),
        }


def _shown(cells: Sequence[Cell], texts: dict[tuple[int, ...], str]) -> list[dict[str, Any]]:
    """The most frequent cells with their texts, and the sum of all others without a text."""
    named = [cell for cell in cells if cell.outcome][:LISTED]
    rest = [cell for cell in cells if cell not in named]
    shown: list[dict[str, Any]] = [
        {"text": _text_of(cell.outcome, texts), "ours": cell.ours, "theirs": cell.theirs}
        for cell in named
    ]
    if rest:
        ours, theirs = sum(cell.ours for cell in rest), sum(cell.theirs for cell in rest)
        shown.append({"text": None, "ours": ours, "theirs": theirs})
    return shown


def _text_of(outcome: tuple[int, ...], texts: dict[tuple[int, ...], str]) -> str:
    if outcome in texts:
        return texts[outcome]
    # Only leading tokens were compared: their text is what all continuations with them share.
    longer = [text for ids, text in texts.items() if ids[: len(outcome)] == outcome]
    first, last = min(longer), max(longer)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[:shared]


def sampling_functions(runs: RunQueue, pair: str) -> list[Callable[[dict[str, Any]], Any]]:
    """The server functions that begin an experiment, ask for its state, and end it.

    pair: the pair for visitors without a run.
    """

    def begin_sampling(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            experiment = Experiment(_asked(runs, pair, asked))
            runs.submit(experiment)
        except SpecvizError as error:
            return {"over": True, "error": str(error)}
        except (KeyError, TypeError, ValueError):
            return {"over": True, "error": FAILED}
        return experiment.state(runs.status_of(experiment))

    def ask_sampling(asked: dict[str, Any]) -> dict[str, Any]:
        experiment = runs.job(str(asked["id"]))
        if not isinstance(experiment, Polled):
            return {"over": True, "error": "This experiment is forgotten: begin it again."}
        return experiment.state(runs.status_of(experiment))

    def end_sampling(asked: dict[str, Any]) -> None:
        experiment = runs.job(str(asked["id"]))
        if isinstance(experiment, Polled):
            runs.cancel(experiment)

    return [begin_sampling, ask_sampling, end_sampling]


def _asked(runs: RunQueue, pair: str, asked: dict[str, Any]) -> Asked:
    """Prompt, settings and pair of the run that the browser shows.

    Each repetition has a seed of its own, because the same seed would draw the same again.
    """
    run = runs.job(str(asked.get("run")))
    if run is not None and not run.over:
        raise SettingsError("your run is still under way: wait for its end, or stop it.")
    if isinstance(run, Run):
        session, pair, prompt = run.session, run.task.pair, run.prompt
        settings = (run.lanes or {}).get(str(asked.get("lane")), run.settings)
    else:
        # A visitor without a run has no session yet.
        session, prompt = uuid4().hex, str(asked["prompt"])[-MOST_CHARACTERS:]
        settings = checked_settings({**asked["settings"], "stop": (), "max_new_tokens": LENGTH})
    seed = (settings.seed + int(asked.get("again", 0))) % int(RANGES["seed"][1])
    draws = max(1, min(int(asked.get("draws", MOST_DRAWS)), MOST_DRAWS))
    return Asked(session, pair, prompt, replace(settings, seed=seed), draws)

"""The sampling experiment on the page: a job of the engine thread that the browser asks after."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from ..errors import SettingsError, SpecvizError
from ..report.equivalence import Cell
from ..settings import RANGES, Settings
from ..worker.client import FAILED
from ..worker.tasks import Compared, Drawn, Read, SampleTask
from .jobs import Job, Run
from .queue import Engine

MOST_DRAWS = 300  # in each lane
LENGTH = 2  # tokens: long enough for a draft, a correction and a bonus, short enough to repeat
LISTED = 8  # continuations that are shown
MOST_PROMPT = 64  # tokens: every draw reads the prompt anew
MOST_CHARACTERS = 8000  # of a prompt, as many as the page lets anyone write
PATIENCE = 10.0  # seconds without a question before the visitor is taken to have left


@dataclass(frozen=True, slots=True)
class Asked:
    """What the browser wants drawn: so many continuations of a prompt in each lane.

    pair: the one that the visitor's run was made with.
    """

    session: str
    pair: str
    prompt: str
    settings: Settings
    draws: int


class Experiment(Job):
    """Draws in turn, one continuation for each lane, until both have enough."""

    def __init__(self, asked: Asked) -> None:
        task = SampleTask(
            asked.pair, asked.prompt, asked.settings, asked.draws, LENGTH, MOST_PROMPT
        )
        super().__init__(asked.session, task)
        self.draws = asked.draws
        self.done = 0
        self.read = Read(0, False)
        self.compared: Compared | None = None
        self.heard = time.monotonic()

    def take(self, item: Any) -> bool:
        if isinstance(item, Read):
            self.read = item
        elif isinstance(item, Drawn):
            self.done = item.draws
        elif isinstance(item, Compared):
            self.compared = item
        return super().take(item)

    def abandoned(self) -> bool:
        return time.monotonic() - self.heard > PATIENCE

    def finish(self) -> None:
        if self.remark and self.compared is None and not self.error:
            self.error = self.remark

    def state(self, waiting: str) -> dict[str, Any]:
        """How far it is, and the verdict once it is over."""
        self.heard = time.monotonic()
        over = self.over  # before the rest: what was found until it was set is then complete
        state: dict[str, Any] = {
            "id": self.id,
            "over": over,
            "done": self.done,
            "draws": self.draws,
        }
        if self.error:
            return {**state, "error": self.error}
        if over and self.compared:
            return {**state, "result": self._result(self.compared)}
        return {**state, "stopped": over, "status": "" if self.done else waiting}

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
    """The commonest cells by name; all others added up in one without a text."""
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
    # Where only the leading token was compared, it is what continuations with it share.
    longer = [text for ids, text in texts.items() if ids[: len(outcome)] == outcome]
    first, last = min(longer), max(longer)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[:shared]


def sampling_functions(
    engine: Engine, pair: str, checked: Callable[[dict[str, Any]], Settings]
) -> list[Callable[[dict[str, Any]], Any]]:
    """What the browser may call: begin an experiment, ask after it, end it."""

    def begin_sampling(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            experiment = Experiment(_asked(engine, pair, checked, asked))
            engine.submit(experiment)
        except SpecvizError as error:
            return {"over": True, "error": str(error)}
        except (KeyError, TypeError, ValueError):
            return {"over": True, "error": FAILED}
        return experiment.state(engine.waiting(experiment))

    def ask_sampling(asked: dict[str, Any]) -> dict[str, Any]:
        experiment = engine.job(str(asked["id"]))
        if not isinstance(experiment, Experiment):
            return {"over": True, "error": "This experiment is forgotten: begin it again."}
        return experiment.state(engine.waiting(experiment))

    def end_sampling(asked: dict[str, Any]) -> None:
        experiment = engine.job(str(asked["id"]))
        if isinstance(experiment, Experiment):
            engine.leave(experiment)

    return [begin_sampling, ask_sampling, end_sampling]


def _asked(
    engine: Engine,
    pair: str,
    checked: Callable[[dict[str, Any]], Settings],
    asked: dict[str, Any],
) -> Asked:
    """Prompt and settings of the run that the browser shows, on the pair that made it.

    Each repetition has a seed of its own: with the same one it would draw the same again.
    """
    run = engine.job(str(asked.get("run")))
    if run is not None and not run.over:
        raise SettingsError("your run is still under way: wait for its end, or stop it.")
    if isinstance(run, Run):
        session, pair, prompt, settings = run.session, run.task.pair, run.prompt, run.settings
    else:
        # Without a run of their own a visitor has no name yet.
        session, prompt = uuid4().hex, str(asked["prompt"])[-MOST_CHARACTERS:]
        settings = checked({**asked["settings"], "stop": (), "max_new_tokens": LENGTH})
    seed = (settings.seed + int(asked.get("again", 0))) % int(RANGES["seed"][1])
    draws = max(1, min(int(asked.get("draws", MOST_DRAWS)), MOST_DRAWS))
    return Asked(session, pair, prompt, replace(settings, seed=seed), draws)

"""What a visitor asks about a run, as jobs in the queue: the sampling experiment, and the check "A
tie or a bug?", which scores the place of a difference again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

from ..environment import on_zerogpu
from ..errors import SettingsError, TraceError
from ..inspect.equivalence import Cell
from ..inspect.parting import Difference, Parting
from ..pairs.spec import MOST_NAME
from ..settings import RANGES, Settings
from ..worker.tasks import Compared, DifferenceTask, Drawn, Read, SampleTask
from .controls import MAX_LENGTH, MOST_CHARACTERS, checked_settings
from .delivery import finished_run
from .jobs import Polled
from .queue import RunQueue

MOST_DRAWS = 300  # in each lane
LENGTH = 2  # tokens: long enough for a draft, a correction and a bonus, short enough to repeat
LISTED = 8  # continuations that are shown
MOST_PROMPT = 64  # tokens: every draw reads the prompt anew

MOST_DRAFTED = int(RANGES["gamma"][1])
MOST_ID = 2**31 - 1
NOT_LENT = "this page is lent its GPU for races alone: run explain-difference on your own machine."
UNREADABLE = "this difference cannot be read: open the recording again."


@dataclass(frozen=True, slots=True)
class Asked:
    """What the browser asks for. draws: continuations of the prompt in each lane. pair: the pair of
    the visitor's run."""

    session: str
    pair: str
    prompt: str
    settings: Settings
    draws: int


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

    def has_result(self) -> bool:
        return self.compared is not None

    def news(self, since: int, *, over: bool) -> dict[str, Any]:
        news: dict[str, Any] = {"done": self.done, "draws": self.draws}
        news |= {"status": ""} if self.done else {}
        if over and self.compared is not None:
            return {**news, "result": self._result(self.compared)}
        return {**news, "stopped": over}

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
    """The server function that begins an experiment. pair: the pair for visitors without a run."""

    def begin_sampling(asked: dict[str, Any]) -> dict[str, Any]:
        experiment = Experiment(_asked(runs, pair, asked))
        runs.submit(experiment)
        return experiment.state(runs.status_of(experiment))

    return [begin_sampling]


def _asked(runs: RunQueue, pair: str, asked: dict[str, Any]) -> Asked:
    """Prompt, settings and pair of the run that the browser shows.

    Each repetition has a seed of its own, because the same seed would draw the same again.
    """
    run = finished_run(runs, asked)
    if run is not None:
        session, pair, prompt = run.session, run.task.pair, run.prompt
        settings = (run.lanes or {}).get(str(asked.get("lane")), run.settings)
    else:
        # A visitor without a run has no session yet.
        session, prompt = uuid4().hex, str(asked["prompt"])[-MOST_CHARACTERS:]
        settings = checked_settings({**asked["settings"], "stop": (), "max_new_tokens": LENGTH})
    seed = (settings.seed + int(asked.get("again", 0))) % int(RANGES["seed"][1])
    draws = max(1, min(int(asked.get("draws", MOST_DRAWS)), MOST_DRAWS))
    return Asked(session, pair, prompt, replace(settings, seed=seed), draws)


class Check(Polled):
    """Scores the place where two lanes part."""

    def __init__(self, session: str, pair: str, parting: Parting) -> None:
        super().__init__(session, DifferenceTask(pair, parting))
        self._difference: Difference | None = None

    def add(self, item: Any) -> None:
        super().add(item)
        if isinstance(item, Difference):
            self._difference = item

    def has_result(self) -> bool:
        return self._difference is not None

    def news(self, since: int, *, over: bool) -> dict[str, Any]:
        news = {"status": self.said} if self.said else {}
        one = self._difference
        if not over or one is None:
            return {**news, "stopped": over}
        scored = [row._asdict() for row in one.scored]
        told = {"scored": scored, "verdict": one.verdict, "summary": one.summary}
        return {**news, "result": {**asdict(one), **told}}


def difference_functions(runs: RunQueue, pair: str) -> list[Callable[[dict[str, Any]], Any]]:
    """The server function that begins a check. pair: the pair for visitors without a run."""

    def begin_difference(asked: dict[str, Any]) -> dict[str, Any]:
        if on_zerogpu():
            raise SettingsError(NOT_LENT)
        run = finished_run(runs, asked)
        session, name = (uuid4().hex, pair) if run is None else (run.session, run.task.pair)
        check = Check(session, name, read_parting(asked.get("parting")))
        runs.submit(check)
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

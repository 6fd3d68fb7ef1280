"""Visitors' questions about a run, as jobs in the queue: the sampling experiment; "A tie or a
bug?", which scores the position of a difference again; and "Run it again"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from ..base.environment import on_zerogpu
from ..base.errors import SettingsError, TraceError
from ..core.settings import RANGES
from ..inspect.equivalence import Cell
from ..inspect.parting import Difference, parting_of
from ..pairs.spec import MAX_NAME
from ..runs.identities import check_trace
from ..runs.trace import Trace
from ..worker.tasks import Compared, DifferenceTask, RerunTask, SampleTask
from .controls import MAX_CHARACTERS, MAX_LENGTH, MAX_OTHERS, checked_settings
from .delivery import begun, finished_run
from .failures import PageQuestion
from .jobs import RunQuestion
from .queue import RunQueue

MAX_DRAWS = 300  # in each lane
LENGTH = 2  # tokens: long enough for a draft, a correction and a bonus, short enough to repeat
LISTED = 8  # continuations that are shown
MAX_PROMPT = 64  # tokens: every draw reads the prompt anew

NOT_LENT = "this page is lent its GPU for races alone: run {} on your own machine."
TOO_LONG = "this run is longer than this page allows: use {} on your own machine."
NOT_PARTED = "both lanes wrote the same text: there is no difference to explain."


def question_functions(runs: RunQueue, pair: str) -> list[PageQuestion]:
    """The questions that begin a job about a run. pair: the pair for visitors without a
    run, who have no session yet."""

    def begin_sampling(request: dict[str, Any]) -> dict[str, Any]:
        return begun(runs, sampling(runs, pair, request))

    def begin_difference(request: dict[str, Any]) -> dict[str, Any]:
        session, name = _visitor(runs, pair, request, "explain-difference")
        trace = read_run(request.get("trace"), "explain-difference")
        lane = request.get("lane")
        parting = parting_of(trace, None if lane is None else str(lane)[:MAX_NAME])
        if parting is None:
            raise TraceError(NOT_PARTED)
        task = DifferenceTask(name, parting)
        return begun(runs, RunQuestion(session, task, _shown_difference))

    def begin_rerun(request: dict[str, Any]) -> dict[str, Any]:
        session, name = _visitor(runs, pair, request, "check --rerun")
        task = RerunTask(name, read_run(request.get("trace"), "check --rerun"))
        return begun(runs, RunQuestion(session, task, lambda again: {"result": again._asdict()}))

    return [begin_sampling, begin_difference, begin_rerun]


def _visitor(runs: RunQueue, pair: str, request: dict[str, Any], instead: str) -> tuple[str, str]:
    """Session and pair of the visitor who asks. Raises `SettingsError` where only races may run.
    instead: the command line that answers the question elsewhere."""
    if on_zerogpu():
        raise SettingsError(NOT_LENT.format(instead))
    run = finished_run(runs, request)
    return (uuid4().hex, pair) if run is None else (run.visitor.session, run.task.pair)


def _shown_difference(difference: Difference) -> dict[str, Any]:
    sentences = {"verdict": difference.verdict, "summary": difference.summary}
    return {
        "result": {
            **asdict(difference),
            **sentences,
            "scored": [score._asdict() for score in difference.scored],
        }
    }


def sampling(runs: RunQueue, pair: str, request: dict[str, Any]) -> RunQuestion:
    """The experiment with prompt, settings and pair of the run that the browser shows. Each
    repetition has its own seed: the same seed would draw the same text.
    """
    run = finished_run(runs, request)
    if run is not None:
        session = run.visitor.session
        pair = run.task.pair
        prompt = run.prompt
        settings = (run.lanes or {}).get(str(request.get("lane")), run.settings)
    else:
        session = uuid4().hex
        prompt = str(request["prompt"])[-MAX_CHARACTERS:]
        settings = checked_settings({**request["settings"], "stop": (), "max_new_tokens": LENGTH})
    seed = (settings.seed + int(request.get("again", 0))) % int(RANGES["seed"][1])
    draws = max(1, min(int(request.get("draws", MAX_DRAWS)), MAX_DRAWS))
    task = SampleTask(pair, prompt, replace(settings, seed=seed), draws, LENGTH, MAX_PROMPT)
    experiment = RunQuestion(session, task, _shown_draws, done=0, draws=draws)
    experiment.length = draws
    return experiment


def _shown_draws(news: int | Compared) -> dict[str, Any]:
    if isinstance(news, int):
        return {"done": news}
    comparison = news.comparison
    names = ("length", "statistic", "degrees", "p_value")
    result = {name: getattr(comparison, name) for name in names}
    result |= {"tokens": news.tokens, "shortened": news.shortened}
    return {"result": {**result, "cells": _shown(comparison.cells, news.texts)}}


def _shown(cells: Sequence[Cell], texts: dict[tuple[int, ...], str]) -> list[dict[str, Any]]:
    """The most frequent cells with their texts, and the sum of all others without a text."""
    named = [cell for cell in cells if cell.outcome][:LISTED]
    rare_cells = [cell for cell in cells if cell not in named]
    shown: list[dict[str, Any]] = [
        {"text": _text_of(cell.outcome, texts), "ours": cell.ours, "theirs": cell.theirs}
        for cell in named
    ]
    if rare_cells:
        ours = sum(cell.ours for cell in rare_cells)
        theirs = sum(cell.theirs for cell in rare_cells)
        shown.append({"text": None, "ours": ours, "theirs": theirs})
    return shown


def _text_of(outcome: tuple[int, ...], texts: dict[tuple[int, ...], str]) -> str:
    if outcome in texts:
        return texts[outcome]
    # Only leading tokens were compared: show the text that their continuations share.
    longer = [text for ids, text in texts.items() if ids[: len(outcome)] == outcome]
    first = min(longer)
    last = max(longer)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[:shared]


def read_run(value: Any, instead: str) -> Trace:
    """Read the run that a browser shows. Raises `TraceError`, also if it is longer than the page
    allows. instead: the command line for longer runs."""
    trace = Trace.from_dict(value)
    check_trace(trace)
    header = trace.header
    is_long = header.settings.max_new_tokens > MAX_LENGTH
    too_many = len(header.speculative) > 1 + MAX_OTHERS
    if is_long or too_many or len(header.prompt_ids) > MAX_CHARACTERS:
        raise TraceError(TOO_LONG.format(instead))
    return trace

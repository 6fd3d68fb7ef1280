"""Follow-ups of a run, as jobs in the queue: the sampling experiment; "A tie or a
bug?", which scores the position of a difference again; and "Run it again"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from ..worker.tasks import Compared, DifferenceTask, RerunReport, RerunTask, SampleTask
from .controls import MAX_CHARACTERS, MAX_LENGTH, MAX_OTHERS, checked_settings
from .delivery import submit_polled
from .failures import PageQuestion
from .jobs import FollowUp, Run
from .queue import RunQueue

MAX_DRAWS = 300  # in each lane
LENGTH = 2  # tokens: long enough for a draft, a correction and a bonus, short enough to repeat
LISTED = 8  # continuations that are shown
MAX_PROMPT = 64  # tokens: every draw reads the prompt again

NOT_LENT = "this page gets its GPU only for races: run {} on your own machine."
TOO_LONG = "this run is longer than this page allows: use {} on your own machine."
NOT_PARTED = "both lanes wrote the same text: there is no difference to explain."


def follow_up_questions(queue: RunQueue, pair: str) -> list[PageQuestion]:
    """The questions that begin a follow-up of a run. pair: the pair for visitors without a
    run, who have no session yet."""

    def begin_sampling(request: dict[str, Any]) -> dict[str, Any]:
        return submit_polled(queue, sampling(queue, pair, request))

    def begin_difference(request: dict[str, Any]) -> dict[str, Any]:
        session, name = _visitor(queue, pair, request, "explain-difference")
        trace = read_run(request.get("trace"), "explain-difference")
        lane = request.get("lane")
        if lane is not None:
            lane = str(lane)[:MAX_NAME]
        parting = parting_of(trace, lane)
        if parting is None:
            raise TraceError(NOT_PARTED)
        task = DifferenceTask(name, parting)
        return submit_polled(queue, FollowUp(session, task, _shown_difference))

    def begin_rerun(request: dict[str, Any]) -> dict[str, Any]:
        session, name = _visitor(queue, pair, request, "check --rerun")
        trace = read_run(request.get("trace"), "check --rerun")
        task = RerunTask(name, trace)
        return submit_polled(queue, FollowUp(session, task, _shown_rerun))

    return [begin_sampling, begin_difference, begin_rerun]


def _visitor(queue: RunQueue, pair: str, request: dict[str, Any], instead: str) -> tuple[str, str]:
    """Session and pair of the visitor who asks. Raises `SettingsError` where only races may run.
    instead: the command line that answers the question elsewhere."""
    if on_zerogpu():
        raise SettingsError(NOT_LENT.format(instead))
    run = _finished_run(queue, request)
    if run is None:
        return uuid4().hex, pair
    return run.visitor.session, run.task.pair


def _finished_run(queue: RunQueue, request: dict[str, Any]) -> Run | None:
    """The run that a request is about, if the server still has it. Raises `SettingsError` if it
    has not ended."""
    run = queue.job(str(request.get("run")))
    if run is not None and not run.over:
        raise SettingsError("your run is still under way: wait until it ends, or stop it.")
    if not isinstance(run, Run):
        return None
    return run


def _shown_difference(difference: Difference) -> dict[str, Any]:
    scored = []
    for score in difference.scored:
        row = {
            "name": score.name,
            "p_ours": score.p_speculative,
            "p_theirs": score.p_baseline,
            "apart": score.apart,
        }
        scored.append(row)
    result = {
        "index": difference.index,
        "ours": difference.speculative,
        "theirs": difference.baseline,
        "scored": scored,
        "rounding": difference.rounding,
        "behind": difference.behind,
        "held": difference.held,
        "judged": difference.judged,
        "reasons": difference.reasons,
        "verdict": difference.verdict,
        "summary": difference.summary,
    }
    return {"result": result}


def _shown_rerun(report: RerunReport) -> dict[str, Any]:
    return {"result": report._asdict()}


def sampling(queue: RunQueue, pair: str, request: dict[str, Any]) -> FollowUp:
    """The experiment with prompt, settings and pair of the run that the browser shows. Each
    repetition has its own seed: the same seed would draw the same text.
    """
    run = _finished_run(queue, request)
    if run is not None:
        session = run.visitor.session
        pair = run.task.pair
        prompt = run.prompt
        settings = run.settings
        lane = str(request.get("lane"))
        if run.lanes and lane in run.lanes:
            settings = run.lanes[lane]
    else:
        session = uuid4().hex
        prompt = str(request["prompt"])[-MAX_CHARACTERS:]
        fields = {**request["settings"], "stop": (), "max_new_tokens": LENGTH}
        settings = checked_settings(fields)
    repetition = int(request.get("again", 0))
    seeds = int(RANGES["seed"][1])
    seed = (settings.seed + repetition) % seeds
    asked_draws = int(request.get("draws", MAX_DRAWS))
    draws = max(1, min(asked_draws, MAX_DRAWS))
    task = SampleTask(
        pair=pair,
        prompt=prompt,
        settings=replace(settings, seed=seed),
        draws=draws,
        length=LENGTH,
        reach=MAX_PROMPT,
    )
    experiment = FollowUp(session, task, _shown_draws, done=0, draws=draws)
    experiment.length = draws
    return experiment


def _shown_draws(result: int | Compared) -> dict[str, Any]:
    if isinstance(result, int):
        return {"done": result}
    comparison = result.comparison
    shown = {
        "length": comparison.length,
        "statistic": comparison.statistic,
        "degrees": comparison.degrees,
        "p_value": comparison.p_value,
        "tokens": result.tokens,
        "shortened": result.shortened,
        "cells": _shown_cells(comparison.cells, result.texts),
    }
    return {"result": shown}


def _shown_cells(cells: Sequence[Cell], texts: dict[tuple[int, ...], str]) -> list[dict[str, Any]]:
    """The most frequent cells with their texts, and the sum of all others without a text."""
    named = [cell for cell in cells if cell.outcome][:LISTED]
    rare_cells = [cell for cell in cells if cell not in named]
    shown = []
    for cell in named:
        text = _text_of(cell.outcome, texts)
        shown.append({"text": text, "ours": cell.speculative, "theirs": cell.baseline})
    if rare_cells:
        speculative = sum(cell.speculative for cell in rare_cells)
        baseline = sum(cell.baseline for cell in rare_cells)
        shown.append({"text": None, "ours": speculative, "theirs": baseline})
    return shown


def _text_of(outcome: tuple[int, ...], texts: dict[tuple[int, ...], str]) -> str:
    if outcome in texts:
        return texts[outcome]
    # Only leading tokens were compared: show the text that their continuations share.
    continuations = []
    for ids, text in texts.items():
        if ids[: len(outcome)] == outcome:
            continuations.append(text)
    return _common_start(min(continuations), max(continuations))


def _common_start(first: str, last: str) -> str:
    for position, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:position]
    return first


def read_run(value: Any, instead: str) -> Trace:
    """Read the run that a browser shows. Raises `TraceError`, also if it is longer than the page
    allows. instead: the command line for longer runs."""
    trace = Trace.from_dict(value)
    check_trace(trace)
    header = trace.header
    has_long_text = header.settings.max_new_tokens > MAX_LENGTH
    has_many_lanes = len(header.speculative) > 1 + MAX_OTHERS
    has_long_prompt = len(header.prompt_ids) > MAX_CHARACTERS
    if has_long_text or has_many_lanes or has_long_prompt:
        raise TraceError(TOO_LONG.format(instead))
    return trace

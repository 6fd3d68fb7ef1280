"""What a sweep tries, and the order of its pieces, planned as it goes.

Pieces come in three stages. "scout": on a few prompts, each drafter at its largest gamma; from then
on every row has a prediction. After each of these prompts the row that promises more than all
measured ones, or else the best of them, runs on it too, so that no answer contradicts a promise.
"confirm": prompt by prompt, all rows that are still in the race by turns, each time beginning with
another one; a row that is slower than the best beyond noise is measured no more, so that the time
goes where rows are close. "done": the budget is spent, or nothing is left to tell apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.race import race
from ...errors import PairError, PromptError, SettingsError
from ...kinds import swept_drafters
from ...pairs.pair import Pair
from ...prompts import Question
from ...settings import GAMMA_POLICIES, RANGES, Settings
from .observed import Run
from .table import ENOUGH, slower, values_by_row
from .types import Configuration, Row, SweepRequest

MOST_ROWS = 200
SWEPT = ("drafters", "gammas", "policies", "temperatures")
SCOUTED = 6  # prompts that are run at the largest gamma before anything is decided
KEEP = 0.8  # of the best predicted speed-up: a row predicted to be below it is not measured


@dataclass(frozen=True, slots=True)
class Piece:
    """One race. key: of the configuration. question: the index of the prompt. timing: whether it
    only measures what rounds of this gamma cost, with a few of them. repeat: from 0."""

    key: str
    question: int
    repeat: int = 0
    timing: bool = False


def checked(request: SweepRequest) -> SweepRequest:
    """The request, without repetitions. Raises `SettingsError` for what cannot be swept."""
    if not request.prompts:
        raise SettingsError("there are no prompts to sweep: give at least one.")
    for name, allowed in (("drafters", swept_drafters()), ("policies", GAMMA_POLICIES)):
        given, words = getattr(request, name), f"use some of {', '.join(allowed)}."
        if not given:
            raise SettingsError(f"{name} is empty: {words}")
        for one in given:
            if one not in allowed:
                raise SettingsError(f"{name} has {str(one)[:40]!r}: {words}")
    if not request.gammas:
        raise SettingsError("gammas is empty: use whole numbers from 1 on.")
    most = int(RANGES["gamma"][1])
    for gamma in request.gammas:
        if type(gamma) is not int or not 1 <= gamma <= most:
            raise SettingsError(f"gammas has {str(gamma)[:40]}: use whole numbers, 1 to {most}.")
    if not request.temperatures:
        raise SettingsError("there is no temperature to sweep: give at least one, such as 0.")
    if not 1.0 <= request.seconds <= 86_400.0:
        raise SettingsError(f"seconds is {request.seconds:g}: use 1 to 86400.")
    for temperature in request.temperatures:
        replace(request.base, temperature=temperature)  # raises for what no run allows
    if request.base.max_new_tokens < 2:
        raise SettingsError("max_new_tokens is below 2: a sweep needs texts to compare.")
    request = replace(request, temperatures=tuple(map(float, request.temperatures)))
    once: dict[str, Any] = {name: tuple(dict.fromkeys(getattr(request, name))) for name in SWEPT}
    request = replace(request, **once)
    if (count := len(request.configurations())) > MOST_ROWS:
        raise SettingsError(f"these are {count} rows: sweep {MOST_ROWS} or fewer at once.")
    return request


def impossible_drafters(
    pair: Pair, prompt: str, settings: Settings, drafters: Sequence[str]
) -> dict[str, str]:
    """Why this pair cannot use some drafters, as sentences by drafter."""
    found = {}
    for drafter in drafters:
        few = replace(settings, drafter=drafter, gamma=max(1, settings.gamma), max_new_tokens=2)
        try:
            next(race(pair, prompt, few))
        except PairError as error:
            found[drafter] = str(error)
    return found


def readable(
    pair: Pair, questions: Sequence[Question], chat: str
) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    """The prompts that the target can read, and a sentence for each of the others. Raises
    `PromptError` if there is none."""
    kept, notes = [], []
    for question in questions:
        try:
            pair.encode(question.text, chat=chat)
        except PromptError as error:
            notes.append(f"A prompt of {question.kind} was left out: {error}")
            last = error
        else:
            kept.append(question)
    if not kept:
        raise last
    return tuple(kept), tuple(notes)


def scouts(rows: Sequence[Configuration], question: int) -> list[Piece]:
    """The first pieces on a prompt: each drafter at its largest gamma, at every temperature; after
    the first prompt, the costs of the other gammas, with the first drafter, which always drafts if
    it is a model: the pass that judges does not know who drafted."""
    groups: dict[tuple[str, float], list[Configuration]] = defaultdict(list)
    for row in rows:
        groups[row.drafter, row.temperature].append(row)
    largest = [
        max(own, key=lambda row: (row.policy == "fixed", row.gamma)) for own in groups.values()
    ]
    pieces = [Piece(key, question) for key in rotated([row.key for row in largest], question)]
    fixed = [[row for row in own if row.policy == "fixed"] for own in groups.values()]
    first = next((own for own in fixed if own), [])
    return pieces if question else pieces + [Piece(row.key, 0, timing=True) for row in first[:-1]]


def promising(
    rows: Sequence[Configuration], predicted: Mapping[str, float | None]
) -> dict[float, list[str]]:
    """The rows worth measuring, by temperature: those predicted to be near the best one, the best
    of each drafter, and those of which nothing is predicted."""
    chosen: dict[float, list[str]] = {}
    for temperature in dict.fromkeys(row.temperature for row in rows):
        group = [row for row in rows if row.temperature == temperature]
        speeds = {row.key: predicted.get(row.key) for row in group}
        bar = KEEP * max((speed for speed in speeds.values() if speed is not None), default=0.0)
        leaders: dict[str, str] = {}
        for row in sorted(group, key=lambda row: speeds[row.key] or 0.0, reverse=True):
            leaders.setdefault(row.drafter, row.key)
        chosen[temperature] = [
            key
            for key, speed in speeds.items()
            if speed is None or speed >= bar or key in leaders.values()
        ]
    return chosen


def rotated(keys: Sequence[str], by: int) -> list[str]:
    """The keys in order, beginning with another one each time, so that none is always first."""
    begin = by % len(keys) if keys else 0
    return [*keys[begin:], *keys[:begin]]


MOST_REPEATS = 12
SETTLED_REPEATS = 2  # repeats after which a temperature with one row left is done
SCOUT_SHARE = 0.5  # of the time: after it no further prompt is run at the largest gamma first


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a sweep is. table: its rows as they are known now. runs: those so far. spent: of its
    seconds. done: pieces."""

    table: Sequence[Row]
    runs: Sequence[Run]
    spent: float
    done: int


class Agenda:
    """The pieces of a sweep: those that are due, in `queue`, and what follows. Plain data.

    rows: those that this pair can run. questions: the number of prompts. seconds: the budget.
    """

    def __init__(self, rows: Sequence[Configuration], questions: int, seconds: float) -> None:
        self.stage = "scout" if rows else "done"
        self.queue = scouts(rows, 0) if rows else []
        self.eliminated: set[str] = set()
        self._rows, self._questions, self._seconds = tuple(rows), questions, seconds
        self._temperatures = tuple(dict.fromkeys(row.temperature for row in rows))
        self._alive: dict[float, list[str]] = {}  # rows that may be the best, by temperature
        self._scouted = 1  # prompts whose scouts were planned
        self._turn = 0  # prompts confirmed so far, counted over repeats

    def refill(self, now: Standing) -> None:
        """Plan the next pieces if none is left, or end; first come those that no answer can do
        without, as soon as the time is only enough for them."""
        if now.done and now.spent >= self._seconds:
            self.stage = "done"
        while not self.queue and self.stage != "done":
            if self.stage == "scout":
                self._scout_on(now)
            else:
                self._confirm_on(now)
        left = (self._seconds - now.spent) * now.done / max(now.spent, 1e-9)
        if now.done and left <= ENOUGH * len(self._temperatures) + 1:
            owed = self._owed(now)
            if left <= len(owed) + 1:
                self.queue = owed + [piece for piece in self.queue if piece not in owed]

    def eliminate(self, runs: Sequence[Run]) -> None:
        """Find the rows that are slower beyond noise. One may come back when more is known."""
        if self.stage != "confirm":
            return
        values = values_by_row(runs)
        self.eliminated = set()
        for temperature in self._temperatures:
            group = [row.key for row in self._rows if row.temperature == temperature]
            self.eliminated |= slower({key: values[key] for key in group if key in values})
        self.queue = [piece for piece in self.queue if piece.key not in self.eliminated]

    def pieces_left(self, now: Standing) -> int:
        """About how many pieces are left: as many as are due, or as the time is enough for."""
        if self.stage == "done":
            return 0
        alive = sum(map(len, self._alive.values())) or len(self._rows) // 2
        prompts = SETTLED_REPEATS * self._questions - self._turn
        due = len(self.queue) + alive * max(0, prompts)
        if not now.done:
            return due
        enough = (self._seconds - now.spent) * now.done / now.spent
        return max(1, min(due, round(enough)))

    def _scout_on(self, now: Standing) -> None:
        """Plan the leading row on the prompt that was scouted, or the next scouts."""
        last = self._scouted - 1
        ran = {(run.key, run.question) for run in now.runs}
        leaders = _leaders(now.table).values()
        self.queue = [Piece(key, last) for key in leaders if (key, last) not in ran]
        if self.queue:
            return
        short = now.spent > SCOUT_SHARE * self._seconds
        if short or self._scouted >= min(SCOUTED, self._questions):
            self.stage = "confirm"
            return
        self.queue = scouts(self._rows, self._scouted)
        self._scouted += 1

    def _confirm_on(self, now: Standing) -> None:
        self.eliminate(now.runs)
        self._choose(now)
        repeat, question = divmod(self._turn, self._questions)
        settled = all(len(keys) <= 1 for keys in self._alive.values())
        if repeat >= MOST_REPEATS or (repeat >= SETTLED_REPEATS and settled):
            self.stage = "done"
            return
        keys = [key for some in self._alive.values() for key in some]
        seen = {(run.key, run.question) for run in now.runs} if repeat == 0 else set()
        self.queue = [
            Piece(key, question, repeat)
            for key in rotated(keys, self._turn)
            if (key, question) not in seen
        ]
        self._turn += 1

    def _choose(self, now: Standing) -> None:
        """Find the rows to go on with: those that promise much, by what is known of costs now, and
        those that were measured and are not slower beyond noise."""
        speeds = {row.configuration.key: _speed(row) for row in now.table}
        also = {run.key for run in now.runs}
        also |= {row.configuration.key for row in now.table if row.mark == "open"}
        self._alive = {
            temperature: [
                row.key
                for row in self._rows
                if row.temperature == temperature
                and (row.key in keys or row.key in also)
                and row.key not in self.eliminated
            ]
            for temperature, keys in promising(self._rows, speeds).items()
        }

    def _owed(self, now: Standing) -> list[Piece]:
        """The pieces without which there is no answer: of the leading rows, until they ran on
        `ENOUGH` prompts, on those of the other measured rows first."""
        ran: dict[str, set[int]] = defaultdict(set)
        for run in now.runs:
            ran[run.key].add(run.question)
        order = dict.fromkeys([*(run.question for run in now.runs), *range(self._questions)])
        pieces = []
        for key in _leaders(now.table).values():
            new = [question for question in order if question not in ran[key]]
            pieces += [Piece(key, question) for question in new[: max(0, ENOUGH - len(ran[key]))]]
        return pieces


def _leaders(table: Sequence[Row]) -> dict[float, str]:
    """By temperature, the row that promises most of those that promise more than the best measured
    one and ran on too few prompts to tell; without one, the best row itself."""
    found: dict[float, str] = {}
    known = [row for row in table if row.mark in ("best", "open")]
    for row in sorted(known, key=lambda row: (row.mark == "open", _speed(row) or 0.0)):
        found[row.configuration.temperature] = row.configuration.key
    return found


def _speed(row: Row) -> float | None:
    return row.predicted.speedup if row.predicted else None

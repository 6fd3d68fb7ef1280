"""The order of a sweep's pieces, planned as it goes.

Pieces come in three stages. "scout": on a few prompts, each drafter at its largest gamma; from then
on every row has a prediction. After each of these prompts the row that promises more than all
measured ones, or else the best of them, runs on it too, so that no answer contradicts a promise.
"confirm": prompt by prompt, all rows that are still in the race by turns, each time beginning with
another one; a row that is slower than the best beyond noise is measured no more, so that the time
goes where rows are close. "done": the budget is spent, or nothing is left to tell apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .observed import Run
from .plan import SCOUTED, Piece, promising, rotated, scouts
from .table import ENOUGH, slower, values_by_row
from .types import Configuration, Row

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

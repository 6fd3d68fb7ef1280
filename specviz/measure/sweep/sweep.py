"""A sweep: one run at the largest gamma predicts all others, and the promising ones are measured.

Pieces come in three stages. "scout": on a few prompts, each drafter at its largest gamma; from then
on every row has a prediction. After each of these prompts the row that promises more than all
measured ones, or else the best of them, runs on it too, so that no answer contradicts a promise.
"confirm": prompt by prompt, all rows that are still in the race by turns, each time beginning with
another one; a row that is slower than the best beyond noise is measured no more, so that the time
goes where rows are close. "done": the budget is spent, or nothing is left to tell apart.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import SpecvizError
from ...pairs.pair import Pair
from ...prompts import in_turn, kinds_of
from ...runs.trace import Trace
from ...settings import Settings
from .acceptance import Along, acceptance_along, is_predictable
from .compare import ENOUGH, slower, values_by_row
from .costs import Costs
from .measure import Run, known_text, machine_of, raced, run_of, seeded, weight_bytes
from .plan import (
    SCOUT_SHARE,
    SCOUTED,
    Piece,
    checked,
    configurations,
    impossible_drafters,
    promising,
    readable,
    rotated,
    scouts,
)
from .rounds import KnownText, RoundCounts, predicted_counts
from .table import Findings, finished_rows
from .types import (
    Configuration,
    Machine,
    Plan,
    Progress,
    Row,
    SweepEvent,
    SweepRequest,
    SweepResult,
)

PIECE_SECONDS = 4.0  # on both clocks of a race together; longer texts are shortened to this
FEWEST_TOKENS = 16  # that a shortened text has
TIMED_ROUNDS = 6
MOST_REPEATS = 12
SETTLED_REPEATS = 2  # repeats after which a temperature with one row left is done


def sweep(
    pair: Pair, request: SweepRequest, stop: Callable[[], bool] = lambda: False
) -> Iterator[SweepEvent]:
    """Compare all rows of the request on this pair; see `types.SweepEvent` for what is yielded.

    stop: asked between rounds; once it is true, the piece that runs is dropped and the
    `SweepResult` of what is known follows. Raises `SpecvizError` for a request that cannot be done;
    an error after the first run ends the sweep, with its sentence in the result's notes.
    """
    state = Sweep(request)
    try:
        while not state.is_done and not stop():
            yield from state.advance(pair, stop)
    except SpecvizError as error:
        if not state.runs:
            raise
        state.notes += (f"The sweep ended early: {error}",)
    yield state.result()


class Sweep:
    """A sweep that rests between pieces. It holds plain data and can be pickled.

    Raises `SettingsError` for a request that no pair could do.
    """

    def __init__(self, request: SweepRequest) -> None:
        self.request = checked(request)
        self.questions = in_turn(self.request.prompts)
        self.rows: tuple[Configuration, ...] = configurations(self.request)
        self.spent = 0.0
        self.stage = "plan"
        self.runs: list[Run] = []
        self.missing: dict[str, str] = {}  # drafter -> why it is left out
        self.notes: tuple[str, ...] = ()  # what went wrong on the way, as sentences
        self.predicted: dict[str, dict[int, RoundCounts]] = {}  # row -> question -> counts
        self.costs = Costs()
        self.machine: Machine | None = None
        self.weights: tuple[int, int | None] | None = None  # bytes of target and draft
        self.eliminated: set[str] = set()
        self._queue: list[Piece] = []
        self._alive: dict[float, list[str]] = {}  # rows that may be the best, by temperature
        self._scouted = 1  # prompts whose scouts were planned
        self._turn = 0  # prompts confirmed so far, counted over repeats
        self._length = self.request.base.max_new_tokens
        self._shortened = False
        self._done = 0

    @property
    def is_done(self) -> bool:
        """Whether no piece is left, or no time for one."""
        return self.stage == "done"

    def advance(self, pair: Pair, stop: Callable[[], bool] = lambda: False) -> Iterator[SweepEvent]:
        """Do the next piece and yield its events: a `Plan` first, later rows with news and a
        `Progress`."""
        begin = time.perf_counter()
        if self.stage == "plan":
            yield self._plan(pair)  # engines are made here: the budget is for decoding
            return
        self._refill()
        if self.is_done:
            return
        piece = self._queue.pop(0)
        changed = self._measure(pair, piece, stop)
        self.spent += time.perf_counter() - begin
        if changed is None:
            return
        self._done += 1
        if self.spent >= self.request.seconds:
            self.stage = "done"
        else:
            self._refill()
        table = {row.configuration.key: row for row in self.table()}
        yield from (table[key] for key in changed)
        yield self.progress()

    def result(self) -> SweepResult:
        """All that is known, with the recommendations."""
        from .advice import recommendations
        from .links import page_query

        rows = self.table()
        advice = recommendations(rows, self.machine, self.request)
        best = next((one.best for one in advice if one.best is not None), None)
        link = page_query(best, self.request, self.machine) if best else ""
        return SweepResult(
            request=self.request,
            rows=rows,
            recommendations=advice,
            machine=self.machine,
            stopped=not self.is_done,
            spent=self.spent,
            link=link,
            notes=self.notes,
        )

    def table(self) -> tuple[Row, ...]:
        """Every row as it is known now."""
        return finished_rows(
            Findings(
                rows=self.rows,
                kinds=tuple(question.kind for question in self.questions),
                runs=self.runs,
                predicted=self.predicted,
                costs=self.costs,
                missing=self.missing,
                eliminated=self.eliminated,
                weights=self.weights,
            )
        )

    def progress(self) -> Progress:
        """How far it is."""
        left = self._pieces_left()
        mean = self.spent / max(1, self._done)
        seconds = max(0.0, min(self.request.seconds - self.spent, mean * left))
        now = "done" if self.is_done or not self._queue else self._words(self._queue[0])
        return Progress(self._done, self._done + left, seconds, now)

    def _words(self, piece: Piece) -> str:
        row, kind = self._row(piece.key), self.questions[piece.question].kind
        verb = "timing the rounds of" if piece.timing else "measuring"
        return f"{verb} {row.label}, on {kind}"

    def _row(self, key: str) -> Configuration:
        return next(row for row in self.rows if row.key == key)

    def _plan(self, pair: Pair) -> Plan:
        base = self.request.base
        self.questions, self.notes = readable(pair, self.questions, base.chat)
        prompt = self.questions[0].text
        self.missing = impossible_drafters(pair, prompt, base, self.request.drafters)
        self.weights = (
            weight_bytes(pair.target),
            None if pair.draft is None else weight_bytes(pair.draft),
        )
        possible = [row for row in self.rows if row.drafter not in self.missing]
        self._queue = scouts(possible, 0) if possible else []
        self.stage = "scout" if possible else "done"
        scouted = min(SCOUTED, len(self.questions)) * len({row.drafter for row in possible})
        pieces = scouted + len(possible) * len(self.questions) // 2
        return Plan(self.table(), kinds_of(self.questions), pieces, self.request.seconds)

    def _measure(self, pair: Pair, piece: Piece, stop: Callable[[], bool]) -> list[str] | None:
        """Run a piece; returns the rows with news, or None if it was dropped."""
        settings = self._settings(piece)
        question = self.questions[piece.question]
        trace = raced(
            pair,
            question.text,
            settings,
            stop,
            most_seconds=PIECE_SECONDS,
            most_rounds=TIMED_ROUNDS if piece.timing else None,
        )
        if trace is None:
            self._queue.insert(0, piece)
            return None
        self.machine = machine_of(pair, trace, self.machine)
        if not piece.timing and self._shorten(trace):
            self._queue.insert(0, piece)
            return None
        self.costs.add(trace)
        if piece.timing:
            return [row.key for row in self.rows if row.key in self.predicted]
        self.runs.append(run_of(piece.key, piece.question, trace))
        self._predict(pair, piece, known_text(pair, trace))
        if self.stage == "confirm":
            self._eliminate()
        row = self._row(piece.key)
        same = [one.key for one in self.rows if one.temperature == row.temperature]
        return [key for key in same if key in self.predicted or key == piece.key]

    def _settings(self, piece: Piece) -> Settings:
        settings = self._row(piece.key).settings(self.request.base)
        settings = replace(settings, max_new_tokens=self._length)
        return seeded(settings, piece.repeat)

    def _shorten(self, trace: Trace) -> bool:
        """Whether texts are too long for short pieces here; all later ones are then shorter."""
        stopped = trace.end is not None and "stopped" in trace.end.reasons.values()
        if not stopped or self._shortened or self._length <= FEWEST_TOKENS:
            return False
        lengths = [
            sum(len(r.emitted) for r in trace.lane(lane)) for lane in ("speculative", "baseline")
        ]
        self._shortened = True
        self._length = max(FEWEST_TOKENS, min(lengths))
        return True

    def _predict(self, pair: Pair, piece: Piece, text: KnownText) -> None:
        """Predict the rows of the piece's drafter and temperature on this text."""
        done, settings = self._row(piece.key), self._settings(piece)
        if not is_predictable(settings, pair) or piece.question in self.predicted.get(
            piece.key, {}
        ):
            return
        known = acceptance_along(pair, text.ids, text.begin, settings)
        for row in self.rows:
            if (row.temperature, row.drafter) == (done.temperature, done.drafter):
                settings = self._settings(Piece(row.key, piece.question))
                along = Along(pair, text.ids, text.begin, settings, known)
                counts = predicted_counts(text, along, settings)
                self.predicted.setdefault(row.key, {})[piece.question] = counts

    def _eliminate(self) -> None:
        """Find the rows that are slower beyond noise. One may come back when more is known."""
        values = values_by_row(self.runs)
        self.eliminated = set()
        for temperature in self.request.temperatures:
            group = [row.key for row in self.rows if row.temperature == temperature]
            self.eliminated |= slower({key: values[key] for key in group if key in values})
        self._queue = [piece for piece in self._queue if piece.key not in self.eliminated]

    def _refill(self) -> None:
        """Plan the next pieces if none is left, or end; first come those that no answer can do
        without, as soon as the time is only enough for them."""
        while not self._queue and not self.is_done:
            if self.stage == "scout":
                self._scout_on()
            else:
                self._confirm_on()
        left = (self.request.seconds - self.spent) * self._done / max(self.spent, 1e-9)
        if self._done and left <= ENOUGH * len(self.request.temperatures) + 1:
            owed = self._owed()
            if left <= len(owed) + 1:
                self._queue = owed + [piece for piece in self._queue if piece not in owed]

    def _scout_on(self) -> None:
        """Plan the leading row on the prompt that was scouted, or the next scouts."""
        last = self._scouted - 1
        ran = {(run.key, run.question) for run in self.runs}
        self._queue = [
            Piece(key, last) for key in self._leaders().values() if (key, last) not in ran
        ]
        if self._queue:
            return
        short = self.spent > SCOUT_SHARE * self.request.seconds
        if short or self._scouted >= min(SCOUTED, len(self.questions)):
            self.stage = "confirm"
            return
        possible = [row for row in self.rows if row.drafter not in self.missing]
        self._queue = scouts(possible, self._scouted)
        self._scouted += 1

    def _confirm_on(self) -> None:
        self._eliminate()
        self._choose()
        repeat, question = divmod(self._turn, len(self.questions))
        if repeat >= MOST_REPEATS or (repeat >= SETTLED_REPEATS and self._settled()):
            self.stage = "done"
            return
        keys = [key for some in self._alive.values() for key in some]
        seen = {(run.key, run.question) for run in self.runs} if repeat == 0 else set()
        self._queue = [
            Piece(key, question, repeat)
            for key in rotated(keys, self._turn)
            if (key, question) not in seen
        ]
        self._turn += 1

    def _leaders(self) -> dict[float, str]:
        """By temperature, the row that promises most of those that promise more than the best
        measured one and ran on too few prompts to tell; without one, the best row itself."""
        found: dict[float, str] = {}
        known = [row for row in self.table() if row.mark in ("best", "open")]
        for row in sorted(known, key=lambda row: (row.mark == "open", _speed(row) or 0.0)):
            found[row.configuration.temperature] = row.configuration.key
        return found

    def _owed(self) -> list[Piece]:
        """The pieces without which there is no answer: of the leading rows, until they ran on
        `ENOUGH` prompts, on those of the other measured rows first."""
        ran: dict[str, set[int]] = defaultdict(set)
        for run in self.runs:
            ran[run.key].add(run.question)
        order = [*dict.fromkeys(run.question for run in self.runs), *range(len(self.questions))]
        pieces = []
        for key in self._leaders().values():
            new = [question for question in dict.fromkeys(order) if question not in ran[key]]
            pieces += [Piece(key, question) for question in new[: max(0, ENOUGH - len(ran[key]))]]
        return pieces

    def _settled(self) -> bool:
        return all(len(keys) <= 1 for keys in self._alive.values())

    def _choose(self) -> None:
        """Find the rows to go on with: those that promise much, by what is known of costs now, and
        those that were measured and are not slower beyond noise."""
        table = self.table()
        speeds = {row.configuration.key: _speed(row) for row in table}
        promising_more = {row.configuration.key for row in table if row.mark == "open"}
        possible = [row for row in self.rows if row.drafter not in self.missing]
        measured = {run.key for run in self.runs}
        self._alive = {
            temperature: [
                row.key
                for row in possible
                if row.temperature == temperature
                and (row.key in keys or row.key in measured or row.key in promising_more)
                and row.key not in self.eliminated
            ]
            for temperature, keys in promising(possible, speeds).items()
        }

    def _pieces_left(self) -> int:
        """About how many pieces are left: as many as are due, or as the time is enough for."""
        if self.is_done:
            return 0
        alive = sum(map(len, self._alive.values())) or len(self.rows) // 2
        prompts = SETTLED_REPEATS * len(self.questions) - self._turn
        due = len(self._queue) + alive * max(0, prompts)
        if not self._done:
            return due
        enough = (self.request.seconds - self.spent) * self._done / self.spent
        return max(1, min(due, round(enough)))


def _speed(row: Row) -> float | None:
    return row.predicted.speedup if row.predicted else None

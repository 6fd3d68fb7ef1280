"""A sweep: one run at the largest gamma predicts all others, and the promising ones are measured.

`sweep(pair, request, stop)` yields events until the sweep ends or `stop()` is true. It is a loop
around `Sweep(request)`, which rests between pieces, so that it can wait while the models' process
serves somebody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import SpecvizError
from ...pairs.pair import Pair
from ...pairs.sizes import parameter_bytes
from ...prompts import in_turn, kinds_of
from ...runs.trace import Trace
from ...settings import Settings
from ..racing import raced, seeded
from .acceptance import Along, acceptance_along, is_predictable
from .agenda import (
    SCOUTED,
    Agenda,
    Piece,
    Standing,
    checked,
    impossible_drafters,
    readable,
)
from .observed import known_text, machine_of, run_of
from .rounds import KnownText, predicted_counts
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


class Sweep(Findings):
    """A sweep that rests between pieces. It holds plain data and can be pickled.

    Raises `SettingsError` for a request that no pair could do.
    """

    def __init__(self, request: SweepRequest) -> None:
        self.request = checked(request)
        super().__init__(self.request.configurations(), in_turn(self.request.prompts))
        self.spent = 0.0
        self.agenda: Agenda | None = None  # until it is planned
        self.notes: tuple[str, ...] = ()  # what went wrong on the way, as sentences
        self.machine: Machine | None = None
        self._length = self.request.base.max_new_tokens
        self._shortened = False
        self._done = 0

    @property
    def is_done(self) -> bool:
        """Whether no piece is left, or no time for one."""
        return self.agenda is not None and self.agenda.stage == "done"

    def advance(self, pair: Pair, stop: Callable[[], bool] = lambda: False) -> Iterator[SweepEvent]:
        """Do the next piece and yield its events: a `Plan` first, later rows with news and a
        `Progress`."""
        begin = time.perf_counter()
        if self.agenda is None:
            yield self._plan(pair)  # engines are made here: the budget is for decoding
            return
        if self.is_done:
            return
        piece = self.agenda.queue.pop(0)
        changed = self._measure(pair, piece, stop)
        self.spent += time.perf_counter() - begin
        if changed is None:
            self.agenda.queue.insert(0, piece)
            return
        self._done += 1
        now = self._standing()
        self.agenda.refill(now)
        table = {row.configuration.key: row for row in now.table}
        yield from (table[key] for key in changed)
        yield self._progress(now)

    def result(self) -> SweepResult:
        """All that is known, with the recommendations."""
        from .advice import page_query, recommendations

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
        return finished_rows(self, self.agenda.eliminated if self.agenda else set())

    def _standing(self) -> Standing:
        return Standing(self.table(), self.runs, self.spent, self._done)

    def _progress(self, now: Standing) -> Progress:
        assert self.agenda is not None
        left = self.agenda.pieces_left(now)
        seconds = max(0.0, min(self.request.seconds - self.spent, self.spent / self._done * left))
        due = [] if self.is_done else self.agenda.queue
        return Progress(
            self._done, self._done + left, seconds, self._words(due[0]) if due else "done"
        )

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
            parameter_bytes(pair.target),
            None if pair.draft is None else parameter_bytes(pair.draft),
        )
        possible = [row for row in self.rows if row.drafter not in self.missing]
        self.agenda = Agenda(possible, len(self.questions), self.request.seconds)
        scouted = min(SCOUTED, len(self.questions)) * len({row.drafter for row in possible})
        pieces = scouted + len(possible) * len(self.questions) // 2
        return Plan(self.table(), kinds_of(self.questions), pieces, self.request.seconds)

    def _measure(self, pair: Pair, piece: Piece, stop: Callable[[], bool]) -> list[str] | None:
        """Run a piece; returns the rows with news, or None if it is to be done again."""
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
            return None
        self.machine = machine_of(pair, trace, self.machine)
        if not piece.timing and self._shorten(trace):
            return None
        self.costs.add(trace)
        if piece.timing:
            return [row.key for row in self.rows if row.key in self.predicted]
        self.runs.append(run_of(piece.key, piece.question, trace))
        self._predict(pair, piece, known_text(pair, trace))
        assert self.agenda is not None
        self.agenda.eliminate(self.runs)
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

"""A sweep: one run at the largest gamma predicts all others, and the promising ones are measured.

`sweep(pair, request, stop)` yields events until the sweep ends or `stop()` is true. It is a loop
around `Sweep(request)`, which rests between pieces, so that it can wait while the models' process
serves somebody else.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from ...core.events import Event, Round
from ...core.header import model_name
from ...core.model_facts import parameter_bytes
from ...core.pair import Pair
from ...core.race import race
from ...core.registry import drafter_kind
from ...errors import PromptError, SpecvizError
from ...lanes import BASELINE, SPECULATIVE
from ...prompts import in_turn, kinds_of
from ...runs.trace import Trace
from ...settings import Settings
from ...sides.early_exit.drafter import best_exit
from .agenda import Piece, Standing, checked, due, impossible_drafters, pieces_left
from .along import KnownText, acceptance_along, is_predictable, known_text, predicted_rounds
from .deploy import page_query, recommendations
from .places import places_of
from .table import Findings, race_figures
from .types import (
    Configuration,
    Machine,
    Place,
    Plan,
    Row,
    SweepEvent,
    SweepProgress,
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

    stop: asked between rounds; once it is true, or after Ctrl-C, the piece that runs is dropped and
    the `SweepResult` of what is known follows. Raises `SpecvizError` for a request that cannot be
    done; an error after the first run ends the sweep, with its sentence in the result's notes.
    """
    state = Sweep(request)
    try:
        while not state.is_done and not stop():
            yield from state.advance(pair, stop)
    except KeyboardInterrupt:
        pass
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
        self.queue: list[Piece] | None = None  # the next pieces; None until the sweep is planned
        self.notes: tuple[str, ...] = ()  # what went wrong on the way, as sentences
        self.machine: Machine | None = None
        self._length = self.request.base.max_new_tokens
        self._timed: set[str] = set()  # rows whose rounds were timed
        self._done = 0

    @property
    def is_done(self) -> bool:
        """Whether no piece is left, or no time for one."""
        return self.queue == []

    def advance(self, pair: Pair, stop: Callable[[], bool] = lambda: False) -> Iterator[SweepEvent]:
        """Do the next piece and yield its event: a `Plan` first, later a `SweepProgress`."""
        begin = time.perf_counter()
        if self.queue is None:
            yield self._plan(pair)  # engines are made here: the budget is for decoding
            return
        is_done = bool(self.queue) and self._measure(pair, self.queue[0], stop)
        self.spent += time.perf_counter() - begin
        if not is_done:  # the same piece is due again
            return
        self._done += 1
        left = self._look_ahead(self.table())
        seconds = min(self.request.seconds - self.spent, self.spent / self._done * left)
        yield SweepProgress(
            done=self._done,
            total=self._done + left,
            seconds_left=max(0.0, seconds),
            now=self._in_words(self.queue[0]) if self.queue else "done",
        )

    def result(self) -> SweepResult:
        """All that is known, with the recommendations."""
        rows = self.table()
        advice = recommendations(rows, self.machine, self.request)
        best = next((each.best for each in advice if each.best is not None), None)
        return SweepResult(
            request=self.request,
            rows=rows,
            recommendations=advice,
            machine=self.machine,
            stopped=not self.is_done,
            spent=self.spent,
            link=page_query(best, self.request, self.machine) if best else "",
            notes=self.notes,
        )

    def _look_ahead(self, table: tuple[Row, ...]) -> int:
        """Settle which pieces come next; returns about how many are left."""
        now = Standing(
            table=table,
            ran=Counter((run.key, run.question) for run in self.runs),
            timed=self._timed,
            questions=len(self.questions),
            spent=self.spent,
            seconds=self.request.seconds,
            done=self._done,
        )
        self.queue = due(now)
        return pieces_left(now)

    def _in_words(self, piece: Piece) -> str:
        row = self._row(piece.key)
        kind = self.questions[piece.question].kind
        verb = "timing the rounds of" if piece.timing else "measuring"
        return f"{verb} {row.label}, on {kind}"

    def _row(self, key: str) -> Configuration:
        return next(row for row in self.rows if row.key == key)

    def _plan(self, pair: Pair) -> Plan:
        self._keep_readable(pair)
        request = self.request
        prompt = self.questions[0].text
        self.missing = impossible_drafters(pair, prompt, request.base, request.drafters)
        self.memory = {drafter: _memory(pair, drafter) for drafter in request.drafters}
        table = self.table()
        return Plan(
            rows=table,
            kinds=kinds_of(self.questions),
            pieces=self._look_ahead(table),
            seconds=request.seconds,
        )

    def _keep_readable(self, pair: Pair) -> None:
        """Leave out the prompts that the target cannot read, with a note for each. Raises
        `PromptError` if it can read none."""
        readable = []
        for question in self.questions:
            try:
                pair.encode(question.text, chat=self.request.base.chat)
                readable.append(question)
            except PromptError as error:
                self.notes += (f"A prompt of {question.kind} was left out: {error}",)
                last_error = error
        if not readable:
            raise last_error
        self.questions = tuple(readable)

    def _measure(self, pair: Pair, piece: Piece, stop: Callable[[], bool]) -> bool:
        """Run a piece; returns whether it is done, else it is to be done again."""
        trace = raced(
            pair,
            self.questions[piece.question].text,
            self._settings(piece),
            stop,
            most_seconds=PIECE_SECONDS,
            most_rounds=TIMED_ROUNDS if piece.timing else None,
        )
        if trace is None:
            return False
        if self.machine is None:
            drafters = [name for name in self.request.drafters if name not in self.missing]
            self.machine = machine_of(pair, trace, drafters)
        if not piece.timing and self._shorten(trace):
            return False
        self.costs.add(trace)
        if piece.timing:
            self._timed.add(piece.key)
        else:
            self.runs.append(race_figures(piece.key, piece.question, trace))
            self._predict(pair, piece, known_text(pair, trace))
        return True

    def _settings(self, piece: Piece) -> Settings:
        settings = self._row(piece.key).settings(self.request.base)
        return seeded(replace(settings, max_new_tokens=self._length), piece.repeat)

    def _shorten(self, trace: Trace) -> bool:
        """Whether texts are too long for short pieces here; all later ones are then shorter."""
        requested = self.request.base.max_new_tokens
        is_stopped = trace.end is not None and "stopped" in trace.end.reasons.values()
        is_shortened = self._length != requested
        if not is_stopped or is_shortened or self._length <= FEWEST_TOKENS:
            return False
        written = [sum(len(r.emitted) for r in trace.lane(lane)) for lane in trace.lanes]
        self._length = max(FEWEST_TOKENS, min(written))
        return self._length < requested

    def _predict(self, pair: Pair, piece: Piece, text: KnownText) -> None:
        """Predict the rows of the piece's drafter and temperature on this text."""
        measured = self._row(piece.key)
        wanted: dict[str, Settings] = {}
        for row in self.rows:
            is_alike = (row.drafter, row.temperature) == (measured.drafter, measured.temperature)
            if is_alike and piece.question not in self.predicted.get(row.key, {}):
                settings = self._settings(Piece(row.key, piece.question))
                if is_predictable(settings, pair):
                    wanted[row.key] = settings
        if not wanted:
            return
        chances = acceptance_along(pair, text, self._settings(piece))
        for key, settings in wanted.items():
            rounds = predicted_rounds(pair, text, settings, chances)
            self.predicted.setdefault(key, {})[piece.question] = rounds


def raced(
    pair: Pair,
    prompt: str,
    settings: Settings,
    stop: Callable[[], bool] = lambda: False,
    *,
    most_seconds: float = math.inf,
    most_rounds: int | None = None,
) -> Trace | None:
    """A race, ended early after so many seconds on both clocks together or so many speculative
    rounds; None if `stop()` became true. Raises `SpecvizError`."""
    events: list[Event] = []
    clocks: dict[str, float] = {}
    rounds = 0
    running: Any = race(pair, prompt, settings)
    with closing(running):
        for event in running:
            if stop():
                return None
            events.append(event)
            if not isinstance(event, Round):
                continue
            clocks[event.lane] = event.clock
            rounds += event.lane == SPECULATIVE
            if sum(clocks.values()) > most_seconds or rounds == most_rounds:
                events.append(running.send(True))
                break
    return Trace.from_events(events)


def seeded(settings: Settings, repeat: int) -> Settings:
    """The settings of a repeat: greedy ones repeat exactly, others draw another sample."""
    return settings if settings.greedy else replace(settings, seed=settings.seed + repeat)


def _memory(pair: Pair, drafter: str) -> int | None:
    """Bytes of the weights that this drafter needs; None where they belong to neither model."""
    needs = drafter_kind(drafter).needs
    if needs not in (None, "layers", "draft"):
        return None
    memory = parameter_bytes(pair.target)
    if needs == "draft" and pair.draft is not None:
        memory += parameter_bytes(pair.draft)
    return memory


def _shown(place: Place, name: str) -> str:
    """What a model is called: a file by the model in it."""
    return name if place.is_file else place.name


def machine_of(pair: Pair, trace: Trace, drafters: Sequence[str]) -> Machine:
    """Where a race ran. drafters: those of the sweep."""
    header = trace.header
    target = model_name(pair.target)
    draft = None if pair.draft is None else model_name(pair.draft)
    target_place, draft_place = places_of(pair, target, draft)
    exit_layers = None
    if any(drafter_kind(drafter).needs == "layers" for drafter in drafters):
        exit_layers = best_exit(pair.target, pair.vocab).layers
    return Machine(
        pair=pair.name,
        target=_shown(target_place, target),
        draft=None if draft_place is None else _shown(draft_place, str(draft)),
        device=header.device,
        processor=header.processor,
        dtype=header.dtype,
        form=str(header.target["form"]),
        threads=(header.lane_threads or {}).get(BASELINE, header.threads),
        versions=header.versions,
        date=header.date,
        exit_layers=exit_layers,
        target_place=target_place,
        draft_place=draft_place,
    )

"""A sweep: one run at the largest gamma predicts all others, and the promising ones are measured.

`sweep(pair, request, stop)` yields events until the sweep ends or `stop()` is true. It is a loop
around `Sweep(request)`, a checkpoint between pieces, so that the process that holds the models can
serve others in between.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...base.errors import PromptError, SpecvizError
from ...core.header import model_name
from ...core.lanes import BASELINE
from ...core.model_facts import parameter_bytes
from ...core.pair import Pair
from ...core.registry import drafter_kind
from ...core.settings import Settings
from ...pairs.prompts import in_turn, kinds_of
from ...runs.trace import Trace
from ...sides.early_exit.drafter import best_exit
from ..races import RaceStopped, is_cut, race_figures, race_writer, tokens_within
from ..samples import measure
from .agenda import (
    Piece,
    Standing,
    checked,
    due,
    pieces_left,
    rows_to_begin_with,
    why_impossible,
)
from .deploy import page_query, recommendations
from .model_locations import locate_models
from .predicted_rounds import (
    KnownText,
    acceptance_along,
    is_predictable,
    known_text,
    predicted_rounds,
)
from .table import Findings
from .types import (
    Configuration,
    Machine,
    ModelLocation,
    Plan,
    Recommendation,
    Row,
    SweepEvent,
    SweepProgress,
    SweepRequest,
    SweepResult,
)

PIECE_SECONDS = 4.0  # on both clocks of a race together; longer texts are shortened to this
NOTICE_SECONDS = 0.5  # preparation of a drafter that takes longer ends with an event


def sweep(
    pair: Pair, request: SweepRequest, stop: Callable[[], bool] = lambda: False
) -> Iterator[SweepEvent]:
    """Compare all rows of the request on this pair; see `types.SweepEvent` for what is yielded.

    stop: called between rounds; once it is true, or after Ctrl-C, the running piece is dropped and
    the `SweepResult` so far follows. Raises `SpecvizError` for a request that cannot be
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
    """The state of a sweep between pieces: plain data that can be pickled.

    Raises `SettingsError` for a request that no pair could do.
    """

    def __init__(self, request: SweepRequest) -> None:
        self.request = checked(request)
        super().__init__(self.request.configurations(), in_turn(self.request.prompts))
        self.spent = 0.0
        self.queue: list[Piece] | None = None  # the next pieces; None until the sweep is planned
        self.notes: tuple[str, ...] = ()  # failures on the way, as sentences
        self.machine: Machine | None = None
        self._length: int | None = None  # tokens of each text; None until passes were timed
        self._ready: set[str] = set()  # drafters whose engines were made
        self._done = 0

    @property
    def is_done(self) -> bool:
        """Whether no piece is left, or no time for one."""
        return self.queue == []

    def advance(self, pair: Pair, stop: Callable[[], bool] = lambda: False) -> Iterator[SweepEvent]:
        """Do the next piece and yield its event: a `Plan` first, later a `SweepProgress`."""
        if self.queue is None:
            yield self._plan(pair)
            return
        if self.queue:
            drafter = self._row(self.queue[0].key).drafter
            if drafter not in self._ready:
                yield from self._get_ready(pair, drafter)
                if drafter in self.missing:
                    return
        begin = time.perf_counter()
        is_measured = bool(self.queue) and self._measure(pair, self.queue[0], stop)
        self.spent += time.perf_counter() - begin
        if not is_measured:  # the same piece is due again
            return
        self._done += 1
        yield self._progress(self._look_ahead())

    def _progress(self, left: int) -> SweepProgress:
        """left: the estimated number of pieces that are left."""
        seconds = self.request.seconds - self.spent
        if self._done:
            seconds = min(seconds, self.spent / self._done * left)
        return SweepProgress(
            done=self._done,
            total=self._done + left,
            seconds_left=max(0.0, seconds),
            now=self._next_in_words() or "done",
        )

    def result(self) -> SweepResult:
        """The table so far, with the recommendations."""
        rows = self.table()
        recommended = [
            self._with_prompt(advice)
            for advice in recommendations(rows, self.machine, self.request)
        ]
        best_rows = [advice.best for advice in recommended if advice.best is not None]
        link = ""
        if best_rows:
            link = page_query(best_rows[0], self.request, self.machine)
        return SweepResult(
            request=self.request,
            rows=rows,
            recommendations=tuple(recommended),
            machine=self.machine,
            stopped=not self.is_done,
            spent=self.spent,
            link=link,
            notes=self.notes,
        )

    def _with_prompt(self, advice: Recommendation) -> Recommendation:
        if advice.best is None:
            return advice
        prompt = self.typical_prompt(advice.best.key)
        if prompt is None:
            return advice
        return replace(advice, prompt=prompt.text)

    def _look_ahead(self) -> int:
        """Queue the next pieces; returns an estimate of how many are left."""
        now = self._standing(self.table())
        self.queue = due(now)
        return pieces_left(now)

    def _standing(self, table: tuple[Row, ...]) -> Standing:
        return Standing(
            table=table,
            ran=Counter((run.key, run.prompt) for run in self.quiet_runs()),
            tried=Counter((run.key, run.prompt) for run in self.runs),
            prompts=len(self.prompts),
            spent=self.spent,
            seconds=self.request.seconds,
            done=self._done,
            begins=self.begins,
        )

    def _next_in_words(self) -> str:
        """The next piece as half a sentence; empty if none is left."""
        if not self.queue:
            return ""
        piece = self.queue[0]
        row = self._row(piece.key)
        if row.drafter not in self._ready:
            return f"preparing: {drafter_kind(row.drafter).choice}"
        return f"measuring {row.label}, on {self.prompts[piece.prompt].kind}"

    def _row(self, key: str) -> Configuration:
        return next(row for row in self.rows if row.key == key)

    def _plan(self, pair: Pair) -> Plan:
        self._keep_readable(pair)
        request = self.request
        self.begins = rows_to_begin_with(pair, self.rows)
        self.memory = {drafter: _memory(pair, drafter) for drafter in request.drafters}
        left = self._look_ahead()
        return Plan(
            rows=self.table(),
            kinds=kinds_of(self.prompts),
            pieces=left,
            seconds=request.seconds,
            now=self._next_in_words(),
        )

    def _get_ready(self, pair: Pair, drafter: str) -> Iterator[SweepProgress]:
        """Make the engines of a drafter, or leave it out. This does not count as time of the sweep;
        if it takes long, an event follows."""
        begin = time.perf_counter()
        shortest = min(self.prompts, key=lambda prompt: len(prompt.text))
        reason = why_impossible(pair, shortest.content, self.request.base, drafter)
        self._ready.add(drafter)
        if reason:
            self.missing[drafter] = reason
        left = self._look_ahead()
        if time.perf_counter() - begin > NOTICE_SECONDS:
            yield self._progress(left)

    def _keep_readable(self, pair: Pair) -> None:
        """Leave out the prompts that the target cannot read, with a note for each. Raises
        `PromptError` if it can read none."""
        readable = []
        for prompt in self.prompts:
            try:
                pair.encode(prompt.content, chat=self.request.base.chat)
                readable.append(prompt)
            except PromptError as error:
                self.notes += (f"A prompt of {prompt.kind} was left out: {error}",)
                last_error = error
        if not readable:
            raise last_error
        self.prompts = tuple(readable)

    def _measure(self, pair: Pair, piece: Piece, stop: Callable[[], bool]) -> bool:
        """Run a piece; returns whether it is done, or has to be run again."""
        is_length_known = self._length is not None
        max_seconds = math.inf if is_length_known else PIECE_SECONDS
        writer = race_writer(pair, self._settings(piece), stop=stop, max_seconds=max_seconds)
        prompt = self.prompts[piece.prompt]
        try:
            trace = measure(writer, prompt.content, piece.prompt, piece.repeat).race
        except RaceStopped:
            return False
        self._keep_machine(pair, trace, self._row(piece.key).drafter)
        if not is_length_known:
            self._length = self._affordable_length(trace)
            if is_cut(trace):
                return False
        self.runs.append(race_figures(piece.key, piece.prompt, trace))
        text = known_text(pair, trace)
        if text is not None:
            self._predict(pair, piece, text)
        return True

    def _keep_machine(self, pair: Pair, trace: Trace, drafter: str) -> None:
        machine = self.machine or machine_of(pair, trace)
        if drafter_kind(drafter).needs == "layers":
            machine = replace(machine, exit_layers=best_exit(pair.target, pair.vocab).layers)
        self.machine = machine

    def _affordable_length(self, trace: Trace) -> int:
        """The tokens of each text: as requested, or as many as a piece has time for."""
        requested = self.request.base.max_new_tokens
        affordable = tokens_within(PIECE_SECONDS, trace.lane(BASELINE))
        return int(min(requested, affordable))

    def _settings(self, piece: Piece) -> Settings:
        settings = self._row(piece.key).settings(self.request.base)
        length = self._length or settings.max_new_tokens
        return seeded(replace(settings, max_new_tokens=length), piece.repeat)

    def _predict(self, pair: Pair, piece: Piece, text: KnownText) -> None:
        """Predict the rows of the piece's drafter and temperature on this text."""
        measured = self._row(piece.key)
        settings_by_row: dict[str, Settings] = {}
        for row in self.rows:
            is_alike = (row.drafter, row.temperature) == (measured.drafter, measured.temperature)
            is_predicted = piece.prompt in self.predicted.get(row.key, {})
            if not is_alike or is_predicted:
                continue
            settings = self._settings(Piece(row.key, piece.prompt))
            if is_predictable(settings, pair):
                settings_by_row[row.key] = settings
        if not settings_by_row:
            return
        chances = acceptance_along(pair, text, self._settings(piece))
        for key, settings in settings_by_row.items():
            rounds = predicted_rounds(pair, text, settings, chances)
            self.predicted.setdefault(key, {})[piece.prompt] = rounds


def seeded(settings: Settings, repeat: int) -> Settings:
    """The settings of a repeat, in which a sampled text has another seed."""
    if settings.greedy:
        return settings
    return replace(settings, seed=settings.seed + repeat)


def _memory(pair: Pair, drafter: str) -> int | None:
    """Bytes of the weights that this drafter needs; None if they belong to neither model."""
    needs = drafter_kind(drafter).needs
    if needs not in (None, "layers", "draft"):
        return None
    memory = parameter_bytes(pair.target)
    if needs == "draft" and pair.draft is not None:
        memory += parameter_bytes(pair.draft)
    return memory


def _shown(location: ModelLocation, name: str) -> str:
    """The name to show: for a file, that of the model in it."""
    if location.is_file:
        return name
    return location.name


def machine_of(pair: Pair, trace: Trace) -> Machine:
    """The machine and models of a race, without the layers of an early exit."""
    header = trace.header
    target = model_name(pair.target)
    draft = None if pair.draft is None else model_name(pair.draft)
    target_location, draft_location = locate_models(pair, target, draft)
    shown_draft = draft
    if draft is not None and draft_location is not None:
        shown_draft = _shown(draft_location, draft)
    return Machine(
        pair=pair.name,
        target=_shown(target_location, target),
        draft=shown_draft,
        device=header.device,
        processor=header.processor,
        dtype=header.dtype,
        form=str(header.target["form"]),
        threads=(header.lane_threads or {}).get(BASELINE, header.threads),
        versions=header.versions,
        date=header.date,
        target_place=target_location,
        draft_place=draft_location,
    )

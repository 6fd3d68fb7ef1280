"""Jobs: work that visitors want from the models, each with a task and numbered results."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

from ..core.events import End, EndReason, Event, Header, Round
from ..core.lanes import BASELINE, LANES, Lane
from ..core.settings import Settings
from ..worker.loading import Status
from ..worker.tasks import LoadTask, RaceTask, Stop, Task
from .loads import LoadProgress
from .security.requests import CLIENT

log = logging.getLogger(__name__)

VISITOR_PATIENCE = 15.0  # seconds without polling after which a job's visitor has left
HIDDEN_VISITOR_PATIENCE = 75.0  # and for a hidden tab, whose timers a browser runs once a minute
CLOSED = "The pair was not loaded: the server is shutting down."
GRACE = 2.0  # seconds that a visitor waits, after Stop, for the current pass


class Visitor:
    """The person or program that a job is for, known from its request.

    session: the name of a tab, or of a program's call. client: the address, empty if it is unknown.
    context: of the request, in which the work is done: ZeroGPU finds the account in it, and the log
    the request's id.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        self.client = CLIENT.get()
        self.context = copy_context()
        self._polled_at = time.monotonic()
        self._patience = VISITOR_PATIENCE

    def note_poll(self, *, hidden: bool = False) -> None:
        """Note that the visitor polls. hidden: whether the browser shows another tab."""
        self._polled_at = time.monotonic()
        self._patience = VISITOR_PATIENCE
        if hidden:
            self._patience = HIDDEN_VISITOR_PATIENCE

    def has_left(self) -> bool:
        """Whether the visitor seems to have left without stopping the job."""
        silence = time.monotonic() - self._polled_at
        return silence > self._patience


@dataclass
class Ending:
    """The known facts of a job's end. error: the reason of a failure. remark: the reason of an
    early end, if its visitor did not stop it. fall_back: whether a recording may replace it, since
    the request was valid. is_delivered: whether the end was sent to the visitor.
    """

    error: str | None = None
    remark: str | None = None
    fall_back: bool = False
    is_delivered: bool = False


class Job:
    """A piece of work for the models, which do one at a time. Its results are numbered from 0: a
    client asks for those from the first number that it lacks.

    A job waits, starts, is ready, and is over. `stop` may come at any time; `cancel` of the queue
    also ends a job that still waits. The queue's thread closes each job, even after a failure.

    length: the amount of work, in a unit of its kind. next_seq: the number of the next result.
    has_answered: whether its task has yielded anything, if only a sentence. status: the newest
    result if that is a sentence, else empty. started_at: when the worker got its task. ready_at:
    when its pair was in memory. load_seconds: of the load of its pair; None if there was no load,
    or it goes on. stopping: tells its task to end. is_released: whether its visitor need not wait
    for its end. over: whether nothing more comes. ending: how it ended.
    """

    max_unfinished: ClassVar[int | None] = None
    """Limits of unfinished jobs of this kind: in all, and for one address."""
    max_of_client: ClassVar[int] = 0
    crowded: ClassVar[str] = ""
    """The error for a visitor who would exceed a limit."""

    def __init__(self, session: str, task: Task) -> None:
        self.id = uuid4().hex  # a secret: everyone who knows it can ask for the results
        self.visitor = Visitor(session)
        self.task = task
        self.length = 1
        self.next_seq = 0
        self.has_answered = False
        self.status = ""
        self.started_at = 0.0  # by the monotonic clock, as all times here
        self.ready_at: float | None = None
        self.load_seconds: float | None = None
        self.stopping = Stop()
        self.is_released = False
        self.over = False
        self.ending = Ending()
        self._is_loading = False
        self._stopped_at: float | None = None

    def start(self) -> None:
        """Note that the worker gets its task now."""
        self.started_at = time.monotonic()
        self.load_seconds = None
        self._is_loading = False

    def add(self, result: Any) -> None:
        """Receive a result of the task, in the queue's thread. Never waits."""
        self.has_answered = True
        if result is Status.LOADING:
            self._is_loading = True
        is_sentence = isinstance(result, str)
        if result is Status.STARTUP or not is_sentence:
            self._note_ready()
        if is_sentence:
            self.status = str(result)
            return
        self.status = ""
        self._store(result)
        self.next_seq += 1

    def _note_ready(self) -> None:
        """Note that its pair is in memory."""
        if self.ready_at is not None:
            return
        self.ready_at = time.monotonic()
        if self._is_loading:
            self.load_seconds = self.ready_at - self.started_at

    def _store(self, result: Any) -> None:
        """Store result number `next_seq`."""
        raise NotImplementedError

    def has_result(self) -> bool:
        """Whether it has a result to end with."""
        raise NotImplementedError

    def results_from(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
        """Return the results from number `seq` up to, but not including, `next_seq`, and the whole
        result if the job is over."""
        raise NotImplementedError

    @property
    def share(self) -> float | None:
        """The finished share, 0 to 1; None if it is unknown."""
        return None

    def state(self, status: str, seq: int = -1) -> dict[str, Any]:
        """Return the results from number `seq`, and whether and how the job has ended for its
        visitor. status: the sentence for a visitor who waits. seq: -1 if the visitor knows nothing
        of the job."""
        # Read in this order: results that came before the end are then before `next_seq`.
        over = self.over or self.is_released
        next_seq = self.next_seq
        state = {
            "id": self.id,
            "over": over,
            "seq": seq,
            "next": next_seq,
            "status": status,
            "error": None,
            "remark": None,
        }
        if over:
            state["status"] = ""
            state["error"] = self.ending.error
            state["remark"] = self.ending.remark
        if next_seq != seq or over:
            state |= self.results_from(seq, next_seq, over=over)
        return state

    def is_abandoned(self) -> bool:
        """Whether nobody waits for its end."""
        return self.visitor.has_left()

    def stop(self) -> None:
        """Tell it to end soon."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        self.stopping.set()

    def end_early(self, remark: str) -> None:
        """Stop it; it keeps the results that it has."""
        self.ending.remark = remark
        self.stop()

    def seconds_since_stop(self) -> float:
        """Seconds since it was told to end; 0 if it was not."""
        if self._stopped_at is None:
            return 0.0
        return time.monotonic() - self._stopped_at

    def release_visitor(self) -> None:
        """Let its visitor go if it was stopped more than `GRACE` ago."""
        if self.seconds_since_stop() > GRACE:
            self.is_released = True

    def refuse(self, sentence: str) -> None:
        """End it before it has begun. A recording may take its place."""
        self.ending.error = sentence
        self.ending.fall_back = True
        self.over = True

    def next_task(self) -> Task | None:
        """The task that follows the one that has ended, if any. Other jobs may have their turn in
        between."""
        return None

    def continue_with(self, task: Task) -> None:
        """Replace its task by the next one, which has its own time limit."""
        self.task = task
        self.ready_at = None

    def finish(self) -> None:
        """Complete its results and its ending. It may be called again."""
        if self.ending.remark and not self.ending.error and not self.has_result():
            self.ending.error = self.ending.remark

    def close(self) -> None:
        """End the job, whatever happened before."""
        try:
            self.finish()
        finally:
            self.over = True


class LoadJob(Job):
    """The load of the pair that the page opens with, without a visitor."""

    def __init__(self, progress: LoadProgress) -> None:
        super().__init__(f"load-{uuid4().hex}", LoadTask(progress.pair))
        self.progress = progress

    def add(self, result: Any) -> None:
        super().add(result)
        self.progress.status = str(result)

    def is_abandoned(self) -> bool:
        return False

    def has_result(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        if self.ending.error is None and not self.stopping.is_set():
            self._note_ready()
            self.progress.succeed()
            return
        error = self.ending.error or CLOSED
        log.warning("the pair %r could not be loaded ahead of a run: %s", self.task.pair, error)
        self.progress.fail(error)


class FollowUp(Job):
    """Work on a run that has ended. shown: turns a result of its task into JSON for the browser;
    the last one has a "result". answer: the JSON so far."""

    def __init__(
        self, session: str, task: Task, shown: Callable[[Any], dict[str, Any]], **answer: Any
    ) -> None:
        super().__init__(session, task)
        self.answer = answer
        self._shown = shown

    def _store(self, result: Any) -> None:
        self.answer = {**self.answer, **self._shown(result)}

    @property
    def share(self) -> float | None:
        done = self.answer.get("done")
        draws = self.answer.get("draws")
        if done is None or not draws:
            return None
        return float(done / draws)

    def has_result(self) -> bool:
        return "result" in self.answer

    def results_from(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
        return {**self.answer, "stopped": over and not self.has_result()}


class Run(Job):
    """One visitor's run. Its results are the events of the race.

    settings, lanes: as `RaceTask` has them. size: the tokens that are kept.
    """

    def __init__(
        self,
        session: str,
        pair: str,
        prompt: str,
        settings: Settings,
        lanes: Mapping[Lane, Settings] | None = None,
    ) -> None:
        super().__init__(session, RaceTask(pair, prompt, settings, lanes))
        self.prompt = prompt
        self.settings = settings
        self.lanes = lanes
        names: tuple[Lane, ...] = LANES
        if lanes:
            names = (*lanes, BASELINE)
        self.length = settings.max_new_tokens * len(names) // len(LANES)  # tokens of each of two
        self.size = 0
        self._ended = False
        # The tokens of each round by lane: a round may be sent again, and replaces itself and
        # all rounds after it.
        self._emitted: dict[Lane, list[int]] = {name: [] for name in names}
        # The page limits the length of a run, so at most an event per token and lane is here.
        self._events: list[Event] = []
        self._adding = threading.RLock()

    @property
    def racing(self) -> bool:
        """Whether an event of the race has come."""
        return self.next_seq > 0

    @property
    def share(self) -> float | None:
        """The written share of the tokens that it may write; it may end before."""
        max_emitted = self.settings.max_new_tokens * len(self._emitted)
        if not max_emitted:
            return None
        emitted = sum(sum(counts) for counts in self._emitted.values())
        return emitted / max_emitted

    @property
    def is_forgotten(self) -> bool:
        """Whether its events were freed and cannot be fetched any more."""
        return self.next_seq > len(self._events)

    def add(self, result: Event | str) -> None:
        with self._adding:  # `release_visitor` adds its end from another thread
            if not self._ended:
                super().add(result)

    def _store(self, event: Event) -> None:
        self._events.append(event)
        self._ended = isinstance(event, End)
        if isinstance(event, Round):
            self.size += len(event.tokens)
            self._emitted[event.lane][event.index :] = [len(event.emitted)]
        elif isinstance(event, Header):
            self._emitted = {name: [] for name in event.all_lanes}

    def results_from(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
        header: Header | None = None
        rounds: list[Round] = []
        end: End | None = None
        for event in self._events[max(0, seq) : next_seq]:
            if isinstance(event, Header):
                header = event
            elif isinstance(event, Round):
                rounds.append(event)
            else:
                end = event
        return {
            "header": header,
            "rounds": rounds,
            "end": end,
            "fall_back": over and self.ending.fall_back and not self.racing,
        }

    def has_result(self) -> bool:
        return self.racing

    def finish(self) -> None:
        super().finish()
        if self.racing and not self._ended and not self.ending.error:
            reasons = {lane: self._end_reason(lane) for lane in self._emitted}
            self.add(End(reasons))

    def _end_reason(self, lane: Lane) -> EndReason:
        emitted = sum(self._emitted[lane])
        if emitted >= self.settings.max_new_tokens:
            return "length"
        return "stopped"

    def release_visitor(self) -> None:
        """As for any job, but at once if the race has not begun. The visitor gets an `End`."""
        if not self.stopping.is_set():
            return
        if not self.racing or self.seconds_since_stop() > GRACE:
            self.finish()
            self.is_released = True

    def forget(self) -> None:
        """Free the memory of its events."""
        self._events = []
        self.size = 0

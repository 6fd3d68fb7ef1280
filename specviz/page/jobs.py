"""Jobs: work that visitors want from the models. A job has a task, a visitor and news."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

from ..core.events import End, EndReason, Event, Header, Round
from ..core.lanes import BASELINE, LANES, Lane
from ..core.settings import Settings
from ..worker.loading import Status
from ..worker.tasks import LoadTask, RaceTask, Stop, Task
from .loads import LoadProgress
from .security.requests import CLIENT

PATIENCE = 15.0  # seconds without polling after which a job's visitor has left
HIDDEN_PATIENCE = 75.0  # and for a hidden tab, whose timers a browser runs once a minute
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
        self._asked_at = time.monotonic()
        self._patience = PATIENCE

    def note_question(self, *, hidden: bool) -> None:
        """Note that the visitor polls for news. hidden: whether the browser shows another tab."""
        self._asked_at = time.monotonic()
        self._patience = PATIENCE
        if hidden:
            self._patience = HIDDEN_PATIENCE

    def has_left(self) -> bool:
        """Whether the visitor seems to have left without stopping the job."""
        silence = time.monotonic() - self._asked_at
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
    """A piece of work for the models, which do one at a time. Its news are numbered from 0: a
    client asks for those from the first number that it lacks."""

    max_unfinished: ClassVar[int | None] = None
    """Limits of unfinished jobs of this kind: in all, and for one address."""
    max_of_client: ClassVar[int] = 0
    crowded: ClassVar[str] = ""
    """The error for a visitor who would exceed a limit."""

    def __init__(self, session: str, task: Task) -> None:
        self.id = uuid4().hex  # a secret: everyone who knows it can ask for the results
        self.visitor = Visitor(session)
        self.task = task
        self.length = 1  # the amount of work, in a unit of its kind
        self.next_seq = 0  # the number of the next news
        self.has_started = False  # whether it has received anything, if only a sentence
        self.status = ""  # the newest result if that is a sentence, else empty
        self.begun: float | None = None  # when its pair was in memory, by the monotonic clock
        self.stopping = Stop()
        self.over = False
        self.ending = Ending()
        self._stopped_at: float | None = None  # when the stop was noticed

    def add(self, item: Any) -> None:
        """Receive one result, in the queue's thread. Never waits."""
        self.has_started = True
        is_status = isinstance(item, str)
        has_pair = item is Status.READING or not is_status
        if self.begun is None and has_pair:
            self.begun = time.monotonic()
        if is_status:
            self.status = str(item)
            return
        self.status = ""
        self.take(item)
        self.next_seq += 1

    def take(self, item: Any) -> None:
        """Store a result as news number `next_seq`."""
        raise NotImplementedError

    def has_result(self) -> bool:
        """Whether it has a result to end with."""
        raise NotImplementedError

    def news(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
        """Return the news from number `seq` up to, but not including, `next_seq`, and the whole
        result if the job is over."""
        raise NotImplementedError

    @property
    def share(self) -> float | None:
        """The finished share, 0 to 1; None if it is unknown."""
        return None

    def state(self, waiting: str, seq: int = -1, *, hidden: bool = False) -> dict[str, Any]:
        """Return the news from number `seq`, for the visitor; -1 if the visitor knows nothing of
        the job. waiting: the reason why it waits. hidden: whether the browser shows another tab."""
        self.visitor.note_question(hidden=hidden)
        # Read in this order: news that came before its end are then among those before `next_seq`.
        over = self.over_for_visitor()
        self.ending.is_delivered = over
        next_seq = self.next_seq
        state = {
            "id": self.id,
            "over": over,
            "seq": seq,
            "next": next_seq,
            "status": waiting,
            "error": None,
            "remark": None,
        }
        if over:
            state["status"] = ""
            state["error"] = self.ending.error
            state["remark"] = self.ending.remark
        if next_seq != seq or over:
            state |= self.news(seq, next_seq, over=over)
        return state

    def is_abandoned(self) -> bool:
        """Whether nobody waits for its end."""
        return self.visitor.has_left()

    def seconds_since_stop(self) -> float:
        """Seconds since its stop was first noticed; 0 without one."""
        if not self.stopping.is_set():
            return 0.0
        self._stopped_at = self._stopped_at or time.monotonic()
        return time.monotonic() - self._stopped_at

    def over_for_visitor(self) -> bool:
        """Whether its visitor need not wait any longer: after a stop, a visitor waits for `GRACE`
        at most."""
        return self.over or self.seconds_since_stop() > GRACE

    def end_early(self, remark: str) -> None:
        """Stop it; it keeps the results that it has."""
        self.ending.remark = remark
        self.stopping.set()

    def refuse(self, sentence: str) -> None:
        """End it before it has begun. A recording may take its place."""
        self.ending.error = sentence
        self.ending.fall_back = True
        self.over = True

    def has_more(self) -> bool:
        """Whether another task of it follows, which is then in `task`. Called after a task has
        ended, in the queue's thread. Other jobs may have their turn in between."""
        return False

    def finish(self) -> None:
        """Called after the task has ended, in the queue's thread."""
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

    def add(self, item: Any) -> None:
        super().add(item)
        self.progress.status = str(item)

    def is_abandoned(self) -> bool:
        return False

    def has_result(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        if self.ending.error is None and not self.stopping.is_set():
            self.progress.succeed()
        else:
            self.progress.fail(self.ending.error or CLOSED)


class RunQuestion(Job):
    """A question about a run. tell: turns a result of its task into JSON for the browser; the
    answer is its "result". answer: the JSON so far."""

    def __init__(
        self, session: str, task: Task, tell: Callable[[Any], dict[str, Any]], **answer: Any
    ) -> None:
        super().__init__(session, task)
        self.answer = answer
        self._tell = tell

    def take(self, item: Any) -> None:
        self.answer = {**self.answer, **self._tell(item)}

    @property
    def share(self) -> float | None:
        done = self.answer.get("done")
        draws = self.answer.get("draws")
        if done is None or not draws:
            return None
        return float(done / draws)

    def has_result(self) -> bool:
        return "result" in self.answer

    def news(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
        return {**self.answer, "stopped": over and not self.has_result()}


class PromptReading(NamedTuple):
    """The part of a run before its first event: warming up and reading the prompt. length:
    characters of the prompt."""

    task: Task
    length: int


class Run(Job):
    """One visitor's run. Its news are the numbered events of the race.

    settings, lanes: as `RaceTask` has them. racing: whether an event of the race has come.
    size: the tokens that are kept.
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
    def reading(self) -> PromptReading:
        """The part before its first event."""
        return PromptReading(self.task, len(self.prompt))

    @property
    def is_forgotten(self) -> bool:
        """Whether its events were freed and cannot be fetched any more."""
        return self.next_seq > len(self._events)

    def take(self, item: Event) -> None:
        self._events.append(item)
        self._ended = isinstance(item, End)
        if isinstance(item, Round):
            self.size += len(item.tokens)
            self._emitted[item.lane][item.index :] = [len(item.emitted)]
        elif isinstance(item, Header):
            self._emitted = {name: [] for name in item.all_lanes}

    def add(self, item: Any) -> None:
        with self._adding:  # a visitor who has stopped it ends it from another thread
            if not self._ended:
                super().add(item)

    def news(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
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

    def over_for_visitor(self) -> bool:
        """As for any job, but at once if the race has not begun."""
        if self.over:
            return True
        if not self.stopping.is_set():
            return False
        if self.racing and not super().over_for_visitor():
            return False
        self.finish()
        return True

    def forget(self) -> None:
        """Free the memory of its events."""
        self._events = []
        self.size = 0

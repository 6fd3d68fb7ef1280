"""Jobs: what visitors want from the models. A job knows its task, its visitor and its results."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any
from uuid import uuid4

from ..core.events import End, EndReason, Header, Round
from ..lanes import BASELINE, LANES, Lane
from ..settings import Settings
from ..worker.tasks import READING, RaceTask, Task
from .requests import client_here, note_request
from .wire import Note, Update, encode_delta

PATIENCE = 15.0  # seconds without a request for updates after which a run's visitor has left
POLLED_PATIENCE = 10.0  # the same for a job that is asked for its news
HIDDEN_PATIENCE = 75.0  # and from a hidden tab, whose timers a browser runs once a minute
GRACE = 2.0  # seconds that a visitor waits, after Stop, for the current pass


class Job:
    """Something that a visitor wants from the models, which do one job at a time.

    length: how much is wanted, in a unit of its kind. said: the last sentence about it. client:
    the address of its visitor, if it is known. begun: when its pair was in memory, by the
    monotonic clock. stopped_at: when its stop was noticed, by the same clock. remark: why it ended
    early, if its visitor did not stop it. fall_back: whether a recording may take its place, since
    nothing is wrong with the request. delivered: whether the visitor has been told its end.
    """

    def __init__(self, session: str, task: Task) -> None:
        self.id = uuid4().hex  # a secret: everyone who knows it can ask for the results
        self.session = session
        self.client = client_here()
        self.task = task
        self.length = 1
        self.stopping = threading.Event()
        self.stopped_at: float | None = None
        self.begun: float | None = None
        self.said: str | None = None
        self.over = False
        self.error: str | None = None
        self.remark: str | None = None
        self.fall_back = False
        self.delivered = False
        # In the request that created the job, ZeroGPU finds the visitor's account, the log its id.
        note_request()
        self._context: Context | None = copy_context()

    def add(self, item: Any) -> None:
        """Receive one result, in the queue's thread. Never waits."""
        self.said = item if isinstance(item, str) else self.said
        if self.begun is None and (item == READING or not isinstance(item, str)):
            self.begun = time.monotonic()

    def abandoned(self) -> bool:
        """Whether its visitor seems to have left without stopping it."""
        return False

    def over_for_visitor(self) -> bool:
        """Whether its visitor need not wait any longer: whoever stopped it waits for `GRACE`."""
        if self.over or not self.stopping.is_set():
            return self.over
        self.stopped_at = self.stopped_at or time.monotonic()
        return time.monotonic() - self.stopped_at > GRACE

    def end_early(self, remark: str) -> None:
        """Stop it; it keeps the results that it has."""
        self.remark = remark
        self.stopping.set()

    def run_in_context(self, work: Callable[[], None]) -> None:
        """Do its work, or a piece of it, in the context of the visitor's request."""
        if self._context is None:
            work()
        else:
            self._context.run(work)

    def has_more(self) -> bool:
        """Whether its task was only a piece of it, and `task` is now the next one; called after the
        task has ended, in the queue's thread. Others may have their turn in between."""
        return False

    def finish(self) -> None:
        """Called after the task has ended, in the queue's thread."""

    def close(self) -> None:
        """End the job, whatever happened before."""
        try:
            self.finish()
        finally:
            self._context = None
            self.over = True


class Polled(Job):
    """A job whose visitor asks for its news, by the number of those that are known already.

    number: of the newest news. asked_at: when the visitor asked last, by the monotonic clock.
    """

    def __init__(self, session: str, task: Task) -> None:
        super().__init__(session, task)
        self.number = 0
        self.asked_at = time.monotonic()
        self._patience = POLLED_PATIENCE

    def add(self, item: Any) -> None:
        super().add(item)
        self.number += 1

    def abandoned(self) -> bool:
        return time.monotonic() - self.asked_at > self._patience

    def finish(self) -> None:
        if self.remark and not self.error and not self.has_result():
            self.error = self.remark

    def has_result(self) -> bool:
        """Whether it has found something that it can end with."""
        raise NotImplementedError

    def news(self, since: int, *, over: bool) -> dict[str, Any]:
        """What came after the news of number `since`, and all of the result if it is over."""
        raise NotImplementedError

    def state(self, waiting: str, since: int = -1, *, hidden: bool = False) -> dict[str, Any]:
        """The news after number `since`, for the browser. waiting: why it does not go on. hidden:
        whether the browser shows another tab."""
        self.asked_at = time.monotonic()
        self._patience = HIDDEN_PATIENCE if hidden else POLLED_PATIENCE
        over = self.delivered = self.over_for_visitor()
        number = self.number  # read first: what comes meanwhile is sent again
        state = {"id": self.id, "over": over, "version": number, "status": waiting}
        state |= {"error": self.error, "remark": self.remark}
        return state if number == since and not over else {**state, **self.news(since, over=over)}


class Run(Job):
    """One visitor's run: the queue's thread adds notes, the visitor's handler takes them.

    settings, lanes, memory: as `RaceTask` has them.
    racing: whether an event of the race has come. deltas: all that were sent to the browser.
    size: characters of them.
    """

    def __init__(
        self,
        session: str,
        pair: str,
        prompt: str,
        settings: Settings,
        lanes: Mapping[Lane, Settings] | None = None,
        memory: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__(session, RaceTask(pair, prompt, settings, lanes, memory))
        self.prompt, self.settings, self.lanes = prompt, settings, lanes
        names = (*lanes, BASELINE) if lanes else LANES
        self.length = settings.max_new_tokens * len(names) // len(LANES)  # tokens of each of two
        self.racing = False
        self.deltas: list[str] = []
        self.size = 0
        self._prompt_ids: list[int] = []
        self._ended = False
        self._asked: float | None = None  # when an update was asked for last
        # The ids of each round by lane: a round may be told again, in the place of itself and
        # all behind it.
        self._emitted: dict[Lane, list[list[int]]] = {name: [] for name in names}
        # The page limits the length of a run, so at most a note per token and lane waits here.
        self._notes: deque[Note] = deque()

    def add(self, item: Any) -> None:
        super().add(item)
        if self._ended:
            return
        self._notes.append(item)
        self.racing = self.racing or not isinstance(item, str)
        self._ended = isinstance(item, End)
        if isinstance(item, Round):
            self._emitted[item.lane][item.index :] = [[t.id for t in item.emitted]]
        elif isinstance(item, Header):
            self._prompt_ids = list(item.prompt_ids)
            self._emitted = {name: [] for name in item.all_lanes}

    @property
    def ids(self) -> list[int]:
        """The ids of the prompt, and of what the first lane has written."""
        first = next(iter(self._emitted.values()))
        return [*self._prompt_ids, *(one for ids in first for one in ids if one >= 0)]

    def abandoned(self) -> bool:
        return self._asked is not None and time.monotonic() - self._asked > PATIENCE

    def finish(self) -> None:
        if self.racing and not self._ended and not self.error:
            self._ended = True
            self._notes.append(End({lane: self._reason(lane) for lane in self._emitted}))

    def _reason(self, lane: Lane) -> EndReason:
        complete = sum(map(len, self._emitted[lane])) >= self.settings.max_new_tokens
        return "length" if complete else "stopped"

    def next_update(self) -> Update | None:
        """What is new since the last call; None if nothing is."""
        now = time.monotonic()
        self._asked = now
        # `over` is read first: notes that were added before it was set are then in the deque.
        over = self.over or self.over_for_visitor()
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        if not (notes or over):
            return None
        self.delivered = over
        return self.update(*notes, over=over)

    def over_for_visitor(self) -> bool:
        """As for any job, and at once if it does not race yet."""
        if self.over or (self.racing and not super().over_for_visitor()):
            return self.over
        if self.stopping.is_set():
            self.finish()
        return self.stopping.is_set()

    def update(self, *notes: Note, over: bool = False) -> Update:
        """An update with these notes; the last one says how the run ended."""
        return Update(
            notes,
            over,
            error=self.error if over else None,
            fall_back=self.fall_back and not self.racing,
            remark=self.remark if over else None,
        )

    def delta(self, update: Update) -> str:
        """An update as the next delta, which is kept in `deltas`."""
        delta = encode_delta(self.id, len(self.deltas), update)
        self.deltas.append(delta)
        self.size += len(delta)
        return delta

    def forget_deltas(self) -> None:
        """Free their memory: the browser can then not ask for them again."""
        self.deltas, self.size = [], 0

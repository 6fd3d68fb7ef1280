"""What visitors want from the models: a job knows its task, what came of it, and who listens."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any
from uuid import uuid4

from ..settings import Settings
from ..trace import LANES, End, EndReason, Lane, Round
from ..worker.tasks import READING, RaceTask, Task
from .wire import Note, encode_delta

PATIENCE = 15.0  # seconds; a run whose deltas nobody has taken for so long has lost its visitor
GRACE = 2.0  # seconds a visitor waits, after Stop, for a pass under way


class Job:
    """Something that a visitor wants from the models, which do one thing at a time.

    begun: when its pair was in memory, by the monotonic clock. remark: why it was cut short, if
    not by its visitor.
    """

    def __init__(self, session: str, task: Task) -> None:
        self.id = uuid4().hex  # not to be guessed: whoever knows it may ask for what it made
        self.session = session
        self.task = task
        self.stopping = threading.Event()
        self.stopped_at: float | None = None  # when the engine saw that, by the monotonic clock
        self.begun: float | None = None
        self.over = False
        self.error: str | None = None
        self.remark: str | None = None
        self.fall_back = False  # to a recording: nothing is wrong with what was asked for
        # Whose GPU time it is, ZeroGPU reads from the request that is being answered.
        self._context: Context | None = copy_context()

    def take(self, item: Any) -> bool:
        """Receive one result, in the engine's thread; never waits. False to have no more."""
        if self.begun is None and (item == READING or not isinstance(item, str)):
            self.begun = time.monotonic()
        return not self.stopping.is_set()

    def abandoned(self) -> bool:
        """Whether its visitor seems to have left without a word."""
        return False

    def cut(self, remark: str) -> None:
        """Have it end with what it has."""
        self.remark = remark
        self.stopping.set()

    def inside(self, work: Callable[[], None]) -> None:
        """Do its work in the context in which the visitor asked for it, which is then let go."""
        context, self._context = self._context, None
        if context is None:
            work()
        else:
            context.run(work)

    def finish(self) -> None:
        """Called once the task has ended, in the engine's thread."""

    def close(self) -> None:
        """The end, whatever happened before."""
        try:
            self.finish()
        finally:
            self._context = None
            self.over = True


class Run(Job):
    """One visitor's run: the engine's thread adds notes, the visitor's handler takes them."""

    def __init__(self, session: str, pair: str, prompt: str, settings: Settings) -> None:
        super().__init__(session, RaceTask(pair, prompt, settings))
        self.prompt, self.settings = prompt, settings
        self.racing = False
        self.told = False
        self.deltas: list[str] = []
        self.size = 0  # characters of them
        self._ended = False
        self._asked: float | None = None  # when the last delta was
        self._emitted: dict[Lane, int] = dict.fromkeys(LANES, 0)
        # The length limit of the page bounds it: a round per token, two lanes.
        self._notes: deque[Note] = deque()

    def take(self, item: Any) -> bool:
        wanted = super().take(item)
        if self._ended:
            return False
        self._notes.append(item)
        self.racing = self.racing or not isinstance(item, str)
        self._ended = isinstance(item, End)
        if isinstance(item, Round):
            self._emitted[item.lane] += len(item.emitted)
        return wanted

    def abandoned(self) -> bool:
        return self._asked is not None and time.monotonic() - self._asked > PATIENCE

    def finish(self) -> None:
        if self.racing and not self._ended and not self.error:
            self._ended = True
            self._notes.append(End({lane: self._reason(lane) for lane in LANES}))

    def _reason(self, lane: Lane) -> EndReason:
        whole = self._emitted[lane] >= self.settings.max_new_tokens
        return "length" if whole else "stopped"

    def next_delta(self) -> str | None:
        """All notes since the last call as one delta; None if there is nothing new."""
        now = time.monotonic()
        self._asked = now
        # `over` is read first: notes added before it was set are then surely in the queue.
        over = self.over
        if not over and self.stopping.is_set():
            over = self._is_over_for_visitor(now)
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        if not (notes or over):
            return None
        self.told = over
        return self.say(*notes, over=over)

    def _is_over_for_visitor(self, now: float) -> bool:
        """Whether whoever stopped it need not wait for its end: at once if it has not begun to
        race, and soon in any case."""
        self.stopped_at = self.stopped_at or now
        if self.racing and now - self.stopped_at < GRACE:
            return False
        self.finish()
        return True

    def say(self, *notes: Note, over: bool = False) -> str:
        """A delta of these notes, with the next number."""
        delta = encode_delta(
            self.id,
            len(self.deltas),
            notes,
            error=self.error if over else None,
            remark=self.remark if over else None,
            over=over,
            fall_back=self.fall_back and not self.racing,
        )
        self.deltas.append(delta)
        self.size += len(delta)
        return delta

    def forget_deltas(self) -> None:
        """Free their memory: they can then not be asked for again."""
        self.deltas, self.size = [], 0

"""Runs of visitors: one engine thread decodes them in turn, each handler drains its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from ..errors import SpecvizError
from ..settings import Settings
from ..tasks import LoadTask, RaceTask, Task
from ..trace import LANES, End
from ..worker import FAILED, Worker
from .wire import Note, encode_delta

log = logging.getLogger(__name__)

TICK = 0.1  # seconds between deltas; each costs the browser a frame, and a core may be short
HEARTBEAT = 0.5  # seconds after which an empty delta goes out, so that a closed tab is noticed
WARMING = "Warming both lanes up and reading the prompt."
KEPT_RUNS = 16  # finished runs whose deltas can still be asked for


class Job:
    """Something that a visitor wants from the models, which do one thing at a time."""

    def __init__(self, session: str, task: Task) -> None:
        self.id = uuid4().hex  # not to be guessed: whoever knows it may ask for what it made
        self.session = session
        self.task = task
        self.stopping = threading.Event()
        self.over = False
        self.error: str | None = None

    def take(self, item: Any) -> bool:
        """Receive one result, in the engine's thread; never waits. False to have no more."""
        return not self.stopping.is_set()

    def finish(self) -> None:
        """Called once the task has ended, in the engine's thread."""


class Run(Job):
    """One visitor's run: the engine's thread adds notes, the visitor's handler takes them."""

    def __init__(self, session: str, pair: str, prompt: str, settings: Settings) -> None:
        super().__init__(session, RaceTask(pair, prompt, settings))
        self.prompt, self.settings = prompt, settings
        self.racing = False
        self.told = False
        self.deltas: list[str] = []
        self._ended = False
        # The length limit of the page bounds it: a round per token, two lanes.
        self._notes: deque[Note] = deque()

    def take(self, item: Any) -> bool:
        self._notes.append(item)
        self.racing = self.racing or not isinstance(item, str)
        self._ended = isinstance(item, End)
        return super().take(item)

    def finish(self) -> None:
        if self.racing and not self._ended and not self.error:
            self._notes.append(End({lane: "stopped" for lane in LANES}))

    def next_delta(self) -> str | None:
        """All notes since the last call as one delta; None if there is nothing new."""
        # `over` is read first: notes added before it was set are then surely in the queue. A run
        # that was stopped while it waited is over for its visitor before its turn comes.
        over = self.over or (self.stopping.is_set() and not self.racing)
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        if not (notes or over):
            return None
        self.told = over
        return self.say(*notes, over=over)

    def say(self, *notes: Note, over: bool = False) -> str:
        """A delta of these notes, with the next number."""
        error = self.error if over else None
        delta = encode_delta(self.id, len(self.deltas), notes, error=error, over=over)
        self.deltas.append(delta)
        return delta


class Engine:
    """The line of waiting jobs. One thread hands them to the worker in turn, so no two runs
    share the device and each has it to itself."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._line: deque[Job] = deque()
        self._wake = threading.Condition()
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._said = WARMING  # of what is under way and nobody's job

    def start(self, pair: str) -> None:
        """Start the thread; it has `pair` loaded before the first run asks for it."""
        threading.Thread(target=self._work, args=(pair,), name="engine", daemon=True).start()

    def submit(self, run: Job) -> None:
        """Put a run at the end of the line. A visitor's earlier run stops."""
        self.stop(run.session)
        with self._wake:
            self._kept[run.id] = run
            self._line.append(run)
            self._forget_old()
            self._wake.notify()

    def stop(self, session: str) -> None:
        """Stop whatever this visitor has running or waiting."""
        with self._wake:
            for run in self._kept.values():
                if run.session == session:
                    run.stopping.set()

    def missed(self, run_id: str, seq: int) -> list[str]:
        """The deltas of a run from number `seq` on; none of a run that is forgotten."""
        run = self._kept.get(run_id)
        return run.deltas[max(0, seq) :] if isinstance(run, Run) else []

    def job(self, job_id: str) -> Job | None:
        """A job by its id, unless it is forgotten."""
        return self._kept.get(job_id)

    def waiting(self, run: Job) -> str:
        """Why a run has not started, in one sentence."""
        with self._wake:
            ahead = self._line.index(run) if run in self._line else 0
        if ahead:
            others = "1 other run is" if ahead == 1 else f"{ahead} other runs are"
            return (
                f"{others} ahead of yours: each has the machine to itself, yours is next in line."
            )
        return self._said

    def _forget_old(self) -> None:
        over = [key for key, run in self._kept.items() if run.over]
        for key in over[: max(0, len(self._kept) - KEPT_RUNS)]:
            del self._kept[key]

    def _work(self, pair: str) -> None:
        try:
            self._worker.run(LoadTask(pair), self._hear)
        except SpecvizError:
            log.warning("the pair %r could not be loaded ahead of a run", pair, exc_info=True)
        self._said = WARMING
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._line))
                job = self._line[0]
            self._do(job)
            with self._wake:
                self._line.popleft()

    def _hear(self, sentence: Any) -> bool:
        self._said = str(sentence)
        return True

    def _do(self, job: Job) -> None:
        try:
            if not job.stopping.is_set():
                self._worker.run(job.task, job.take)
        except SpecvizError as error:
            log.info("a task was refused: %s", error)
            job.error = str(error)
        except Exception:
            log.exception("a task failed")
            job.error = FAILED
        finally:
            job.finish()
            job.over = True


def deltas(engine: Engine, run: Run) -> Iterator[str]:
    """The deltas of a run, at most one per tick, until it is over. Closing it stops the run."""
    said = "Getting ready."
    yield run.say(said)
    engine.submit(run)
    heard = time.monotonic()
    try:
        while not run.told:
            time.sleep(TICK)
            delta = run.next_delta()
            if delta is None:
                sentence = said if run.racing else engine.waiting(run)
                if sentence != said or time.monotonic() - heard > HEARTBEAT:
                    delta = run.say(*([] if run.racing else [sentence]))
                    said = sentence
            if delta is not None:
                heard = time.monotonic()
                yield delta
    finally:
        run.stopping.set()

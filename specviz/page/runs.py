"""Runs of visitors: one engine thread decodes them in turn, each handler drains its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeAlias
from uuid import uuid4

from ..errors import SpecvizError
from ..settings import Settings
from ..trace import LANES, End, Event
from .wire import Note, encode_delta

log = logging.getLogger(__name__)

TICK = 0.05  # seconds between deltas
HEARTBEAT = 0.5  # seconds after which an empty delta goes out, so that a closed tab is noticed
KEPT_RUNS = 16  # finished runs whose deltas can still be asked for
GENERAL_ERROR = (
    "Something went wrong that is not your fault. The log has the details; press Run to try again."
)

Load: TypeAlias = Callable[[str], Any]
Race: TypeAlias = Callable[[Any, str, Settings], Iterator[Event]]


class Job:
    """Something that a visitor wants from the engine thread, which has one turn at a time."""

    def __init__(self, session: str, pair: str, prompt: str, settings: Settings) -> None:
        self.id = uuid4().hex  # not to be guessed: whoever knows it may ask for what it made
        self.session = session
        self.pair = pair
        self.prompt = prompt
        self.settings = settings
        self.stopping = threading.Event()
        self.over = False
        self.error: str | None = None

    def work(self, pair: Any, race: Race) -> None:
        """Do it, in the engine thread; ends soon after `stopping` is set."""
        raise NotImplementedError


class Run(Job):
    """One visitor's run: the engine thread adds notes, the visitor's handler takes them."""

    def __init__(self, session: str, pair: str, prompt: str, settings: Settings) -> None:
        super().__init__(session, pair, prompt, settings)
        self.racing = False
        self.told = False
        self.deltas: list[str] = []
        # The length limit of the page bounds it: a round per token, two lanes.
        self._notes: deque[Note] = deque()

    def work(self, pair: Any, race: Race) -> None:
        with closing(race(pair, self.prompt, self.settings)) as events:  # type: ignore[type-var]
            for event in events:
                self.add(event)
                if self.stopping.is_set() and not isinstance(event, End):
                    self.add(End({lane: "stopped" for lane in LANES}))
                    return

    def add(self, note: Note) -> None:
        """Called by the engine thread; never waits."""
        self._notes.append(note)
        self.racing = True

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
    """Holds the loaded pairs and the line of waiting runs. One thread decodes for everyone, so
    the runs never share the device and each has it to itself."""

    def __init__(self, load: Load, race: Race) -> None:
        self._load = load
        self._race = race
        self._pairs: dict[str, Any] = {}
        self._line: deque[Job] = deque()
        self._wake = threading.Condition()
        self._kept: OrderedDict[str, Job] = OrderedDict()

    def start(self, pair: str) -> None:
        """Start the thread; it loads `pair` before the first run asks for it."""
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
        if run.pair not in self._pairs:
            return "Loading the two models: this happens once."
        return "Warming both lanes up and reading the prompt."

    def _forget_old(self) -> None:
        over = [key for key, run in self._kept.items() if run.over]
        for key in over[: max(0, len(self._kept) - KEPT_RUNS)]:
            del self._kept[key]

    def _work(self, pair: str) -> None:
        try:
            self._pair(pair)
        except Exception:
            log.warning("the pair %r could not be loaded ahead of a run", pair, exc_info=True)
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._line))
                run = self._line[0]
            self._decode(run)
            with self._wake:
                self._line.popleft()

    def _decode(self, run: Job) -> None:
        try:
            if not run.stopping.is_set():
                run.work(self._pair(run.pair), self._race)
        except SpecvizError as error:
            log.info("a run was refused: %s", error)
            run.error = str(error)
        except Exception:
            log.exception("a run failed")
            run.error = GENERAL_ERROR
        finally:
            run.over = True

    def _pair(self, name: str) -> Any:
        if name not in self._pairs:
            self._pairs[name] = self._load(name)
        return self._pairs[name]


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

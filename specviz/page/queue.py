"""The line of visitors' jobs: one engine thread does them in turn, each handler drains its own."""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from ..errors import NoGpuError, SpecvizError
from ..worker.client import FAILED, Asking, Wish, Worker
from ..worker.limits import Limits
from ..worker.tasks import READING, LoadTask, Machine, MachineTask
from .jobs import Job, Run

log = logging.getLogger(__name__)

TICK = 0.1  # seconds between deltas; each costs the browser a frame, and a core may be short
HEARTBEAT = 0.5  # seconds after which an empty delta goes out, so that a closed tab is noticed
KEPT_RUNS = 16  # finished runs whose deltas can still be asked for
MOST_KEPT = 32 * 2**20  # characters of these deltas
REMEMBERED = 9  # past jobs whose durations tell how long the next will take


class Engine:
    """The line of waiting jobs. One thread hands them to the worker in turn, so no two runs
    share the device and each has it to itself."""

    def __init__(self, worker: Worker, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self.machine: Machine | None = None  # what models run on, once the worker has looked
        self._worker = worker
        self._line: deque[Job] = deque()
        self._doing: Job | None = None
        self._since = 0.0  # when that was begun, by the monotonic clock
        self._took: dict[type, deque[float]] = {}  # seconds of past jobs, by kind
        self._wake = threading.Condition(threading.RLock())
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._said = READING  # of what is under way and nobody's job
        self._thread: threading.Thread | None = None

    def start(self, pair: str) -> None:
        """Start the thread; it has `pair` loaded before the first run asks for it."""
        self._start_thread(pair)

    def submit(self, job: Job) -> None:
        """Put a job at the end of the line. A visitor's earlier one stops.

        Raises `SpecvizError` if the line is full.
        """
        self.stop(job.session)
        with self._wake:
            self.tend()
            waiting = len(self._line)
            # Whoever meets an idle engine never waits, so has no need of a place.
            if waiting >= self.limits.waiting and (waiting or self._doing):
                raise SpecvizError(self._full(waiting))
            self._kept[job.id] = job
            self._line.append(job)
            self._forget_old()
            self._wake.notify()

    def stop(self, session: str) -> None:
        """Stop whatever this visitor has running or waiting."""
        with self._wake:
            for job in [one for one in self._kept.values() if one.session == session]:
                self.leave(job)

    def leave(self, job: Job) -> None:
        """Nobody wants this job any more: it ends soon, and at once if it is still waiting."""
        job.stopping.set()
        with self._wake:
            if job in self._line:
                self._line.remove(job)
                job.close()

    def missed(self, run_id: str, seq: int) -> list[str]:
        """The deltas of a run from number `seq` on; none of a run that is forgotten."""
        run = self._kept.get(run_id)
        return run.deltas[max(0, seq) :] if isinstance(run, Run) else []

    def job(self, job_id: str) -> Job | None:
        """A job by its id, unless it is forgotten."""
        return self._kept.get(job_id)

    def waiting(self, job: Job) -> str:
        """Why a job has not started, in one sentence."""
        with self._wake:
            self.tend()
            if job not in self._line:
                return self._said
            place = self._line.index(job)
            ahead = place + (self._doing is not None)
            if not ahead:
                return self._said
            wait = self._wait(place)
        runs = "1 other run is" if ahead == 1 else f"{ahead} other runs are"
        return f"{runs} ahead of yours{_about(wait)}."

    def tend(self) -> None:
        """Drop jobs whose visitors are gone, and replace the thread if it has died."""
        with self._wake:
            for job in [one for one in self._line if one.stopping.is_set() or one.abandoned()]:
                self.leave(job)
            if self._thread is not None and not self._thread.is_alive():
                log.error("the engine's thread died: it is replaced")
                victim, self._doing = self._doing, None
                if victim is not None and not victim.over:
                    victim.error = victim.error or FAILED
                    victim.close()
                self._start_thread(None)

    def _wait(self, place: int) -> float | None:
        """Seconds until the job at this place of the line begins; None if nobody knows."""
        expected = [self._expected(job) for job in list(self._line)[:place]]
        if self._doing is not None:
            whole = self._expected(self._doing)
            gone = time.monotonic() - self._since
            expected.append(None if whole is None else max(0.0, whole - gone))
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None

    def _expected(self, job: Job) -> float | None:
        """Seconds that a job takes, to judge by those of its kind."""
        took = self._took.get(type(job))
        return min(statistics.median(took), self.limits.seconds) if took else None

    def _full(self, waiting: int) -> str:
        wait = _about(self._wait(waiting))
        return (
            f"{waiting} runs are waiting already{wait}, and the line holds no more: play a "
            "recording meanwhile, and press Run again in a minute."
        )

    def _forget_old(self) -> None:
        over = [job for job in self._kept.values() if job.over]
        for job in over[: max(0, len(self._kept) - KEPT_RUNS)]:
            del self._kept[job.id]
        runs = [job for job in reversed(self._kept.values()) if isinstance(job, Run)]
        size = 0
        for run in runs:
            size += run.size
            if size > MOST_KEPT and run.over:
                run.forget_deltas()

    def _start_thread(self, pair: str | None) -> None:
        self._thread = threading.Thread(target=self._work, args=(pair,), name="engine", daemon=True)
        self._thread.start()

    def _work(self, pair: str | None) -> None:
        if pair is not None:
            self._prepare(pair)
        self._said = READING
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._line))
                job = self._doing = self._line.popleft()
                self._since = time.monotonic()
            self._do(job)
            with self._wake:
                if job.begun is not None:
                    took = self._took.setdefault(type(job), deque(maxlen=REMEMBERED))
                    took.append(time.monotonic() - self._since)
                self._doing = None

    def _prepare(self, pair: str) -> None:
        try:
            self._worker.run(MachineTask(), self._see)
            self._worker.run(LoadTask(pair), self._hear)
        except SpecvizError:
            log.warning("the pair %r could not be loaded ahead of a run", pair, exc_info=True)
        except Exception:
            log.exception("the pair %r could not be loaded ahead of a run", pair)

    def _see(self, machine: Any) -> bool:
        self.machine = machine
        return True

    def _hear(self, sentence: Any) -> bool:
        self._said = str(sentence)
        return True

    def _do(self, job: Job) -> None:
        def take(item: Any) -> bool:
            return job.take(item) and self._wish(job) == "go on"

        asking = Asking(take, lambda: self._wish(job))
        try:
            if not job.stopping.is_set():
                job.inside(lambda: self._worker.run(job.task, asking))
        except SpecvizError as error:
            log.info("a task was refused: %s", error)
            job.error, job.fall_back = str(error), isinstance(error, NoGpuError)
        except BaseException:  # whatever it was, the next in line must not wait for ever
            log.exception("a task failed")
            job.error = FAILED
        finally:
            job.close()

    def _wish(self, job: Job) -> Wish:
        """What is wanted of the job under way by now."""
        now = time.monotonic()
        if job.abandoned():
            job.stopping.set()
        elif job.begun is not None and now - job.begun > self.limits.seconds:
            job.cut(_cut_short(self.limits.seconds))
        if not job.stopping.is_set():
            return "go on"
        job.stopped_at = job.stopped_at or now
        # A pair that is being loaded may be what the next in line wants.
        useful = job.begun is None and not self._another_pair_wanted(job.task.pair)
        late = now - job.stopped_at > self.limits.stop_seconds
        return "drop" if late and not useful else "end"

    def _another_pair_wanted(self, pair: str) -> bool:
        with self._wake:
            return any(job.task.pair != pair for job in self._line)


def _about(seconds: float | None) -> str:
    """A wait in words that follow what is waited for."""
    if seconds is None:
        return ""
    return (
        f", about {max(1, round(seconds))} s" if seconds < 90 else f", about {seconds / 60:.0f} min"
    )


def _cut_short(seconds: float) -> str:
    return f"A run may take {seconds:g} s here, so this one ended with what it had."


def deltas(engine: Engine, run: Run) -> Iterator[str]:
    """The deltas of a run, at most one per tick, until it is over. Closing it stops the run."""
    said = "Getting ready."
    yield run.say(said)
    try:
        engine.submit(run)
    except SpecvizError as refusal:
        run.error, run.fall_back = str(refusal), True
        yield run.say(over=True)
        return
    heard = time.monotonic()
    try:
        while not run.told:
            time.sleep(TICK)
            delta = run.next_delta()
            if delta is None:
                sentence = said if run.racing else engine.waiting(run)
                if sentence != said or time.monotonic() - heard > HEARTBEAT:
                    engine.tend()
                    delta = run.say(*([] if run.racing else [sentence]))
                    said = sentence
            if delta is not None:
                heard = time.monotonic()
                yield delta
    finally:
        engine.leave(run)

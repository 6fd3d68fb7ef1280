"""The queue of runs: one thread gives them to the worker one after the other."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from ..base.environment import BUILTIN
from ..base.errors import NoGpuError, SpecvizError
from ..base.logs import brief
from ..base.variables import MAX_PER_CLIENT, MAX_SECONDS, MAX_WAITING, STOP_SECONDS
from ..worker.client import Worker, results_of
from ..worker.failures import FAILED
from ..worker.tasks import Host, MachineTask
from .durations import about
from .estimates import Estimates
from .jobs import Ending, Job, LoadJob, Run
from .loads import LoadProgress

log = logging.getLogger(__name__)

MAX_KEPT_JOBS = 16  # that can still be asked for
MAX_KEPT_TOKENS = 4_000  # of finished runs; each takes two or three KiB
CLOSING = "The server is being restarted: press Run again in a minute."
STARTING = "Getting the models ready."
WAITING = "Your run starts when they are ready."
FULL = (
    "{} runs are waiting already{}, and the queue is full: play a recording meanwhile, and press "
    "Run again in a minute."
)
OWN_ENDS = "Your earlier run is ending; this one comes next."
CUT_BY_LIMIT = "Runs are limited to {:g} s here, so this one ended early; its results are kept."
SHARE_USED = (
    "The limit of waiting runs for your network is reached: play a recording meanwhile, and press "
    "Run again in a minute."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one visitor on a page that others share; a variable sets each of them.

    seconds: time limit of a run, counted from the moment its pair is in memory. waiting: the most
    runs and experiments in the queue, besides the current one. per_client: the most of them from
    one address. stop_seconds: how long the models' process may ignore a stop before it is
    replaced.
    """

    seconds: float = MAX_SECONDS.default
    waiting: int = MAX_WAITING.default
    per_client: int = MAX_PER_CLIENT.default
    stop_seconds: float = STOP_SECONDS.default

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The limits, with defaults where no variable is set. Raises `SettingsError`."""
        return cls(
            seconds=MAX_SECONDS.read(environment),
            waiting=MAX_WAITING.read(environment),
            per_client=MAX_PER_CLIENT.read(environment),
            stop_seconds=STOP_SECONDS.read(environment),
        )


class RunQueue:
    """Jobs that wait for the models, and the thread that runs them one at a time, so that runs
    never share the device.

    limits: the page's limits. machine: where the models run, once the worker has reported it.
    current: the running job. page_pair: the pair that the page opens with. page_load: its last
    load, None without one. closing: whether the server is about to end. answered: whether the
    models have loaded a pair or finished a job without an error.
    """

    def __init__(self, worker: Worker, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self.machine: Host | None = None
        self.page_load: LoadProgress | None = None
        self.page_pair = BUILTIN
        self._worker = worker
        self._waiting: deque[Job] = deque()
        self.current: Job | None = None
        self._estimates = Estimates()
        self._wake = threading.Condition(threading.RLock())
        self._jobs: OrderedDict[str, Job] = OrderedDict()  # waiting, current and finished, by id
        self._thread: threading.Thread | None = None
        self.closing = False
        self.answered = False

    def jobs(self) -> list[Job]:
        """The jobs that wait, run or have ended not long ago."""
        with self._wake:
            return list(self._jobs.values())

    @property
    def visitors_job(self) -> Job | None:
        """The current job, unless that is a load, which no visitor has asked for."""
        current = self.current
        if isinstance(current, LoadJob):
            return None
        return current

    def start(self, pair: str | None = None) -> None:
        """Start the thread, which first loads `pair`, before any run asks for it."""
        if pair is not None:
            self.open_with(pair)
        self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._work, name="queue", daemon=True)
        self._thread.start()

    def open_with(self, pair: str) -> None:
        """Make the page open with another pair from now on. The pair is loaded after the jobs that
        now wait."""
        progress = LoadProgress(pair)
        with self._wake:
            self.page_pair = pair
            self.page_load = progress
            self._waiting.append(LoadJob(progress))
            self._wake.notify()

    def submit(self, job: Job) -> None:
        """Add a job at the end of the queue and stop the visitor's earlier one.

        Raises `SpecvizError` if the queue is full or has too many jobs of this client, or if the
        server is about to end.
        """
        self.stop(job.visitor.session)
        with self._wake:
            if self.closing:
                raise SpecvizError(CLOSING)
            self.clean_up()
            waiting = sum(not isinstance(other, LoadJob) for other in self._waiting)
            # If nothing runs, the job begins at once and needs no place in the queue.
            if waiting >= self.limits.waiting and (waiting or self.visitors_job):
                wait = about(self._wait(list(self._waiting)))
                raise SpecvizError(FULL.format(waiting, wait))
            if _is_share_used(job, self._waiting, self.limits.per_client):
                raise SpecvizError(SHARE_USED)
            self._check_kind(job)
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._forget_old()
            self._wake.notify()

    def _check_kind(self, job: Job) -> None:
        """Raise `SpecvizError` if there are too many jobs of this kind."""
        if job.max_unfinished is None:
            return
        unfinished = [other for other in self._jobs.values() if not other.over]
        same = [other for other in unfinished if type(other) is type(job)]
        are_too_many = len(same) >= job.max_unfinished
        if are_too_many or _is_share_used(job, same, job.max_of_client):
            raise SpecvizError(job.crowded)

    def refuse_from_now_on(self) -> None:
        """Refuse all further jobs, and those that wait."""
        with self._wake:
            self.closing = True
            for job in list(self._waiting):
                job.ending = Ending(error=CLOSING, fall_back=True)
                self.cancel(job)

    def stop(self, session: str) -> None:
        """Stop what this visitor has running or waiting."""
        with self._wake:
            for job in list(self._jobs.values()):
                if job.visitor.session == session:
                    self.cancel(job)

    def cancel(self, job: Job) -> None:
        """Stop a job: it ends soon, and at once if it is still waiting."""
        job.stop()
        with self._wake:
            if job in self._waiting:
                self._waiting.remove(job)
                job.close()

    def job(self, job_id: str) -> Job | None:
        """The job with this id, unless it is forgotten."""
        return self._jobs.get(job_id)

    def status_of(self, job: Job) -> str:
        """What a job is waiting for or doing, as one sentence; empty while its results come."""
        with self._wake:
            if job not in self._waiting:
                if not job.has_answered:
                    return STARTING
                return job.status
            ahead = self._ahead_of(job)
            current = self.current
            wait = self._wait(ahead)
        if current is not None:
            ahead.append(current)
        runs = [other for other in ahead if not isinstance(other, LoadJob)]
        others = sum(other.visitor.session != job.visitor.session for other in runs)
        if not others:
            return _status_behind_own(current)
        others_ahead = f"{others} other runs are"
        if others == 1:
            others_ahead = "1 other run is"
        return f"{others_ahead} ahead of yours{about(wait)}."

    def seconds_to_first_event(self, run: Run) -> float | None:
        """Estimate the seconds until a run's first event; None if they are unknown."""
        with self._wake:
            wait = None
            if run in self._waiting:
                wait = self._wait(self._ahead_of(run))
            return self._estimates.first_event(run, wait)

    def _ahead_of(self, job: Job) -> list[Job]:
        """The jobs that wait before a waiting job."""
        waiting = list(self._waiting)
        return waiting[: waiting.index(job)]

    def _wait(self, ahead: list[Job]) -> float | None:
        """Estimate the seconds until the current job and those ahead have ended; None if they are
        unknown."""
        return self._estimates.wait(ahead, self.current, self.limits.seconds)

    def clean_up(self) -> None:
        """Remove waiting jobs whose visitors have left, and replace the thread if it died."""
        with self._wake:
            for job in list(self._waiting):
                if job.stopping.is_set() or job.is_abandoned():
                    self.cancel(job)
            if self._thread is not None and not self._thread.is_alive():
                log.error("the queue's thread died: it is replaced")
                victim = self.current
                self.current = None
                if victim is not None and not victim.over:
                    victim.ending.error = victim.ending.error or FAILED
                    victim.close()
                self._start_thread()

    def _forget_old(self) -> None:
        over = [job for job in self._jobs.values() if job.over]
        excess = max(0, len(self._jobs) - MAX_KEPT_JOBS)
        for job in over[:excess]:
            del self._jobs[job.id]
        size = 0
        for job in reversed(self._jobs.values()):
            if not isinstance(job, Run):
                continue
            size += job.size
            if size > MAX_KEPT_TOKENS and job.over:
                job.forget()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._waiting))
                job = self._waiting.popleft()
                self.current = job
                job.start()
            self._run_job(job)
            with self._wake:
                self._estimates.note_end(job)
                self.current = None

    def _run_job(self, job: Job) -> None:
        try:
            # Also what is logged belongs to the visitor's request.
            job.visitor.context.run(self._run_task, job)
        finally:
            if not self._requeue(job):
                job.close()

    def _requeue(self, job: Job) -> bool:
        """Move an unfinished job to the end of the queue, and return whether there was one."""
        with self._wake:
            must_end = self.closing or job.stopping.is_set() or job.ending.error is not None
            task = job.next_task()
            if must_end or task is None:
                return False
            job.continue_with(task)
            self._waiting.append(job)
            return True

    def _run_task(self, job: Job) -> None:
        """Run a job's task, and note the sentence for its visitor if that fails."""
        try:
            if not job.stopping.is_set():
                if self.machine is None and isinstance(job, LoadJob):
                    (self.machine,) = results_of(self._worker, MachineTask())
                self._collect(job)
                self.answered = True
        except SpecvizError as error:
            log.info("a task was refused: %s", brief(error))
            job.ending.error = str(error)
            job.ending.fall_back = isinstance(error, NoGpuError)
        except BaseException:  # even after a SystemExit the next job must run
            log.exception("a task failed")
            job.ending.error = FAILED

    def _collect(self, job: Job) -> None:
        """Give a job the results of its task, until the task ends or must be given up."""
        with closing(self._worker.run(job.task, job.stopping)) as results:
            for result in results:
                if result is not None:
                    job.add(result)
                    self._estimates.note_result(job)
                self._stop_if_due(job)
                if self._ignores_stop(job):
                    return

    def _stop_if_due(self, job: Job) -> None:
        """Stop the current job if its visitor has left or its time is over."""
        if job.is_abandoned():
            job.stop()
            return
        if job.ready_at is None:
            return
        spent = time.monotonic() - job.ready_at
        if spent > self.limits.seconds:
            job.end_early(CUT_BY_LIMIT.format(self.limits.seconds))

    def _ignores_stop(self, job: Job) -> bool:
        """Whether the current job was stopped long ago and nobody needs its end. To give it up
        replaces the models' process, which must load the pair again."""
        if not job.stopping.is_set():
            return False
        is_ready = job.ready_at is not None
        patience = self.limits.stop_seconds
        if is_ready:
            patience = max(patience, self._estimates.load_seconds)
        if job.seconds_since_stop() <= patience:
            return False
        # The next job may want the pair that is being loaded.
        with self._wake:
            another_wanted = any(other.task.pair != job.task.pair for other in self._waiting)
        return is_ready or another_wanted


def _status_behind_own(current: Job | None) -> str:
    """The sentence for a visitor whose job waits behind no other visitor's. current: a load, or the
    same visitor's earlier job, if it has not ended yet."""
    if current is None:
        return STARTING
    if isinstance(current, LoadJob):
        if not current.has_answered:
            return STARTING
        return f"{current.progress.phase} {WAITING}"
    if current.ready_at is None and current.status:  # its load, which this one may need
        return current.status
    return OWN_ENDS


def _is_share_used(job: Job, others: Iterable[Job], limit: int) -> bool:
    """Whether an address has as many of these jobs as it may. An unknown address has no limit."""
    client = job.visitor.client
    if not client:
        return False
    of_client = sum(other.visitor.client == client for other in others)
    return of_client >= limit

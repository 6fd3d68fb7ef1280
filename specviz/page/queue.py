"""The queue of runs: one thread gives them to the worker one after the other."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import closing

from ..base.environment import BUILTIN
from ..base.errors import NoGpuError, SpecvizError
from ..base.logs import brief
from ..worker.client import Limits, Worker, results_of
from ..worker.failures import FAILED
from ..worker.loading import Status
from ..worker.tasks import Host, LoadTask, MachineTask
from .jobs import Ending, Job, LoadJob, Run
from .loads import MIN_SECONDS, LoadProgress, first_reading, remember_first_reading
from .probes import Durations, about, expected_whole, kind_of

log = logging.getLogger(__name__)

KEPT_JOBS = 16  # finished jobs that can still be asked for
MAX_KEPT = 4_000  # tokens of finished runs; each takes two or three KiB
CLOSING = "The server is being restarted: press Run again in a minute."
STARTING = "Getting the models ready."
WAITING = "Your run starts when they are ready."
FULL = (
    "{} runs are waiting already{}, and the queue is full: play a recording meanwhile, and press "
    "Run again in a minute."
)
OWN_ENDS = "Your earlier run is ending; this one comes next."
CUT_SHORT = "Runs are limited to {:g} s here, so this one ended early; its results are kept."
SHARE_USED = (
    "The limit of waiting runs for your network is reached: play a recording meanwhile, and press "
    "Run again in a minute."
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
        self._began_at = 0.0  # when the current job was begun, by the monotonic clock
        self._durations = Durations()
        self._readings = Durations()  # seconds from a loaded pair to a run's first event
        self._load_seconds = 0.0  # seconds of the last load of a pair
        self._wake = threading.Condition(threading.RLock())
        self._jobs: OrderedDict[str, Job] = OrderedDict()  # waiting, current and finished, by id
        self._status = STARTING  # a sentence for those who wait for the first load
        self._thread: threading.Thread | None = None
        self.closing = False
        self.answered = False

    def jobs(self) -> list[Job]:
        """The jobs that wait, run or have ended not long ago."""
        with self._wake:
            return list(self._jobs.values())

    def start(self, pair: str | None = None) -> None:
        """Start the thread, which first loads `pair`, before any run asks for it."""
        self.page_load = None
        if pair is not None:
            self.page_load = LoadProgress(pair)
        self.page_pair = pair or self.page_pair
        self._thread = threading.Thread(
            target=self._work, args=(self.page_load,), name="queue", daemon=True
        )
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
            waiting = len(self._waiting)
            # If nothing runs, the job begins at once and needs no place in the queue.
            if waiting >= self.limits.waiting and (waiting or self.current):
                wait = about(self._wait(waiting))
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
        job.stopping.set()
        with self._wake:
            if job in self._waiting:
                self._waiting.remove(job)
                job.close()

    def job(self, job_id: str) -> Job | None:
        """The job with this id, unless it is forgotten."""
        return self._jobs.get(job_id)

    def status_of(self, job: Job) -> str:
        """The reason why a job has not begun, as one sentence."""
        with self._wake:
            self.clean_up()
            if job not in self._waiting:
                if not job.has_started:
                    return self._status
                return job.status
            position = self._waiting.index(job)
            ahead = list(self._waiting)[:position]
            current = self.current
            if current is not None:
                ahead.append(current)
            runs = [other for other in ahead if not isinstance(other, LoadJob)]
            others = sum(other.visitor.session != job.visitor.session for other in runs)
            if not others:
                return self._status_behind_own(current)
            wait = self._wait(position)
        others_ahead = f"{others} other runs are"
        if others == 1:
            others_ahead = "1 other run is"
        return f"{others_ahead} ahead of yours{about(wait)}."

    def _status_behind_own(self, current: Job | None) -> str:
        """The reason why a job has not begun although no other visitor's is ahead. current: the
        same visitor's earlier job, if it has not ended yet."""
        if current is None:
            return self._status
        if isinstance(current, LoadJob):
            return f"{current.progress.phase} {WAITING}"
        if current.begun is None and current.status:  # its load, which this one may need
            return current.status
        return OWN_ENDS

    def seconds_to_first_event(self, run: Run) -> float | None:
        """Estimate the seconds until a run's first event; None if they are unknown."""
        with self._wake:
            reading = self._readings.expected(run.reading)
            if reading is None:
                reading = first_reading(run.task.pair)
            if reading is None or run.stopping.is_set():
                return None
            if run.begun is not None:
                spent = time.monotonic() - run.begun
                return max(0.0, reading - spent)
            if run not in self._waiting:  # its pair is being loaded
                return None
            wait = self._wait_with_load(self._waiting.index(run))
        if wait is None:
            return None
        return wait + reading

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
                self.start()

    def _wait(self, position: int) -> float | None:
        """Seconds until the job at this position of the queue begins; None if unknown."""
        jobs = list(self._waiting)[:position]
        seconds = [self._expected(job) for job in jobs]
        if self.current is not None:
            seconds.append(self._left(self.current))
        known_seconds = [duration for duration in seconds if duration is not None]
        if len(known_seconds) < len(seconds):
            return None
        return sum(known_seconds)

    def _wait_with_load(self, position: int) -> float | None:
        """Seconds until the job at this position begins, with the load of the page's pair, which
        comes before all jobs; None if unknown."""
        wait = self._wait(position)
        if wait is None or self.page_load is None or self.page_load.over:
            return wait
        loading = self.page_load.seconds_left
        if loading is None:
            return None
        return wait + loading

    def _left(self, job: Job) -> float | None:
        """Seconds until the current job ends; None if unknown, and of one that is stopped."""
        if job.stopping.is_set():
            return None
        if isinstance(job, LoadJob):
            return job.progress.seconds_left
        now = time.monotonic()
        total = expected_whole(job)
        if total is not None and job.begun is not None:
            total = min(total, self.limits.seconds)
            return max(0.0, total - (now - job.begun))
        expected = self._durations.expected(job)
        spent = now - self._began_at
        if expected is None or expected <= spent:
            return None
        return expected - spent

    def _expected(self, job: Job) -> float | None:
        """Estimate the seconds of a waiting job, from the last job or else from the current one;
        None if unknown."""
        if isinstance(job, LoadJob):
            return job.progress.seconds_left
        seconds = self._durations.expected(job)
        if seconds is None:
            seconds = self._expected_from_current(job)
        if seconds is None:
            return None
        return min(seconds, self.limits.seconds)

    def _expected_from_current(self, job: Job) -> float | None:
        """Estimate the seconds of a job from the progress of the current one, if that is of the
        same kind."""
        current = self.current
        if current is None or kind_of(current) != kind_of(job):
            return None
        total = expected_whole(current)
        if total is None:
            return None
        return total * job.length / current.length

    def _forget_old(self) -> None:
        over = [job for job in self._jobs.values() if job.over]
        excess = max(0, len(self._jobs) - KEPT_JOBS)
        for job in over[:excess]:
            del self._jobs[job.id]
        size = 0
        for job in reversed(self._jobs.values()):
            if not isinstance(job, Run):
                continue
            size += job.size
            if size > MAX_KEPT and job.over:
                job.forget()

    def _work(self, page_load: LoadProgress | None) -> None:
        if page_load is not None:
            self._prepare(page_load)
        self._status = STARTING
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._waiting))
                job = self.current = self._waiting.popleft()
                self._began_at = time.monotonic()
            self._do(job)
            with self._wake:
                is_cut_short = job.stopping.is_set() or bool(job.ending.error)
                if job.begun is not None and not is_cut_short:
                    self._durations.add(job, time.monotonic() - self._began_at)
                self.current = None

    def _prepare(self, progress: LoadProgress) -> None:
        pair = progress.pair
        began = time.monotonic()
        try:
            (self.machine,) = results_of(self._worker, MachineTask())
            for sentence in results_of(self._worker, LoadTask(pair)):
                progress.status = sentence
                self._status = f"{progress.phase} {WAITING}"
            self._load_seconds = time.monotonic() - began
            self.answered = True
            progress.succeed()
        except SpecvizError as error:
            log.warning("the pair %r could not be loaded ahead of a run: %s", pair, error)
            progress.fail(str(error))
        except Exception:
            log.exception("the pair %r could not be loaded ahead of a run", pair)
            progress.fail(FAILED)

    def _do(self, job: Job) -> None:
        try:
            # Also what is logged belongs to the visitor's request.
            job.visitor.context.run(self._attempt, job)
        finally:
            if not self._requeue(job):
                job.close()

    def _requeue(self, job: Job) -> bool:
        """Move an unfinished job to the end of the queue, and return whether there was one."""
        with self._wake:
            must_end = self.closing or job.stopping.is_set() or job.ending.error is not None
            if must_end or not job.has_more():
                return False
            self._waiting.append(job)
            return True

    def _attempt(self, job: Job) -> None:
        try:
            if not job.stopping.is_set():
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
        """Run a job's task and give the job its results, until it ends or must be given up."""
        began = time.monotonic()
        is_loading = False
        with closing(self._worker.run(job.task, job.stopping)) as results:
            for item in results:
                if item is not None:
                    job.add(item)
                    self._note_reading(job)
                if item is Status.LOADING:
                    is_loading = True
                if is_loading and job.begun is not None:
                    self._load_seconds = job.begun - began
                    is_loading = False
                self._stop_if_due(job)
                if self._ignores_stop(job):
                    return

    def _note_reading(self, job: Job) -> None:
        """Note the seconds until a run's first event, once it has come."""
        if not isinstance(job, Run) or job.next_seq != 1 or job.begun is None:
            return
        seconds = time.monotonic() - job.begun
        is_first = self._readings.expected(job.reading) is None
        if is_first and seconds >= MIN_SECONDS:
            remember_first_reading(job.task.pair, seconds)
        self._readings.add(job.reading, seconds)

    def _stop_if_due(self, job: Job) -> None:
        """Stop the current job if its visitor has left or its time is over."""
        if job.is_abandoned():
            job.stopping.set()
            return
        if job.begun is None:
            return
        spent = time.monotonic() - job.begun
        if spent > self.limits.seconds:
            job.end_early(CUT_SHORT.format(self.limits.seconds))

    def _ignores_stop(self, job: Job) -> bool:
        """Whether the current job was stopped long ago and nobody needs its end. To give it up
        replaces the models' process, which must load the pair again."""
        if not job.stopping.is_set():
            return False
        patience = self.limits.stop_seconds
        if job.begun is not None:
            patience = max(patience, self._load_seconds)
        if job.seconds_since_stop() <= patience:
            return False
        # The next job may want the pair that is being loaded.
        with self._wake:
            another_wanted = any(other.task.pair != job.task.pair for other in self._waiting)
        return job.begun is not None or another_wanted


def _is_share_used(job: Job, others: Iterable[Job], limit: int) -> bool:
    """Whether an address has as many of these jobs as it may. An unknown address has no limit."""
    client = job.visitor.client
    if not client:
        return False
    of_client = sum(other.visitor.client == client for other in others)
    return of_client >= limit

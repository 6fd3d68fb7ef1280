"""Estimates of the queue's times, in seconds: how long a job has to wait, and when a run shows its
first event. None stands for unknown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from .durations import STARTUPS, Durations, Kind, store_seconds, stored_seconds
from .jobs import Job, LoadJob, Run

MIN_SHARE = 0.05  # of a job; a shorter time predicts little about the rest


class Estimates:
    """Learns from jobs that run, and estimates those that wait. load_seconds: of the last load of a
    pair, 0 if there was none."""

    def __init__(self) -> None:
        self.load_seconds = 0.0
        self._durations = Durations()
        self._startups = Durations()  # from a loaded pair to a run's first event

    def note_result(self, job: Job) -> None:
        """Learn from the current job, which has just received a result."""
        if job.load_seconds is not None:
            self.load_seconds = job.load_seconds
        if isinstance(job, Run) and job.next_seq == 1 and job.ready_at is not None:
            self._note_startup(job, time.monotonic() - job.ready_at)

    def _note_startup(self, run: Run, seconds: float) -> None:
        kind = kind_of(run)
        length = len(run.prompt)
        is_first = self._startups.expected(kind, length) is None
        if is_first:
            store_seconds(STARTUPS, run.task.pair, seconds)
        self._startups.add(kind, length, seconds)

    def note_end(self, job: Job) -> None:
        """Learn from a job whose task has ended."""
        if job.load_seconds is not None:
            self.load_seconds = job.load_seconds
        is_cut_short = job.stopping.is_set() or bool(job.ending.error)
        if job.ready_at is not None and not is_cut_short:
            self._durations.add(kind_of(job), job.length, time.monotonic() - job.started_at)

    def wait(self, ahead: Sequence[Job], current: Job | None, limit: float) -> float | None:
        """Seconds until the current job and those ahead have ended. limit: the most seconds of a
        run."""
        seconds = [self._whole(job, current, limit) for job in ahead]
        if current is not None:
            seconds.append(self._rest(current, limit))
        known_seconds = [duration for duration in seconds if duration is not None]
        if len(known_seconds) < len(seconds):
            return None
        return sum(known_seconds)

    def first_event(self, run: Run, wait: float | None) -> float | None:
        """Seconds until a run's first event. wait: until it begins; None if that is unknown, or if
        it has begun."""
        startup = self._startups.expected(kind_of(run), len(run.prompt))
        if startup is None:
            startup = stored_seconds(STARTUPS, run.task.pair)
        if startup is None or run.stopping.is_set():
            return None
        if run.ready_at is not None:
            spent = time.monotonic() - run.ready_at
            return max(0.0, startup - spent)
        if wait is None:
            return None
        return wait + startup

    def _rest(self, current: Job, limit: float) -> float | None:
        """Seconds until the current job ends; unknown if it is stopped."""
        if current.stopping.is_set():
            return None
        if isinstance(current, LoadJob):
            return current.progress.seconds_left
        now = time.monotonic()
        total = total_seconds(current)
        if total is not None and current.ready_at is not None:
            total = min(total, limit)
            return max(0.0, total - (now - current.ready_at))
        expected = self._durations.expected(kind_of(current), current.length)
        spent = now - current.started_at
        if expected is None or expected <= spent:
            return None
        return expected - spent

    def _whole(self, job: Job, current: Job | None, limit: float) -> float | None:
        """Seconds of a waiting job, as the last one of its kind took, or else as the current one
        seems to take."""
        if isinstance(job, LoadJob):
            return job.progress.seconds_left
        seconds = self._durations.expected(kind_of(job), job.length)
        if seconds is None and current is not None and kind_of(current) == kind_of(job):
            total = total_seconds(current)
            if total is not None:
                seconds = total * job.length / current.length
        if seconds is None:
            return None
        return min(seconds, limit)


def kind_of(job: Job) -> Kind:
    """The kind of a job's task."""
    return type(job.task), job.task.pair


def total_seconds(job: Job) -> float | None:
    """Estimate the total seconds of a running job from its progress so far; None if that is too
    little."""
    share = job.share
    if job.ready_at is None or share is None or share < MIN_SHARE:
        return None
    return (time.monotonic() - job.ready_at) / share

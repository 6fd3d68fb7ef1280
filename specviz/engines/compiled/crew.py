"""Threads that share compiled passes."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from .forward import ARRIVALS, MEETING, NUMBERS, PLAN, run_pass
from .shared import arrive, float_pointer, int_pointer, read_shared, yield_processor

# A thread that waits for its next pass spins at first, then lets others run, then sleeps: waking
# it takes some fifty microseconds, the draft steps between two passes of a target often more.
SPINS = 2_000
YIELDS = 4_000  # about a millisecond on a processor that has nothing else to do

# Entries of a box, in which a thread finds its next pass
COUNT, PLAN_AT, NUMBERS_AT = range(3)
BOX = 16  # int64 entries, 128 bytes: no two threads write to one line of the processor's cache

Plan = NDArray[np.int64]
Numbers = NDArray[np.float32]


@njit(cache=True)
def _post(box, plan, numbers):
    """Put a pass into a box."""
    box[PLAN_AT], box[NUMBERS_AT] = plan.ctypes.data, numbers.ctypes.data
    arrive(box.ctypes.data + 8 * COUNT)


@njit(nogil=True, cache=True)
def _serve(index, box, done):
    """Take part in the passes that come into a box, until none has come for a while.

    done: how many had come before; returns how many have now.
    """
    while True:
        waited = 0
        while read_shared(box.ctypes.data + 8 * COUNT) == done:
            waited += 1
            if waited > SPINS:
                yield_processor()
            if waited > SPINS + YIELDS:
                return done
        done += 1
        plan = carray(int_pointer(box[PLAN_AT]), PLAN)
        run_pass(index, plan, carray(float_pointer(box[NUMBERS_AT]), NUMBERS))


class _Worker:
    """One thread and its box."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._box = np.zeros(2 * BOX, np.int64)[-BOX:]
        self._asleep = False
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._run, name=f"passes {index}", daemon=True).start()

    def post(self, plan: Plan, numbers: Numbers) -> None:
        """Let the thread do its share of a pass; `plan` and `numbers` must live until its end."""
        _post(self._box, plan, numbers)
        if self._asleep:
            self._wake.release()

    def _run(self) -> None:
        done = 0
        while True:
            done = _serve(self._index, self._box, done)
            # `post` counts first and then looks whether to wake; here it is the other way round, so
            # no pass is missed.
            self._asleep = True
            if self._box[COUNT] == done:
                self._wake.acquire()
            self._asleep = False


class Crew:
    """All threads of this process that share passes; more are started when a pass wants more."""

    def __init__(self) -> None:
        self._meeting = np.zeros(BOX, np.int64)
        self._one_at_a_time = threading.Lock()
        self._workers: list[_Worker] = []

    def run(self, plan: Plan, numbers: Numbers, threads: int) -> None:
        """One pass; it ends when all threads have done their share."""
        with self._one_at_a_time:
            plan[MEETING], plan[ARRIVALS] = self._meeting.ctypes.data, self._meeting[0]
            while len(self._workers) < threads - 1:
                self._workers.append(_Worker(len(self._workers) + 1))
            for worker in self._workers[: threads - 1]:
                worker.post(plan, numbers)
            run_pass(0, plan, numbers)


@cache
def crew() -> Crew:
    """The crew of this process."""
    return Crew()

"""Threads that share compiled passes, and the box in which each finds its next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from .forward import ARRIVALS, MEETING, NUMBERS, PLAN, run_pass
from .ir import arrive, float_pointer, int_pointer, read_shared, yield_processor
from .rows import ZERO

MOST_THREADS = 256  # that share a pass


# A thread that waits for its next pass spins at first, then lets others run, then sleeps: waking
# it takes some fifty microseconds, and a draft run between two passes of a target often more.
SPINS = 2_000
YIELDS = 4_000  # about a millisecond on a processor that has nothing else to do

COUNT, PLAN_AT, NUMBERS_AT, HELD = range(4)
BOX = 16
"""Entries of a box, int64: how many passes have come, where the last one's plan and numbers lie,
whether its thread must not sleep, and room, so that no two threads write to one line of the
processor's cache."""


@njit(nogil=True, cache=True)
def lead(boxes, plan, numbers):
    """One pass, with the threads of these boxes (int64 [n, BOX]), none of which sleeps."""
    plan[ARRIVALS] = read_shared(plan[MEETING])
    for i in range(len(boxes)):
        boxes[i, PLAN_AT], boxes[i, NUMBERS_AT] = plan.ctypes.data, numbers.ctypes.data
        arrive(boxes.ctypes.data + 8 * (i * BOX + COUNT))
    run_pass(ZERO, plan, numbers)


@njit(nogil=True, cache=True)
def serve(index, box, done):
    """Take part in the passes that come into a box, until none has come for a while and the thread
    is not held.

    done: how many had come before; returns how many have come now.
    """
    while True:
        waited = 0
        while read_shared(box.ctypes.data + 8 * COUNT) == done:
            waited += 1
            if waited > SPINS:
                yield_processor()
                if waited > SPINS + YIELDS and not read_shared(box.ctypes.data + 8 * HELD):
                    return done
        done += 1
        plan = carray(int_pointer(box[PLAN_AT]), PLAN)
        run_pass(index, plan, carray(float_pointer(box[NUMBERS_AT]), NUMBERS))


Plan = NDArray[np.int64]


class _Worker:
    """One thread and its box."""

    def __init__(self, index: int, box: Plan) -> None:
        self._index, self._box = index, box
        self._asleep = False
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._run, name=f"passes {index}", daemon=True).start()

    def hold(self) -> None:
        """Keep the thread awake until `release`."""
        self._box[HELD] = 1
        if self._asleep:
            self._wake.release()

    def release(self) -> None:
        self._box[HELD] = 0

    def _run(self) -> None:
        done = 0
        while True:
            done = serve(self._index, self._box, done)
            # `hold` writes before it looks whether to wake; here it is the other way round, so the
            # thread never sleeps while it is held.
            self._asleep = True
            if not self._box[HELD]:
                self._wake.acquire()
            self._asleep = False


class Crew:
    """All threads of this process that share passes; more are started when a pass wants more."""

    def __init__(self) -> None:
        self._meeting = np.zeros(BOX, np.int64)
        self._one_at_a_time = threading.Lock()
        self._boxes = np.zeros((MOST_THREADS, BOX), np.int64)
        self._workers: list[_Worker] = []

    @contextmanager
    def gathered(self, threads: int, *plans: Plan) -> Iterator[Plan]:
        """Within, so many threads, this one among them, wait for passes of these plans; yields the
        boxes of the others, for `box.lead`."""
        with self._one_at_a_time:
            while len(self._workers) < threads - 1:
                index = len(self._workers)
                self._workers.append(_Worker(index + 1, self._boxes[index]))
            for plan in plans:
                plan[MEETING] = self._meeting.ctypes.data
            workers = self._workers[: threads - 1]
            for worker in workers:
                worker.hold()
            try:
                yield self._boxes[: threads - 1]
            finally:
                for worker in workers:
                    worker.release()


@cache
def crew() -> Crew:
    """The crew of this process."""
    return Crew()

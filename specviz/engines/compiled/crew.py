"""Threads that share compiled passes."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .box import BOX, COUNT, post, serve
from .forward import ARRIVALS, MEETING, run_pass

Plan = NDArray[np.int64]
Numbers = NDArray[np.float32]


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
        post(self._box, plan, numbers)
        if self._asleep:
            self._wake.release()

    def _run(self) -> None:
        done = 0
        while True:
            done = serve(self._index, self._box, done)
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

"""Threads that share compiled passes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .box import BOX, HELD, serve
from .forward import MEETING

MOST_THREADS = 256  # that share a pass

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

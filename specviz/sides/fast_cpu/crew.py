"""Threads that share compiled passes, the box in which each finds its next one, and draft runs that
are one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from .forward import ARRIVALS, IDS, LOGITS, MEETING, NUMBERS, PLAN, START, run_pass
from .ir import LANES, arrive, float_pointer, int_pointer, read_shared, yield_processor
from .rows import ZERO
from .vector import softmax

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


@njit(nogil=True, cache=True)
def greedy_id(logits, tie):
    """The lowest id whose logit is the highest, or below it by no more than the share `tie`.

    logits: fp32 [vocab]. An id of the vocabulary even if all are NaN.
    """
    best = logits[0]
    for logit in logits:
        best = max(best, logit)
    level = best - tie * abs(best)
    for i in range(len(logits)):
        if logits[i] >= level:
            return i
    return 0


@njit(nogil=True, cache=True)
def _draw(logits, uniform, scratch, q):
    """Write softmax(logits) to q and draw an id from it by inversion of its running sum in fp64.

    logits, q: fp32 [vocab]. scratch: fp32, `vocab` rounded up to a multiple of `LANES`. uniform:
    fp64 in [0, 1), so the whole sum is above the place looked for: no id of weight 0 is drawn.
    """
    vocab = len(logits)
    scratch[:vocab] = logits
    scratch[vocab:] = -np.inf
    softmax(scratch.ctypes.data, len(scratch))
    q[:] = scratch[:vocab]
    total = 0.0
    for weight in q:
        total += weight
    place, sum_so_far = uniform * total, 0.0
    for i in range(vocab):
        sum_so_far += q[i]
        if sum_so_far > place:
            return i
    return vocab - 1  # only for weights that are NaN


@njit(nogil=True, cache=True)
def run_draft(boxes, first, following, numbers, greedy, tie, uniforms, ids, logits, q):
    """Draft as many tokens as there are uniforms, with the threads of these boxes.

    first: plan of the first pass, which feeds all that is not cached. following: plan of the other
    passes, each of which feeds the token before. ids: int64 [n], and logits: fp32 [n, vocab], are
    written; so are the distributions q, fp32 [n, vocab], unless `greedy`.
    """
    scratch = np.empty(0 if greedy else -(-logits.shape[1] // LANES) * LANES, np.float32)
    for step in range(len(uniforms)):
        plan = first if step == 0 else following
        plan[LOGITS] = logits.ctypes.data + step * logits.strides[0]
        if step > 0:
            plan[IDS] = ids.ctypes.data + 8 * (step - 1)
        if step > 1:
            plan[START] += 1
        lead(boxes, plan, numbers)
        if greedy:
            ids[step] = greedy_id(logits[step], tie)
        else:
            ids[step] = _draw(logits[step], uniforms[step], scratch, q[step])


Integers = NDArray[np.int64]


class _Worker:
    """One thread and its box."""

    def __init__(self, index: int, box: Integers) -> None:
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


_meeting = np.zeros(BOX, np.int64)
_boxes = np.zeros((MOST_THREADS, BOX), np.int64)
_workers: list[_Worker] = []  # of this process; more are started when a pass wants more
_one_at_a_time = threading.Lock()


@contextmanager
def gathered(threads: int, *plans: Integers) -> Iterator[Integers]:
    """Within, so many threads, this one among them, wait for passes of these plans; yields the
    boxes of the others, for `lead`."""
    with _one_at_a_time:
        for index in range(len(_workers), threads - 1):
            _workers.append(_Worker(index + 1, _boxes[index]))
        for plan in plans:
            plan[MEETING] = _meeting.ctypes.data
        workers = _workers[: threads - 1]
        for worker in workers:
            worker.hold()
        try:
            yield _boxes[: threads - 1]
        finally:
            for worker in workers:
                worker.release()

"""Threads that share compiled passes, the box in which each finds its next pass, and draft runs as
one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...files.few_bits.ir import (
    LANES,
    arrive,
    call_at,
    in_place,
    inside,
    read_shared,
    yield_processor,
)
from ...files.few_bits.vector import softmax
from .forward import plan_at

MAX_THREADS = 256  # the most that share a pass

# A thread that waits for its next pass spins at first, then lets others run, then sleeps: waking
# it takes some fifty microseconds, and a draft run between two passes of a target often more.
SPINS = 2_000
YIELDS = 4_000  # about a millisecond on an idle processor

COUNT, PLAN_AT, HELD = range(3)
BOX = 16
"""Entries of a box, int64: the number of passes so far, the address of the last one's plan, and
whether its thread must not sleep. The rest is padding, so that no two threads write to one line of
the processor's cache."""


@njit(nogil=True, cache=True)
def lead(boxes, address):
    """Run the pass whose plan is at `address`, with the threads of these boxes (int64 [n, BOX]),
    none of which sleeps."""
    plan = plan_at(address)
    plan.arrivals = read_shared(plan.meeting)
    for i in range(len(boxes)):
        boxes[i, PLAN_AT] = address
        arrive(boxes.ctypes.data + 8 * (i * BOX + COUNT))
    call_at(plan.code, 0, address)


@njit(nogil=True, cache=True)
def serve(index, box, done):
    """Take part in the passes that arrive in a box, until none has arrived for a while and the
    thread is not held.

    done: the number of passes that arrived before; returns the number that have arrived now.
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
        call_at(plan_at(box[PLAN_AT]).code, index, box[PLAN_AT])


@in_place
def greedy_id(logits, tie):
    """The lowest id whose logit is the highest, or below it by at most the share `tie`.

    logits: fp32 [vocab]. Returns an id of the vocabulary even if all are NaN.
    """
    best = logits[0]
    for logit in logits:
        best = max(best, logit)
    level = best - tie * abs(best)
    for i in range(len(logits)):
        if logits[i] >= level:
            return i
    return 0


@inside
def _softmax_into(scratch, logits):
    """Write softmax(logits) to scratch, and 0 after it. logits: fp32 [vocab]. scratch: fp32,
    `vocab` rounded up to a multiple of `LANES`."""
    vocab = len(logits)
    for i in range(len(scratch)):
        scratch[i] = logits[i] if i < vocab else -np.inf
    softmax(scratch.ctypes.data, len(scratch))


@in_place
def _draw(logits, uniform, scratch, q):
    """Write softmax(logits) to q and draw an id from it by inversion of its running sum in fp64.

    logits, q: fp32 [vocab]. scratch: as in `_softmax_into`. uniform:
    fp64 in [0, 1), so the whole sum is above the threshold: no id of weight 0 is drawn.
    """
    vocab = len(logits)
    _softmax_into(scratch, logits)
    total = 0.0
    for i in range(vocab):
        q[i] = scratch[i]
        total += q[i]
    threshold = uniform * total
    sum_so_far = 0.0
    for i in range(vocab):
        sum_so_far += q[i]
        if sum_so_far > threshold:
            return i
    return vocab - 1  # only for weights that are NaN


@njit(nogil=True, cache=True)
def run_draft(
    boxes, first, following, greedy, tie, min_confidence, uniforms, ids, logits, q, confidences
):
    """Draft one token per uniform, with the threads of these boxes, or fewer by `min_confidence` as
    in `core.tensor_draws.DraftEnd`; returns the number of drafted tokens.

    first: the address of the first pass's plan, which feeds all tokens that are not cached.
    following: the address of the plan of the other passes, each of which feeds the token before.
    Written are ids, int64 [n], and logits, fp32 [n, vocab]; unless `greedy`, the distributions q,
    fp32 [n, vocab]; and if `min_confidence` is not 0, the confidences, fp64 [n].
    """
    scratch = np.empty(-(-logits.shape[1] // LANES) * LANES, np.float32)
    product = 1.0  # of the confidences
    for step in range(len(uniforms)):
        address = first if step == 0 else following
        plan = plan_at(address)
        plan.logits = logits.ctypes.data + step * logits.strides[0]
        if step > 0:
            plan.ids = ids.ctypes.data + 8 * (step - 1)
        if step > 1:
            plan.start += 1
        lead(boxes, address)
        if greedy:
            ids[step] = greedy_id(logits[step], tie)
        else:
            ids[step] = _draw(logits[step], uniforms[step], scratch, q[step])
        if min_confidence > 0.0:
            if greedy:
                _softmax_into(scratch, logits[step])
            confidences[step] = scratch.max()
            product *= confidences[step]
            if product < min_confidence:
                return step + 1
    return len(uniforms)


Integers = NDArray[np.int64]


def _work(index: int, box: Integers, held: threading.Event) -> None:
    done = 0
    while True:
        held.wait()
        done = serve(index, box, done)


meeting = np.zeros(BOX, np.int64)  # counts arrivals of all passes
_boxes = np.zeros((MAX_THREADS, BOX), np.int64)
_workers: list[tuple[Integers, threading.Event]] = []  # more are started when a pass needs them
_one_at_a_time = threading.Lock()


def _started_worker(index: int) -> tuple[Integers, threading.Event]:
    """Start the thread of the box at an index; returns its box, and the event that wakes it."""
    box = _boxes[index]
    held = threading.Event()
    number = index + 1  # of the thread in a pass, whose caller is number 0
    thread = threading.Thread(
        target=_work, args=(number, box, held), name=f"passes {number}", daemon=True
    )
    thread.start()
    return box, held


@contextmanager
def gathered(threads: int) -> Iterator[Integers]:
    """Inside the block, `threads` threads, this one among them, wait for passes and do not sleep.
    Yields the boxes of the others, for `lead`."""
    with _one_at_a_time:
        for index in range(len(_workers), threads - 1):
            _workers.append(_started_worker(index))
        workers = _workers[: threads - 1]
        for box, held in workers:
            box[HELD] = 1
            held.set()
        try:
            yield _boxes[: threads - 1]
        finally:
            for box, held in workers:
                held.clear()
                box[HELD] = 0

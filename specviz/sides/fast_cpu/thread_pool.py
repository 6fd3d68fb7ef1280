"""The pool of threads that share compiled passes, and draft runs as one call.

awake_workers -> the workers' slots -> run_with_workers: one pass
                                    -> run_draft: a pass and a draw for each token
each worker: _work -> run_passes_of_slot: the passes whose plans are put into its slot
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...files.few_bits.ir import (
    VECTOR_LENGTH,
    add_one,
    call_at,
    compiled_only,
    inlined,
    read_shared,
    yield_processor,
)
from ...files.few_bits.vector import softmax
from .forward import plan_at

MAX_THREADS = 256  # the most that share a pass

# A thread that waits for its next pass spins at first, then lets others run, then sleeps: waking
# it takes some fifty microseconds, and a draft run between two passes of a target often more.
IDLE_SPINS = 2_000
IDLE_YIELDS = 4_000  # about a millisecond on an idle processor

# A worker's slot is int64 [SLOT_LENGTH]: through it the worker gets its passes. The entries:
PASS_COUNT = 0  # the number of passes so far
PLAN_AT = 1  # the address of the last pass's plan
STAYS_AWAKE = 2  # 1 if the worker must not sleep
# The rest is padding, so that no two threads write to one line of the processor's cache.
SLOT_LENGTH = 16

Integers = NDArray[np.int64]
barrier = np.zeros(SLOT_LENGTH, np.int64)  # counts the arrivals of all passes
_worker_slots = np.zeros((MAX_THREADS, SLOT_LENGTH), np.int64)
_workers: list[_Worker] = []  # more are started when a pass needs them
_pool_lock = threading.Lock()


class _Worker(NamedTuple):
    """A thread of the pool. awake: the thread sleeps while this is not set."""

    slot: Integers
    awake: threading.Event


@contextmanager
def awake_workers(threads: int) -> Iterator[Integers]:
    """Context manager: keep `threads` - 1 workers awake, which run passes with the calling thread.
    Yields their slots, for `run_with_workers`. One caller at a time has the pool."""
    with _pool_lock:
        for index in range(len(_workers), threads - 1):
            _workers.append(_start_worker(index))
        workers = _workers[: threads - 1]
        for worker in workers:
            worker.slot[STAYS_AWAKE] = 1
            worker.awake.set()
        try:
            yield _worker_slots[: threads - 1]
        finally:
            for worker in workers:
                worker.awake.clear()
                worker.slot[STAYS_AWAKE] = 0


def _start_worker(index: int) -> _Worker:
    """Start the worker of the slot at this index."""
    slot = _worker_slots[index]
    awake = threading.Event()
    number = index + 1  # of the thread in a pass, whose caller is number 0
    thread = threading.Thread(
        target=_work, args=(number, slot, awake), name=f"passes {number}", daemon=True
    )
    thread.start()
    return _Worker(slot, awake)


def _work(thread: int, slot: Integers, awake: threading.Event) -> None:
    """Run passes whenever `awake` is set, forever."""
    done = 0
    while True:
        awake.wait()
        done = run_passes_of_slot(thread, slot, done)


@njit(nogil=True, cache=True)
def run_passes_of_slot(thread, slot, done):
    """Run a worker's share of each pass that is put into its slot, until there has been none for a
    while and the worker may sleep. Returns the new `done`.

    thread: the worker's number in a pass. done: the number of passes that it has run.
    """
    while True:
        waited = 0
        while read_shared(slot.ctypes.data + 8 * PASS_COUNT) == done:
            waited += 1
            if waited > IDLE_SPINS:
                yield_processor()
                is_late = waited > IDLE_SPINS + IDLE_YIELDS
                if is_late and not read_shared(slot.ctypes.data + 8 * STAYS_AWAKE):
                    return done
        done += 1
        call_at(plan_at(slot[PLAN_AT]).code, thread, slot[PLAN_AT])


@njit(nogil=True, cache=True)
def run_with_workers(worker_slots, address):
    """Run the pass whose plan is at `address`, together with the workers of these slots, int64
    [threads - 1, SLOT_LENGTH]. None of the workers may sleep."""
    plan = plan_at(address)
    plan.arrivals = read_shared(plan.barrier)
    for i in range(len(worker_slots)):
        worker_slots[i, PLAN_AT] = address
        add_one(worker_slots.ctypes.data + 8 * (i * SLOT_LENGTH + PASS_COUNT))
    call_at(plan.code, 0, address)


@njit(nogil=True, cache=True)
def run_draft(
    worker_slots,
    first,
    following,
    greedy,
    tie,
    min_confidence,
    uniforms,
    ids,
    logits,
    q,
    confidences,
):
    """Draft a token with each of `uniforms`, fp64 [n], or fewer by `min_confidence` as in
    `core.tensor_draws.DraftEnd`; returns the number of drafted tokens.

    worker_slots: as in `run_with_workers`.
    first: the address of the plan of the first pass, which feeds all tokens that are not cached.
    following: the address of the plan of all later passes; each feeds the token drafted before it.
    tie: as in `greedy_id`.
    ids, logits: int64 [n] and fp32 [n, vocab], written.
    q: fp32 [n, vocab], the distributions, written unless `greedy`.
    confidences: fp64 [n], written if `min_confidence` is not 0, else empty.
    """
    scratch = np.empty(-(-logits.shape[1] // VECTOR_LENGTH) * VECTOR_LENGTH, np.float32)
    product = 1.0  # of the confidences
    for step in range(len(uniforms)):
        address = first if step == 0 else following
        plan = plan_at(address)
        plan.logits = logits.ctypes.data + step * logits.strides[0]
        if step > 0:
            plan.ids = ids.ctypes.data + 8 * (step - 1)
        if step > 1:
            plan.start += 1
        run_with_workers(worker_slots, address)
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


@inlined
def _draw(logits, uniform, scratch, q):
    """Write softmax(logits) to q and draw an id from it by inversion of its running sum in fp64.

    logits, q: fp32 [vocab]. scratch: as in `_softmax_into`. uniform: fp64 in [0, 1), so the whole
    sum is above the threshold: no id of weight 0 is drawn.
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


@compiled_only
def _softmax_into(scratch, logits):
    """Write softmax(logits) to scratch, and zeros after it.

    logits: fp32 [vocab]. scratch: fp32, `vocab` rounded up to a multiple of `VECTOR_LENGTH`.
    """
    vocab = len(logits)
    for i in range(len(scratch)):
        scratch[i] = logits[i] if i < vocab else -np.inf
    softmax(scratch.ctypes.data, len(scratch))


@inlined
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

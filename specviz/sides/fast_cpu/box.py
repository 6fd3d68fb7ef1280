"""A box in which a thread finds its next pass, for code that numba compiles."""

from __future__ import annotations

from numba import carray, njit

from .forward import ARRIVALS, MEETING, NUMBERS, PLAN, run_pass
from .rows import ZERO
from .shared import arrive, float_pointer, int_pointer, read_shared, yield_processor

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

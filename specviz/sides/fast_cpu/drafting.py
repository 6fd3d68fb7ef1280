"""A whole draft run in one call: passes, and the draw of a token after each."""

from __future__ import annotations

import numpy as np
from numba import njit

from .crew import lead
from .forward import IDS, LOGITS, START
from .ir import LANES
from .vector import softmax


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

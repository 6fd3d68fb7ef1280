"""One pass of a head on the target as one call of compiled code, by a single thread.

Its layer is a layer of `forward`, whose attention reads an embedding and a state side by side, so
the outputs of a place do not depend on how many are read at once.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from .forward import (
    COLUMNS,
    EMBEDDING,
    EPS,
    FINAL_NORM,
    FREQUENCIES,
    HEAD,
    IDS,
    INPUT_NORM,
    LAYERS,
    LOGIT_FACTOR,
    PLAN,
    ROTARY_FACTOR,
    START,
    TOKENS,
    attention_block,
    cached_places,
    mlp_block,
    sizes_in,
)
from .ir import float_pointer, int_pointer
from .rows import ZERO, angles_of, arranged_rows, embed, norm, product

# A head's plan is that of a pass of one layer, then the addresses of what only a head has (0 where
# it has no such tensor), and whether the residual is the normed state.
FUSE, FUSE_NORM, STATE_NORM, NORMED_RESIDUAL = range(PLAN, PLAN + 4)
HEAD_PLAN = PLAN + 4


@njit(nogil=True, cache=True)
def run_fuse(plan, numbers, states, hidden):
    """hidden [n, width] = fuse(states), fp32 [n, states * target_width]."""
    sizes, x = sizes_in(plan), states
    if plan[FUSE_NORM] != 0:
        x = np.empty(states.shape, np.float32)
        norm(sizes.kind, states, plan[FUSE_NORM], numbers[EPS], np.float32(1.0), x)
    product(sizes, arranged_rows(sizes.kind, x), plan[FUSE], ZERO, ZERO, sizes.width, hidden)


@njit(nogil=True, cache=True)
def run_head(plan, numbers, hidden, out):
    """Read the tokens of a plan with the states `hidden`, fp32 [n, width]: `out` is what the layer
    gives, fp32 [n, width]."""
    sizes, n, one = sizes_in(plan), plan[TOKENS], np.float32(1.0)
    kind, width, eps = sizes.kind, sizes.width, numbers[EPS]
    layer = carray(int_pointer(plan[LAYERS]), (1, COLUMNS))[0]
    frequencies = carray(float_pointer(plan[FREQUENCIES]), sizes.head_dim // 2)
    embedded, normed = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    embed(sizes, plan[EMBEDDING], carray(int_pointer(plan[IDS]), n), ZERO, embedded)
    norm(kind, embedded, layer[INPUT_NORM], eps, one, embedded)
    norm(kind, hidden, plan[STATE_NORM], eps, one, normed)
    out[:] = normed if plan[NORMED_RESIDUAL] != 0 else hidden
    both = np.empty((n, 2 * width), np.float32)
    both[:, :width], both[:, width:] = embedded, normed
    angles = angles_of(frequencies, numbers[ROTARY_FACTOR], plan[START], n)
    keys, values = cached_places(sizes, plan, ZERO)
    both = arranged_rows(kind, both)
    attention_block(sizes, layer, ZERO, ZERO, plan, numbers, angles, both, out, keys, values)
    mlp_block(sizes, layer, ZERO, ZERO, plan, numbers, out, normed)


@njit(nogil=True, cache=True)
def run_logits(plan, numbers, out, targets, logits):
    """Write the logits of outputs [n, width] to logits fp32 [n, vocab of the target], which hold
    -inf: those of the head's token i to `targets` [i], int64, unless it is negative."""
    sizes, n = sizes_in(plan), len(out)
    normed = np.empty(out.shape, np.float32)
    norm(sizes.kind, out, plan[FINAL_NORM], numbers[EPS], numbers[LOGIT_FACTOR], normed)
    own = np.empty((n, sizes.vocab), np.float32)
    product(sizes, arranged_rows(sizes.kind, normed), plan[HEAD], ZERO, ZERO, sizes.vocab, own)
    for r in range(n):
        for i in range(sizes.vocab):
            if targets[i] >= 0:
                logits[r, targets[i]] = own[r, i]

"""One pass of a head on the target as one call of compiled code, by a single thread.

It is made of the same operations as a pass of a model, so the outputs of a place do not depend on
how many are read at once. Weights are read in place and widened to fp32.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .forward import attend
from .rows import (
    ZERO,
    angles_of,
    arranged_rows,
    embed,
    norm,
    norm_heads,
    product,
    remember,
    rotate,
)
from .vector import gate_by_silu

# Entries of the table of addresses, int64; 0 where a head has no such tensor.
EMBEDDING, FUSE, FUSE_NORM, EMBEDDING_NORM, STATE_NORM = range(5)
QUERY, KEY, VALUE, OUT, GATE, UP, DOWN, LOGITS = range(5, 13)
QUERY_NORM, KEY_NORM, MIDDLE_NORM, FINAL_NORM = range(13, 17)
QUERY_BIAS, KEY_BIAS, VALUE_BIAS, OUT_BIAS = range(17, 21)
NORMED_RESIDUAL = 21  # not an address: whether the residual is the normed state
TABLE = 22

# The numbers of a pass, fp32.
EPS, ROTARY_FACTOR, SCORE_FACTOR = range(3)


@njit(nogil=True, cache=True)
def run_fuse(sizes, table, numbers, states, hidden):
    """hidden [n, width] = fuse(states), fp32 [n, states * target_width]."""
    x = states
    if table[FUSE_NORM] != 0:
        x = np.empty(states.shape, np.float32)
        norm(sizes.kind, states, table[FUSE_NORM], numbers[EPS], np.float32(1.0), x)
    product(sizes, arranged_rows(sizes.kind, x), table[FUSE], ZERO, ZERO, sizes.width, hidden)


@njit(nogil=True, cache=True)
def run_head(sizes, table, numbers, frequencies, start, ids, hidden, keys, values, out):
    """Read n places from `start` on: `out` is what the layer gives, fp32 [n, width].

    sizes: with vocab the head's own. ids: int64 [n], tokens. hidden: fp32 [n, width], states. keys:
    fp32 [kv_heads, head_dim, capacity] and values: fp32 [kv_heads, capacity, head_dim], written
    from `start` on.
    """
    kind, width, head_dim = sizes.kind, sizes.width, sizes.head_dim
    eps, one, n = numbers[EPS], np.float32(1.0), len(ids)
    embedded, normed = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    embed(sizes, table[EMBEDDING], ids, ZERO, embedded)
    norm(kind, embedded, table[EMBEDDING_NORM], eps, one, embedded)
    norm(kind, hidden, table[STATE_NORM], eps, one, normed)
    out[:] = normed if table[NORMED_RESIDUAL] != 0 else hidden
    both = np.empty((n, 2 * width), np.float32)
    both[:, :width], both[:, width:] = embedded, normed
    arranged = arranged_rows(kind, both)
    q = np.empty((n, sizes.heads * head_dim), np.float32)
    k = np.empty((n, sizes.kv_heads * head_dim), np.float32)
    v = np.empty((n, sizes.kv_heads * head_dim), np.float32)
    product(sizes, arranged, table[QUERY], table[QUERY_BIAS], ZERO, q.shape[1], q)
    product(sizes, arranged, table[KEY], table[KEY_BIAS], ZERO, k.shape[1], k)
    product(sizes, arranged, table[VALUE], table[VALUE_BIAS], ZERO, v.shape[1], v)
    norm_heads(kind, q, ZERO, sizes.heads, head_dim, table[QUERY_NORM], eps)
    norm_heads(kind, k, ZERO, sizes.kv_heads, head_dim, table[KEY_NORM], eps)
    angles = angles_of(frequencies, numbers[ROTARY_FACTOR], start, n)
    rotate(q, ZERO, sizes.heads, head_dim, angles, numbers[SCORE_FACTOR])
    rotate(k, ZERO, sizes.kv_heads, head_dim, angles, one)
    remember(k, v, ZERO, sizes.kv_heads, start, keys, values)
    seen = np.empty(q.shape, np.float32)
    attend(sizes, q, keys, values, start, ZERO, seen)
    _add(sizes, seen, table[OUT], table[OUT_BIAS], out)
    norm(kind, out, table[MIDDLE_NORM], eps, one, normed)
    arranged = arranged_rows(kind, normed)
    gate, up = np.empty((n, sizes.inner), np.float32), np.empty((n, sizes.inner), np.float32)
    product(sizes, arranged, table[GATE], ZERO, ZERO, sizes.inner, gate)
    product(sizes, arranged, table[UP], ZERO, ZERO, sizes.inner, up)
    gate_by_silu(gate.ctypes.data, up.ctypes.data, n * sizes.inner)
    _add(sizes, gate, table[DOWN], ZERO, out)


@njit(nogil=True, cache=True)
def _add(sizes, inputs, weight, bias, out):
    """out += inputs @ weight.T + bias."""
    added = np.empty(out.shape, np.float32)
    product(sizes, arranged_rows(sizes.kind, inputs), weight, bias, ZERO, sizes.width, added)
    out += added


@njit(nogil=True, cache=True)
def run_logits(sizes, table, numbers, out, factor, targets, logits):
    """Write the logits of outputs [n, width], times `factor`, to logits fp32 [n, vocab of the
    target], which hold -inf: those of the head's token i to `targets` [i], int64, unless it is
    negative."""
    n = len(out)
    normed = np.empty(out.shape, np.float32)
    norm(sizes.kind, out, table[FINAL_NORM], numbers[EPS], factor, normed)
    own = np.empty((n, sizes.vocab), np.float32)
    product(sizes, arranged_rows(sizes.kind, normed), table[LOGITS], ZERO, ZERO, sizes.vocab, own)
    for r in range(n):
        for i in range(sizes.vocab):
            if targets[i] >= 0:
                logits[r, targets[i]] = own[r, i]

"""One pass of a model as one call of compiled code, from ids to logits.

Every row of a pass goes through the same operations in the same order whatever the number of rows
and threads, so the logits of a token do not depend on them, bit for bit. Weights are read where
the model has them, by address, and widened to fp32; activations and sums are fp32.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from .ir import LANES, float_pointer, int_pointer
from .rows import (
    ZERO,
    Sizes,
    angles_of,
    arranged_rows,
    embed,
    matrix,
    meet,
    norm,
    norm_heads,
    product,
    remember,
    rotate,
    share,
)
from .vector import MOST_ROWS, STEP, combine, gate_by_silu, softmax

# A plan is what one pass is made of, int64: first the `Sizes`, then these. One array of numbers
# reaches compiled code in a microsecond; many arguments would take longer than a draft's pass.
START, TOKENS, KEEP, IDS, LOGITS, MEETING, ARRIVALS = range(11, 18)
LAYERS, FREQUENCIES, KEYS, VALUES, EMBEDDING, FINAL_NORM, HEAD = range(18, 25)
SHARED = 25  # x, q, k, v, seen, added, gate, up
STATES, SLOTS, KEPT_STATES = range(33, 36)
# Of a head on a target, else 0: the states to fuse (0 if it goes on from its own), numbers in each,
# the state beside each embedding, weights, and whether the residual is the normed state.
UNREAD, UNREAD_WIDTH, HIDDEN, FUSE, FUSE_NORM, STATE_NORM, NORMED_RESIDUAL = range(36, 43)
PLAN = 43
"""Entries of a plan."""

# The numbers of a pass, fp32.
EPS, ROTARY_FACTOR, SCORE_FACTOR, LOGIT_FACTOR = range(4)
NUMBERS = 4

# Columns of the table of addresses, which has a row per layer; 0 where a model has no such tensor.
QUERY, KEY, VALUE, OUT, GATE, UP, DOWN = range(7)
INPUT_NORM, MIDDLE_NORM, QUERY_NORM, KEY_NORM = range(7, 11)
QUERY_BIAS, KEY_BIAS, VALUE_BIAS, OUT_BIAS, GATE_BIAS, UP_BIAS, DOWN_BIAS = range(11, 18)
COLUMNS = 18


@njit(nogil=True, cache=True)
def sizes_in(p):
    """The sizes that a plan begins with."""
    return Sizes(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10])


@njit(nogil=True, cache=True)
def cached_places(sizes, plan, layer):
    """Keys and values of a layer, as in `attend`."""
    before = 4 * layer * sizes.kv_heads * sizes.head_dim * sizes.capacity  # bytes
    places = (sizes.kv_heads, sizes.head_dim, sizes.capacity)
    keys = carray(float_pointer(plan[KEYS] + before), places)
    places = (sizes.kv_heads, sizes.capacity, sizes.head_dim)
    return keys, carray(float_pointer(plan[VALUES] + before), places)


@njit(nogil=True, cache=True)
def attend(sizes, q, keys, values, start, thread, seen):
    """The thread's share of softmax(q k) v over all places up to each token's own.

    q, seen: [n, heads * head_dim]. keys: [kv_heads, head_dim, capacity]. values: [kv_heads,
    capacity, head_dim].
    """
    head_dim, kv_heads = sizes.head_dim, sizes.kv_heads
    group, n, capacity = sizes.heads // kv_heads, q.shape[0], keys.shape[2]
    longest = -(-(start + n) // LANES) * LANES
    scores = np.empty((min(group, MOST_ROWS), longest), np.float32)
    item = 0
    for r in range(n):
        length = start + r + 1
        padded = -(-length // LANES) * LANES
        for g in range(kv_heads):
            item += 1
            if item % sizes.threads != thread:
                continue
            for first in range(0, group, MOST_ROWS):
                rows = min(MOST_ROWS, group - first)
                place = r * q.strides[0] + 4 * head_dim * (g * group + first)
                combine(
                    rows,
                    q.ctypes.data + place,
                    4 * head_dim,
                    keys.ctypes.data + 4 * g * head_dim * capacity,
                    4 * capacity,
                    head_dim,
                    scores.ctypes.data,
                    scores.strides[0],
                    padded,
                )
                for row in range(rows):
                    scores[row, length:padded] = -np.inf
                    softmax(scores.ctypes.data + row * scores.strides[0], padded)
                combine(
                    rows,
                    scores.ctypes.data,
                    scores.strides[0],
                    values.ctypes.data + 4 * g * capacity * head_dim,
                    4 * head_dim,
                    length,
                    seen.ctypes.data + place,
                    4 * head_dim,
                    head_dim,
                )


@njit(nogil=True, cache=True)
def attention_block(
    sizes, layer, thread, arrivals, plan, numbers, angles, arranged, x, keys, values
):
    """x += attention over inputs [n, ...] in the order of `arranged_rows`, the thread's share;
    returns the arrivals."""
    kind, threads, head_dim, n = sizes.kind, sizes.threads, sizes.head_dim, x.shape[0]
    eps, one, start, meeting = numbers[EPS], np.float32(1.0), plan[START], plan[MEETING]
    q = matrix(plan[SHARED + 1], n, sizes.heads * head_dim)
    k = matrix(plan[SHARED + 2], n, sizes.kv_heads * head_dim)
    v = matrix(plan[SHARED + 3], n, sizes.kv_heads * head_dim)
    seen = matrix(plan[SHARED + 4], n, sizes.heads * head_dim)
    first, last = share(sizes.heads, thread, threads, 1)
    begin, end = first * head_dim, last * head_dim
    product(sizes, arranged, layer[QUERY], layer[QUERY_BIAS], begin, end, q)
    norm_heads(kind, q, first, last, head_dim, layer[QUERY_NORM], eps)
    rotate(q, first, last, head_dim, angles, numbers[SCORE_FACTOR])
    first, last = share(sizes.kv_heads, thread, threads, 1)
    begin, end = first * head_dim, last * head_dim
    product(sizes, arranged, layer[KEY], layer[KEY_BIAS], begin, end, k)
    product(sizes, arranged, layer[VALUE], layer[VALUE_BIAS], begin, end, v)
    norm_heads(kind, k, first, last, head_dim, layer[KEY_NORM], eps)
    rotate(k, first, last, head_dim, angles, one)
    remember(k, v, first, last, start, keys, values)
    arrivals = meet(meeting, arrivals, threads)
    attend(sizes, q, keys, values, start, thread, seen)
    arrivals = meet(meeting, arrivals, threads)
    _add_product(sizes, seen, layer[OUT], layer[OUT_BIAS], thread, plan, x)
    return meet(meeting, arrivals, threads)


@njit(nogil=True, cache=True)
def _add_product(sizes, inputs, weight, bias, thread, plan, x):
    """x += inputs @ weight.T + bias, the thread's share of the columns."""
    added = matrix(plan[SHARED + 5], x.shape[0], sizes.width)
    first, last = share(sizes.width, thread, sizes.threads, STEP)
    product(sizes, arranged_rows(sizes.kind, inputs), weight, bias, first, last, added)
    for r in range(x.shape[0]):
        for i in range(first, last):
            x[r, i] += added[r, i]


@njit(nogil=True, cache=True)
def mlp_block(sizes, layer, thread, arrivals, plan, numbers, x, normed):
    """x += down(silu(gate) * up) of norm(x), the thread's share; returns the arrivals."""
    kind, threads, n = sizes.kind, sizes.threads, x.shape[0]
    gate = matrix(plan[SHARED + 6], n, sizes.inner)
    up = matrix(plan[SHARED + 7], n, sizes.inner)
    norm(kind, x, layer[MIDDLE_NORM], numbers[EPS], np.float32(1.0), normed)
    arranged = arranged_rows(kind, normed)
    first, last = share(sizes.inner, thread, threads, STEP)
    product(sizes, arranged, layer[GATE], layer[GATE_BIAS], first, last, gate)
    product(sizes, arranged, layer[UP], layer[UP_BIAS], first, last, up)
    for r in range(n if first < last else 0):
        place = r * gate.strides[0] + 4 * first
        gate_by_silu(gate.ctypes.data + place, up.ctypes.data + place, last - first)
    arrivals = meet(plan[MEETING], arrivals, threads)
    _add_product(sizes, gate, layer[DOWN], layer[DOWN_BIAS], thread, plan, x)
    return meet(plan[MEETING], arrivals, threads)


@njit(nogil=True, cache=True)
def _beside_states(sizes, layer, thread, arrivals, plan, numbers, x):
    """What the layer of a head reads: the normed embeddings, which come in x [n, width], beside the
    normed states, [n, 2 * width]. x is then what the layer adds to. Returns the arrivals too."""
    n, width, kind, eps, one = x.shape[0], sizes.width, sizes.kind, numbers[EPS], np.float32(1.0)
    hidden = matrix(plan[HIDDEN], n, width)
    begin, end = share(width, thread, sizes.threads, STEP)
    if plan[UNREAD] != 0:
        states = matrix(plan[UNREAD], n, plan[UNREAD_WIDTH])
        if plan[FUSE_NORM] != 0:
            normed_states = np.empty(states.shape, np.float32)
            norm(kind, states, plan[FUSE_NORM], eps, one, normed_states)
            states = normed_states
        product(sizes, arranged_rows(kind, states), plan[FUSE], ZERO, begin, end, hidden)
        arrivals = meet(plan[MEETING], arrivals, sizes.threads)
    embedded, normed = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    norm(kind, x, layer[INPUT_NORM], eps, one, embedded)
    norm(kind, hidden, plan[STATE_NORM], eps, one, normed)
    arrivals = meet(plan[MEETING], arrivals, sizes.threads)
    residual = normed if plan[NORMED_RESIDUAL] != 0 else hidden
    x[:, begin:end] = residual[:, begin:end]
    both = np.empty((n, 2 * width), np.float32)
    both[:, :width], both[:, width:] = embedded, normed
    return both, arrivals


@njit(nogil=True, cache=True)
def _keep_states(sizes, layer, plan, x):
    """Copy x to its place among the kept states, if those of this layer are kept."""
    slot = carray(int_pointer(plan[SLOTS]), sizes.depth)[layer]
    if slot < 0:
        return
    kept = matrix(plan[STATES], x.shape[0], plan[KEPT_STATES] * sizes.width)
    for r in range(x.shape[0]):
        for i in range(sizes.width):
            kept[r, slot * sizes.width + i] = x[r, i]


@njit(nogil=True, cache=True)
def run_pass(thread, plan, numbers):
    """One thread's share of a pass.

    plan: int64 [PLAN], the model's `Sizes`, then by the names above: how many tokens are cached,
    how many are fed, and for how many of them logits are wanted; an int64 that counts arrivals,
    and its value now; the rest are addresses: of the ids, int64 [tokens], the logits, fp32 [keep,
    vocab], the table of layers, int64 [depth, COLUMNS], the rotary frequencies, fp32
    [head_dim / 2], keys, fp32 [layers, kv_heads, head_dim, capacity], values, fp32 [layers,
    kv_heads, capacity, head_dim], single weights, and memory for states, fp32 [tokens, ...]. A head
    on a target leaves in the first of these what its layer gave.
    numbers: fp32, eps of the norms and three factors.
    """
    sizes = sizes_in(plan)
    threads, start, n, keep = sizes.threads, plan[START], plan[TOKENS], plan[KEEP]
    arrivals = plan[ARRIVALS]
    ids = carray(int_pointer(plan[IDS]), n)
    layers = carray(int_pointer(plan[LAYERS]), (sizes.depth, COLUMNS))
    frequencies = carray(float_pointer(plan[FREQUENCIES]), sizes.head_dim // 2)
    x = matrix(plan[SHARED], n, sizes.width)
    normed = np.empty((n, sizes.width), np.float32)
    angles = angles_of(frequencies, numbers[ROTARY_FACTOR], start, n)
    embed(sizes, plan[EMBEDDING], ids, thread, x)
    arrivals = meet(plan[MEETING], arrivals, threads)
    for i in range(sizes.depth):
        keys, values = cached_places(sizes, plan, i)
        inputs = normed
        if plan[HIDDEN] != 0:
            inputs, arrivals = _beside_states(sizes, layers[i], thread, arrivals, plan, numbers, x)
        else:
            norm(sizes.kind, x, layers[i][INPUT_NORM], numbers[EPS], np.float32(1.0), normed)
        arranged = arranged_rows(sizes.kind, inputs)
        arrivals = attention_block(
            sizes, layers[i], thread, arrivals, plan, numbers, angles, arranged, x, keys, values
        )
        arrivals = mlp_block(sizes, layers[i], thread, arrivals, plan, numbers, x, normed)
        # No thread writes to x before all have met twice in the next layer.
        if thread == 0 and plan[STATES] != 0:
            _keep_states(sizes, i, plan, x)
    last = normed[n - keep :]
    norm(sizes.kind, x[n - keep :], plan[FINAL_NORM], numbers[EPS], numbers[LOGIT_FACTOR], last)
    logits = matrix(plan[LOGITS], keep, sizes.vocab)
    begin, end = share(sizes.vocab, thread, threads, STEP)
    product(sizes, arranged_rows(sizes.kind, last), plan[HEAD], ZERO, begin, end, logits)
    meet(plan[MEETING], arrivals, threads)

"""One pass of a model as one call of compiled code, from ids to logits.

Every row of a pass goes through the same operations in the same order whatever the number of rows
and threads, so the logits of a token do not depend on them, bit for bit. Weights are read in
place, by address, each tensor in its own kind, and become fp32; activations and sums are fp32.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import carray, cfunc, types

from ...files.few_bits.blocks import STEP
from ...files.few_bits.ir import VECTOR_LENGTH, compiled_only, inlined, pointer
from ...files.few_bits.vector import MAX_COMBINED, combine, gate_by_silu, softmax
from .rows import (
    LAYER,
    PLAN,
    angles_of,
    embed,
    in_both_orders,
    matrix,
    norm,
    norm_heads,
    product,
    rotate,
    thread_range,
    wait_at_barrier,
    write_cache,
)


@cache
def compiled_pass():
    """Compile `run_pass` for calls by address: direct callers would be compiled together with all
    of it."""
    return cfunc(types.void(types.int64, types.int64), cache=True)(run_pass)


def run_pass(thread, address):
    """Run one thread's share of the pass whose plan is at `address`.

    Each thread norms all rows for itself, and computes its own columns of each product. At barriers
    the threads wait for columns of the others.
    """
    plan = plan_at(address)
    threads = plan.threads
    n = plan.tokens
    keep = plan.keep
    arrivals = plan.arrivals
    layers = carray(pointer(plan.layers), plan.depth, LAYER)
    frequencies = carray(pointer(plan.frequencies), plan.head_dim // 2, np.float32)
    x = matrix(plan.x, n, plan.width)
    normed = np.empty((n, plan.width), np.float32)
    angles = angles_of(frequencies, plan.rotary_factor, plan.start, n)
    embed(plan, carray(pointer(plan.ids), n, np.int64), thread, x)
    arrivals = wait_at_barrier(plan.barrier, arrivals, threads)
    for i in range(plan.depth):
        layer = layers[i]
        inputs = normed
        keys, values = cache_of(plan, i)
        if plan.hidden != 0:
            inputs, arrivals = _draft_head_inputs(plan, layer, thread, arrivals, x)
        else:
            norm(x, layer.input_norm, plan.eps, np.float32(1.0), normed)
        ordered_inputs = in_both_orders(plan, inputs)
        arrivals = attention_block(
            plan, layer, thread, arrivals, angles, ordered_inputs, x, keys, values
        )
        arrivals = mlp_block(plan, layer, thread, arrivals, x, normed)
        # No thread writes to x before all have synchronized twice in the next layer.
        if thread == 0 and plan.states != 0:
            _keep_states(plan, i, x)
    last_rows = normed[n - keep :]
    norm(x[n - keep :], plan.final_norm, plan.eps, plan.logit_factor, last_rows)
    begin, end = thread_range(plan.vocab, thread, threads, STEP)
    logits = matrix(plan.logits, keep, plan.vocab)
    product(
        plan, in_both_orders(plan, last_rows), plan.output_layer, plan.nothing, begin, end, logits
    )
    wait_at_barrier(plan.barrier, arrivals, threads)


@compiled_only
def plan_at(address):
    """The plan at an address, not a copy."""
    return carray(pointer(address), 1, PLAN)[0]


@inlined
def attention_block(plan, layer, thread, arrivals, angles, ordered_inputs, x, keys, values):
    """x += attention, the thread's share. Returns the arrivals.

    ordered_inputs: [n, ...], from `in_both_orders`. x: [n, width]. keys, values: of `cache_of`.
    """
    threads = plan.threads
    head_dim = plan.head_dim
    eps = plan.eps
    n = x.shape[0]
    q = matrix(plan.q, n, plan.heads * head_dim)
    k = matrix(plan.k, n, plan.kv_heads * head_dim)
    v = matrix(plan.v, n, plan.kv_heads * head_dim)
    attended = matrix(plan.attended, n, plan.heads * head_dim)
    begin, end = thread_range(plan.heads, thread, threads, 1)
    first_column = begin * head_dim
    end_column = end * head_dim
    product(plan, ordered_inputs, layer.query, layer.query_bias, first_column, end_column, q)
    norm_heads(q, begin, end, head_dim, layer.query_norm, eps)
    rotate(q, begin, end, head_dim, angles, plan.score_factor)
    begin, end = thread_range(plan.kv_heads, thread, threads, 1)
    first_column = begin * head_dim
    end_column = end * head_dim
    product(plan, ordered_inputs, layer.key, layer.key_bias, first_column, end_column, k)
    product(plan, ordered_inputs, layer.value, layer.value_bias, first_column, end_column, v)
    norm_heads(k, begin, end, head_dim, layer.key_norm, eps)
    rotate(k, begin, end, head_dim, angles, np.float32(1.0))
    write_cache(k, v, begin, end, plan.start, keys, values)
    arrivals = wait_at_barrier(plan.barrier, arrivals, threads)
    attend(plan, q, keys, values, thread, attended)
    arrivals = wait_at_barrier(plan.barrier, arrivals, threads)
    _add_product(plan, attended, layer.out, layer.out_bias, thread, x)
    return wait_at_barrier(plan.barrier, arrivals, threads)


@inlined
def cache_of(plan, layer):
    """The cached keys and values of a layer, fp32 in the shapes of `attend`."""
    heads = plan.kv_heads
    head_dim = plan.head_dim
    capacity = plan.capacity
    before = 4 * layer * heads * head_dim * capacity  # bytes
    keys = carray(pointer(plan.keys + before), (heads, head_dim, capacity), np.float32)
    values = carray(pointer(plan.values + before), (heads, capacity, head_dim), np.float32)
    return keys, values


@inlined
def attend(plan, q, keys, values, thread, attended):
    """Compute the thread's share of softmax(q k) v over all positions up to each token's own.

    q, attended: [n, heads * head_dim]; attended is written. keys: [kv_heads, head_dim, capacity].
    values: [kv_heads, capacity, head_dim].
    """
    head_dim = plan.head_dim
    kv_heads = plan.kv_heads
    start = plan.start
    threads = plan.threads
    n = q.shape[0]
    capacity = keys.shape[2]
    group = plan.heads // kv_heads  # heads of queries that share one of keys
    longest = -(-(start + n) // VECTOR_LENGTH) * VECTOR_LENGTH
    scores = np.empty((min(group, MAX_COMBINED), longest), np.float32)
    item = 0
    for r in range(n):
        length = start + r + 1
        padded = -(-length // VECTOR_LENGTH) * VECTOR_LENGTH
        for g in range(kv_heads):
            item += 1
            if item % threads != thread:
                continue
            for first in range(0, group, MAX_COMBINED):
                rows = min(MAX_COMBINED, group - first)
                offset = r * q.strides[0] + 4 * head_dim * (g * group + first)
                combine(
                    rows,
                    q.ctypes.data + offset,
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
                    attended.ctypes.data + offset,
                    4 * head_dim,
                    head_dim,
                )


@compiled_only
def _add_product(plan, inputs, weight, bias, thread, x):
    """x += inputs @ weight.T + bias, the thread's share of the columns of x [n, width]."""
    added = matrix(plan.added, x.shape[0], plan.width)
    begin, end = thread_range(plan.width, thread, plan.threads, STEP)
    product(plan, in_both_orders(plan, inputs), weight, bias, begin, end, added)
    for r in range(x.shape[0]):
        for i in range(begin, end):
            x[r, i] += added[r, i]


@inlined
def mlp_block(plan, layer, thread, arrivals, x, normed):
    """x += down(silu(gate) * up) of norm(x), the thread's share. Returns the arrivals.

    x: [n, width]. normed: memory of the same shape for norm(x).
    """
    threads = plan.threads
    n = x.shape[0]
    gate = matrix(plan.gate, n, plan.inner)
    up = matrix(plan.up, n, plan.inner)
    norm(x, layer.middle_norm, plan.eps, np.float32(1.0), normed)
    ordered_inputs = in_both_orders(plan, normed)
    begin, end = thread_range(plan.inner, thread, threads, STEP)
    product(plan, ordered_inputs, layer.gate, layer.gate_bias, begin, end, gate)
    product(plan, ordered_inputs, layer.up, layer.up_bias, begin, end, up)
    for r in range(n if begin < end else 0):
        offset = r * gate.strides[0] + 4 * begin
        gate_by_silu(gate.ctypes.data + offset, up.ctypes.data + offset, end - begin)
    arrivals = wait_at_barrier(plan.barrier, arrivals, threads)
    _add_product(plan, gate, layer.down, layer.down_bias, thread, x)
    return wait_at_barrier(plan.barrier, arrivals, threads)


@inlined
def _draft_head_inputs(plan, layer, thread, arrivals, x):
    """Return the inputs of a draft head's layer, [n, 2 * width], and the arrivals. The inputs are
    the normed embeddings from x [n, width] and the normed states, side by side. x becomes the
    residual of the layer."""
    n = x.shape[0]
    width = plan.width
    eps = plan.eps
    hidden = matrix(plan.hidden, n, width)
    begin, end = thread_range(width, thread, plan.threads, STEP)
    if plan.unfused_states != 0:
        states = matrix(plan.unfused_states, n, plan.unfused_width)
        if plan.fuse_norm.address != 0:
            normed_states = np.empty(states.shape, np.float32)
            norm(states, plan.fuse_norm, eps, np.float32(1.0), normed_states)
            states = normed_states
        product(plan, in_both_orders(plan, states), plan.fuse, plan.nothing, begin, end, hidden)
        arrivals = wait_at_barrier(plan.barrier, arrivals, plan.threads)
    embedded = np.empty((n, width), np.float32)
    normed = np.empty((n, width), np.float32)
    norm(x, layer.input_norm, eps, np.float32(1.0), embedded)
    norm(hidden, plan.state_norm, eps, np.float32(1.0), normed)
    arrivals = wait_at_barrier(plan.barrier, arrivals, plan.threads)
    residual = normed if plan.normed_residual != 0 else hidden
    side_by_side = np.empty((n, 2 * width), np.float32)
    for r in range(n):
        for i in range(begin, end):
            x[r, i] = residual[r, i]
        for i in range(width):
            side_by_side[r, i] = embedded[r, i]
            side_by_side[r, width + i] = normed[r, i]
    return side_by_side, arrivals


@inlined
def _keep_states(plan, layer, x):
    """Copy x [n, width] into the layer's slot of the kept states, if it has one."""
    slot = carray(pointer(plan.state_slots), plan.depth, np.int64)[layer]
    if slot < 0:
        return
    width = plan.width
    kept = matrix(plan.states, x.shape[0], plan.slot_count * width)
    for r in range(x.shape[0]):
        for i in range(width):
            kept[r, slot * width + i] = x[r, i]

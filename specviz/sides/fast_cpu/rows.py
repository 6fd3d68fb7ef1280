"""Operations of a pass on the rows of its tokens: embed, norm, multiply, rotate."""

from __future__ import annotations

import math
from ctypes import Structure, c_float, c_int64

import numpy as np
from numba import carray

from ...core.llama_layer import LINEARS, NORMS
from ...files.few_bits.blocks import BFLOAT16, FLOAT32, STEP
from ...files.few_bits.ir import (
    VECTOR_LENGTH,
    add_one,
    call_product,
    compiled_only,
    inlined,
    pointer,
    read_shared,
    yield_processor,
)
from ...files.few_bits.products import bytes_of
from ...files.few_bits.vector import multiply, widen, widen_numbers

# Turns of a waiting thread before it offers its processor: some ten microseconds.
BARRIER_SPINS = 10_000


class Weight(Structure):
    """A tensor of the model; all fields are 0 if the model has no such tensor."""

    _fields_ = (
        ("address", c_int64),
        ("kind", c_int64),  # of `blocks.KINDS`
        # For a matrix that is multiplied, otherwise 0.
        ("product", c_int64),  # the address of `product_code` or `integer_product_code`
        ("step_bytes", c_int64),  # bytes of the weights of `STEP` outputs
    )


WEIGHTS = [linear.name for linear in LINEARS] + [norm.name for norm in NORMS]
BIASES = [f"{linear.name}_bias" for linear in LINEARS]
TENSORS = WEIGHTS + BIASES


class Layer(Structure):
    """The tensors of a layer, by name."""

    _fields_ = [(name, Weight) for name in TENSORS]


class Plan(Structure):
    """The parameters of one pass, which compiled code reads in place. Passing one address takes a
    microsecond; many arguments would take longer than a draft's pass."""

    _fields_ = (
        ("code", c_int64),  # the address of the compiled pass itself
        # 1 if a weight is bf16: products with it need the inputs in the order of its numbers.
        ("needs_reordered", c_int64),
        ("width", c_int64),  # of the hidden states
        ("inner", c_int64),  # width of the MLP
        ("depth", c_int64),  # layers to run
        ("vocab", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("capacity", c_int64),  # positions of the cache
        ("threads", c_int64),  # that share the pass
        ("start", c_int64),  # the number of cached tokens, so the position of the first fed one
        ("tokens", c_int64),  # the number of fed tokens
        ("keep", c_int64),  # the number of last fed tokens whose logits are wanted
        ("barrier", c_int64),  # the address of the int64 that counts arrivals at barriers
        ("arrivals", c_int64),  # that number when the pass begins
        # Addresses.
        ("ids", c_int64),  # int64 [tokens]
        ("logits", c_int64),  # fp32 [keep, vocab], written
        ("layers", c_int64),  # Layer [depth]
        ("frequencies", c_int64),  # of the rotary embedding, fp32 [head_dim / 2]
        ("keys", c_int64),  # fp32 [layers, kv_heads, head_dim, capacity]
        ("values", c_int64),  # fp32 [layers, kv_heads, capacity, head_dim]
        # Addresses of memory for activations, fp32 [tokens, ...].
        ("x", c_int64),  # after each layer; for a draft head, its layer's output
        ("q", c_int64),
        ("k", c_int64),
        ("v", c_int64),
        ("attended", c_int64),  # the attention's output
        ("added", c_int64),  # a block's output, to be added to x
        ("gate", c_int64),
        ("up", c_int64),
        # The kept hidden states of some layers, side by side, in one slot for each such layer.
        ("states", c_int64),  # fp32 [tokens, slot_count * width], written; 0 if none are kept
        ("state_slots", c_int64),  # each layer's slot, int64 [layers], below 0 if it has none
        ("slot_count", c_int64),
        # For a draft head, otherwise 0.
        ("unfused_states", c_int64),  # the target's, fp32 [tokens, unfused_width]; 0 if none
        ("unfused_width", c_int64),
        # The state next to each embedding: fused from `unfused_states`, or the head's own output.
        ("hidden", c_int64),  # fp32 [tokens, width]
        ("normed_residual", c_int64),  # whether the residual is the normed state
        # Weights.
        ("embedding", Weight),
        ("final_norm", Weight),
        ("output_layer", Weight),
        ("fuse", Weight),  # this one and the next two are a draft head's
        ("fuse_norm", Weight),
        ("state_norm", Weight),
        ("nothing", Weight),  # stands for a missing bias
        ("eps", c_float),  # of the norms
        ("rotary_factor", c_float),  # of the cosines and sines
        ("score_factor", c_float),  # of the attention's scores
        ("logit_factor", c_float),  # 1 / temperature
    )


LAYER = np.dtype(Layer)
PLAN = np.dtype(Plan)


@compiled_only
def thread_range(count, thread, threads, unit):
    """The thread's items of `count`: the first one, and the one after the last. Threads get
    multiples of `unit`, except at the end."""
    each = -(-count // (threads * unit)) * unit
    return min(thread * each, count), min((thread + 1) * each, count)


@compiled_only
def wait_at_barrier(counter, arrivals, threads):
    """Wait until all threads are here. Returns the arrivals after this barrier.

    counter: the address of the int64 that counts arrivals. arrivals: the count at which the barrier
    before was complete.
    """
    arrivals += threads
    if threads > 1:
        add_one(counter)
        spins = 0
        while read_shared(counter) < arrivals:
            spins += 1
            if spins > BARRIER_SPINS:
                yield_processor()
    return arrivals


@compiled_only
def in_both_orders(plan, x):
    """Return x [n, width] twice: as it is, and in the order in which `multiply` reads weights of
    bf16, if the model has any: in each `STEP` the inputs at even indices come first."""
    if plan.needs_reordered == 0:
        return x, x
    n, width = x.shape
    reordered = np.empty((n, width), np.float32)
    for r in range(n):
        for i in range(0, width, STEP):
            for j in range(VECTOR_LENGTH):
                reordered[r, i + j] = x[r, i + 2 * j]
                reordered[r, i + VECTOR_LENGTH + j] = x[r, i + 2 * j + 1]
    return x, reordered


@compiled_only
def product(plan, ordered_inputs, weight, bias, begin, end, y):
    """y[:, begin:end] = x @ weight[begin:end].T + bias[begin:end]; begin: a multiple of `STEP`.

    ordered_inputs: x [n, width] from `in_both_orders`. y: [n, outputs].
    """
    x, reordered = ordered_inputs
    if weight.kind == BFLOAT16:
        x = reordered
    n, width = x.shape
    if begin >= end or n == 0:  # no logits of this block of a prompt are wanted
        return
    call_product(
        weight.product,
        n,
        x.ctypes.data,
        x.strides[0],
        weight.address + begin // STEP * weight.step_bytes,
        width,
        end - begin,
        y.ctypes.data + 4 * begin,
        y.strides[0],
    )
    if bias.address != 0:
        line = np.empty(end - begin, np.float32)
        source = bias.address + bytes_of(bias.kind, begin)
        widen_numbers(bias.kind, source, line.ctypes.data, end - begin)
        for row in range(n):
            for i in range(end - begin):
                y[row, begin + i] += line[i]


@compiled_only
def norm(x, weight, eps, scale, out):
    """out = x / rms(x) * weight * scale, row by row (Zhang and Sennrich 2019, arXiv 1910.07467).

    x, out: [n, width]; they may be the same memory.
    """
    n, width = x.shape
    line = np.empty(width, np.float32)
    widen_numbers(weight.kind, weight.address, line.ctypes.data, width)
    square = np.empty(1, np.float32)
    for r in range(n):
        row = x.ctypes.data + r * x.strides[0]
        multiply(FLOAT32, row, row, 0, width, 1, square.ctypes.data)
        factor = scale / np.float32(math.sqrt(square[0] / np.float32(width) + eps))
        for i in range(width):
            out[r, i] = x[r, i] * factor * line[i]


@compiled_only
def rotate(projected, begin, end, head_dim, angles, scale):
    """Rotate heads `begin` to `end` - 1 in place by the rotary embedding, times `scale` (Su et al.
    2021, arXiv 2104.09864). projected: [n, heads * head_dim]. angles: from `angles_of`."""
    cosines, sines = angles
    half = head_dim // 2
    for r in range(projected.shape[0]):
        for h in range(begin, end):
            base = h * head_dim
            for i in range(half):
                low = projected[r, base + i]
                high = projected[r, base + half + i]
                cosine = cosines[r, i]
                sine = sines[r, i]
                projected[r, base + i] = (low * cosine - high * sine) * scale
                projected[r, base + half + i] = (high * cosine + low * sine) * scale


@compiled_only
def norm_heads(projected, begin, end, head_dim, weight, eps):
    """Norm each of heads `begin` to `end` - 1 in place, as Qwen3 does for q and k. projected: [n,
    heads * head_dim]. Without this weight, do nothing."""
    if weight.address == 0:
        return
    for h in range(begin, end):
        rows = projected[:, h * head_dim : (h + 1) * head_dim].copy()
        norm(rows, weight, eps, np.float32(1.0), rows)
        for r in range(len(rows)):
            for i in range(head_dim):
                projected[r, h * head_dim + i] = rows[r, i]


@inlined
def embed(plan, ids, thread, x):
    """Write the thread's share of the embeddings of `ids`, int64 [n], to x [n, width]."""
    begin, end = thread_range(len(ids), thread, plan.threads, 1)
    table = plan.embedding
    for r in range(begin, end):
        source = table.address + bytes_of(table.kind, ids[r] * plan.width)
        widen(table.kind, source, x.ctypes.data + r * x.strides[0], plan.width)


@inlined
def angles_of(frequencies, scaling, start, n):
    """Cosines and sines of the positions from `start` on, fp32 [n, head_dim / 2] each."""
    half = len(frequencies)
    cosines = np.empty((n, half), np.float32)
    sines = np.empty((n, half), np.float32)
    for r in range(n):
        for i in range(half):
            angle = np.float32(start + r) * frequencies[i]
            cosines[r, i] = np.float32(math.cos(angle)) * scaling
            sines[r, i] = np.float32(math.sin(angle)) * scaling
    return cosines, sines


@inlined
def write_cache(k, v, begin, end, start, keys, values):
    """Write the keys and values of heads `begin` to `end` - 1 into the cache, from position
    `start` on.

    k, v: [n, kv_heads * head_dim]. keys: [kv_heads, head_dim, capacity]. values: [kv_heads,
    capacity, head_dim].
    """
    head_dim = keys.shape[1]
    for r in range(k.shape[0]):
        for g in range(begin, end):
            for i in range(head_dim):
                keys[g, i, start + r] = k[r, g * head_dim + i]
                values[g, start + r, i] = v[r, g * head_dim + i]


@compiled_only
def matrix(address, rows, columns):
    """The fp32 matrix [rows, columns] at an address."""
    return carray(pointer(address), (rows, columns), np.float32)

"""What a pass does with the rows of its tokens: embed, norm, multiply, rotate."""

from __future__ import annotations

import math
from ctypes import Structure, c_float, c_int64

import numpy as np
from numba import carray, njit

from .blocks import BFLOAT16, FLOAT32, STEP
from .ir import LANES, arrive, call_product, pointer, read_shared, yield_processor
from .products import bytes_of
from .vector import multiply, widen

SPINS = 10_000  # some ten microseconds, after which a waiting thread offers its processor


class Weight(Structure):
    """Where a tensor lies, 0 where a model has no such tensor; of which kind it is
    (`blocks.KINDS`); and where the code of products with it lies (`products.product_code`)."""

    _fields_ = (("address", c_int64), ("kind", c_int64), ("product", c_int64))


class Layer(Structure):
    """The tensors of a layer."""

    _linears = ("query", "key", "value", "out", "gate", "up", "down")
    _norms = ("input_norm", "middle_norm", "query_norm", "key_norm")
    _names = (*_linears, *_norms, *map("{}_bias".format, _linears))
    _fields_ = tuple((name, Weight) for name in _names)


class Plan(Structure):
    """What one pass is made of; compiled code reads it where it lies. One address reaches it in a
    microsecond; many arguments would take longer than a draft's pass.

    code: where the compiled pass itself lies. arranged: 1 if a weight is bf16, so that inputs are
    needed in its order too. inner: width of the MLP. depth:
    layers to run. capacity: places of the cache. threads: that share a pass. start, tokens, keep:
    how many tokens are cached, are fed, and for how many of them logits are wanted. meeting: where
    an int64 counts arrivals, which are so many now.
    embedding, final_norm, head and, of a head on a target, fuse, fuse_norm and state_norm: weights;
    nothing: for a bias that is not there.
    The rest are addresses: of the ids, int64 [tokens], the logits, fp32 [keep, vocab], the layers,
    `Layer` [depth], the rotary frequencies, fp32 [head_dim / 2], keys, fp32 [layers, kv_heads,
    head_dim, capacity], values, fp32 [layers, kv_heads, capacity, head_dim], and memory for states,
    fp32 [tokens, ...]. states: of some layers, kept side by side; slots: which of them are a
    layer's, int64 [depth], below 0 if none.
    Of a head on a target, else 0: the states to fuse (unread; 0 if it goes on from its own),
    numbers in each, the state beside each embedding (hidden), and whether the residual is the
    normed state. x then holds what its layer gave.
    eps: of the norms.
    """

    _sizes = ("code", "arranged", "width", "inner", "depth", "vocab")
    _heads = ("heads", "kv_heads", "head_dim")
    _feed = ("start", "tokens", "keep", "meeting", "arrivals", "ids", "logits")
    _model = ("layers", "frequencies", "keys", "values")
    _memory = ("x", "q", "k", "v", "seen", "added", "gate", "up", "states", "slots", "kept_states")
    _read = ("unread", "unread_width", "hidden")
    _weights = ("embedding", "final_norm", "head", "fuse", "fuse_norm", "state_norm", "nothing")
    _names = (
        *_sizes,
        *_heads,
        "capacity",
        "threads",
        *_feed,
        *_model,
        *_memory,
        *_read,
        "normed_residual",
    )
    _factors = ("eps", "rotary_factor", "score_factor", "logit_factor")
    _fields_ = (
        *((name, c_int64) for name in _names),
        *((name, Weight) for name in _weights),
        *((name, c_float) for name in _factors),
    )


LAYER, PLAN = np.dtype(Layer), np.dtype(Plan)


@njit(nogil=True, cache=True)
def share(count, thread, threads, unit):
    """The thread's share of `count` things, from and to, in multiples of `unit`."""
    each = -(-count // (threads * unit)) * unit
    return min(thread * each, count), min((thread + 1) * each, count)


@njit(nogil=True, cache=True)
def meet(counter, arrivals, threads):
    """Wait until all threads have come here; arrivals: counted so far. Returns their new number."""
    arrivals += threads
    if threads > 1:
        arrive(counter)
        spins = 0
        while read_shared(counter) < arrivals:
            spins += 1
            if spins > SPINS:
                yield_processor()
    return arrivals


@njit(nogil=True, cache=True)
def in_both_orders(plan, x):
    """x [n, width], and x in the order in which `multiply` meets weights of bf16, if the model has
    any: of each `STEP` those at even places come first."""
    if plan.arranged == 0:
        return x, x
    n, width = x.shape
    arranged = np.empty((n, width), np.float32)
    for r in range(n):
        for i in range(0, width, STEP):
            for j in range(LANES):
                arranged[r, i + j] = x[r, i + 2 * j]
                arranged[r, i + LANES + j] = x[r, i + 2 * j + 1]
    return x, arranged


@njit(nogil=True, cache=True)
def product(plan, inputs, weight, bias, begin, end, y):
    """y[:, begin:end] = x @ weight[begin:end].T + bias[begin:end].

    inputs: x [n, width], as `in_both_orders` gives it. y: [n, outputs].
    """
    x, arranged = inputs
    if weight.kind == BFLOAT16:
        x = arranged
    n, width = x.shape
    if begin >= end or n == 0:  # of a block of a prompt nobody asks for logits
        return
    call_product(
        weight.product,
        n,
        x.ctypes.data,
        x.strides[0],
        weight.address + bytes_of(weight.kind, begin * width),
        width,
        end - begin,
        y.ctypes.data + 4 * begin,
        y.strides[0],
    )
    if bias.address != 0:
        line = np.empty(end - begin, np.float32)
        source = bias.address + bytes_of(bias.kind, begin)
        widen(bias.kind, source, line.ctypes.data, end - begin)
        for row in range(n):
            for i in range(end - begin):
                y[row, begin + i] += line[i]


@njit(nogil=True, cache=True)
def norm(x, weight, eps, scale, out):
    """out = x / rms(x) * weight * scale, row by row (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    n, width = x.shape
    line = np.empty(width, np.float32)
    widen(weight.kind, weight.address, line.ctypes.data, width)
    square = np.empty(1, np.float32)
    for r in range(n):
        row = x.ctypes.data + r * x.strides[0]
        multiply(FLOAT32, row, row, 0, width, 1, square.ctypes.data)
        factor = scale / np.float32(math.sqrt(square[0] / np.float32(width) + eps))
        for i in range(width):
            out[r, i] = x[r, i] * factor * line[i]


@njit(nogil=True, cache=True)
def rotate(states, first, last, head_dim, angles, scale):
    """Rotary embedding of heads `first` to `last` in place, times `scale` (Su et al. 2021, arXiv
    2104.09864). states: [n, heads * head_dim]."""
    cosines, sines = angles
    half = head_dim // 2
    for r in range(states.shape[0]):
        for h in range(first, last):
            base = h * head_dim
            for i in range(half):
                low, high = states[r, base + i], states[r, base + half + i]
                cosine, sine = cosines[r, i], sines[r, i]
                states[r, base + i] = (low * cosine - high * sine) * scale
                states[r, base + half + i] = (high * cosine + low * sine) * scale


@njit(nogil=True, cache=True)
def norm_heads(states, first, last, head_dim, weight, eps):
    """Norms of single heads, as Qwen3 has them for q and k."""
    if weight.address == 0:
        return
    for h in range(first, last):
        rows = states[:, h * head_dim : (h + 1) * head_dim].copy()
        norm(rows, weight, eps, np.float32(1.0), rows)
        for r in range(len(rows)):
            for i in range(head_dim):
                states[r, h * head_dim + i] = rows[r, i]


@njit(nogil=True, cache=True)
def embed(plan, ids, thread, x):
    """The thread's share of the embeddings of `ids`; x: [n, width]."""
    first, last = share(len(ids), thread, plan.threads, 1)
    table = plan.embedding
    for r in range(first, last):
        source = table.address + bytes_of(table.kind, ids[r] * plan.width)
        widen(table.kind, source, x.ctypes.data + r * x.strides[0], plan.width)


@njit(nogil=True, cache=True)
def angles_of(frequencies, scaling, start, n):
    """Cosines and sines of the places from `start` on, fp32 [n, head_dim / 2] each."""
    half = len(frequencies)
    cosines, sines = np.empty((n, half), np.float32), np.empty((n, half), np.float32)
    for r in range(n):
        for i in range(half):
            angle = np.float32(start + r) * frequencies[i]
            cosines[r, i] = np.float32(math.cos(angle)) * scaling
            sines[r, i] = np.float32(math.sin(angle)) * scaling
    return cosines, sines


@njit(nogil=True, cache=True)
def remember(k, v, first, last, start, keys, values):
    """Write the keys and values of heads `first` to `last` into the cache, from `start` on."""
    head_dim = keys.shape[1]
    for r in range(k.shape[0]):
        for g in range(first, last):
            for i in range(head_dim):
                keys[g, i, start + r] = k[r, g * head_dim + i]
                values[g, start + r, i] = v[r, g * head_dim + i]


@njit(nogil=True, cache=True)
def matrix(address, rows, columns):
    return carray(pointer(address), (rows, columns), np.float32)

"""What a pass does with the rows of its tokens: embed, norm, multiply, rotate."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from .ir import arrive, float_pointer, read_shared, yield_processor
from .vector import BFLOAT16, MOST_ROWS, arrange, multiply, sum_squares, widen

ZERO = np.int64(0)
"""For a 0 in a call between compiled functions: numba would compile the called one, and all that it
calls, once more for the literal."""

SPINS = 10_000  # some ten microseconds, after which a waiting thread offers its processor


class Sizes(NamedTuple):
    """What a pass must know of its model. kind: of the weights (`vector.KINDS`). size: bytes of a
    weight. inner: width of the MLP. depth: layers to run. capacity: places of the cache. threads:
    that share a pass."""

    kind: int
    size: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    depth: int
    capacity: int
    threads: int


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
def arranged_rows(kind, x):
    """x [n, width] in the order that `multiply` wants."""
    if kind != BFLOAT16:
        return x
    n, width = x.shape
    out = np.empty((n, width), np.float32)
    for r in range(n):
        arrange(x.ctypes.data + r * x.strides[0], out.ctypes.data + r * out.strides[0], width)
    return out


@njit(nogil=True, cache=True)
def product(sizes, x, w, bias, begin, end, y):
    """y[:, begin:end] = x @ w[begin:end].T + bias[begin:end]; x [n, inputs] in the order of
    `arranged_rows`, y [n, outputs]."""
    kind, size = sizes.kind, sizes.size
    n, inputs = x.shape
    if begin >= end:
        return
    for row in range(0, n, MOST_ROWS):
        multiply(
            kind,
            min(MOST_ROWS, n - row),
            x.ctypes.data + row * x.strides[0],
            x.strides[0],
            w + begin * inputs * size,
            inputs * size,
            inputs,
            end - begin,
            y.ctypes.data + row * y.strides[0] + 4 * begin,
            y.strides[0],
        )
    if bias != 0:
        line = np.empty(end - begin, np.float32)
        widen(kind, bias + begin * size, line.ctypes.data, end - begin)
        for row in range(n):
            for i in range(end - begin):
                y[row, begin + i] += line[i]


@njit(nogil=True, cache=True)
def norm(kind, x, weight, eps, scale, out):
    """out = x / rms(x) * weight * scale, row by row (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    n, width = x.shape
    line = np.empty(width, np.float32)
    widen(kind, weight, line.ctypes.data, width)
    square = np.empty(1, np.float32)
    for r in range(n):
        row = x.ctypes.data + r * x.strides[0]
        sum_squares(row, width, square.ctypes.data)
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
def norm_heads(kind, states, first, last, head_dim, weight, eps):
    """Norms of single heads, as Qwen3 has them for q and k."""
    if weight == 0:
        return
    for h in range(first, last):
        part = states[:, h * head_dim : (h + 1) * head_dim]
        rows = part.copy()
        norm(kind, rows, weight, eps, np.float32(1.0), part)


@njit(nogil=True, cache=True)
def embed(sizes, table, ids, thread, x):
    """The thread's share of the embeddings of `ids`; x: [n, width]."""
    first, last = share(len(ids), thread, sizes.threads, 1)
    for r in range(first, last):
        source = table + ids[r] * sizes.width * sizes.size
        widen(sizes.kind, source, x.ctypes.data + r * x.strides[0], sizes.width)


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
    return carray(float_pointer(address), (rows, columns))

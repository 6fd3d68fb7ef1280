"""Passes over a `PackedModel`: NumPy between the products, where a call costs least.

A token's pass through a small model is some hundred calls on a few kilobytes each, so that what
a call costs matters as much as what it computes: NumPy's take a third of torch's time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .matmul import BLOCK, Floats, Rows, new_rows, padded_rows, rows_of
from .weights import Layer, PackedModel

FED = 64  # tokens of a long prompt that are fed at a time
KEPT_WIDTHS = 17  # passes of up to so many tokens find their buffers where they left them
FIRST_PLACES = 128  # of a cache; it doubles when they are used up


class PackedEngine:
    """The `Engine` over a `PackedModel`."""

    form = "packed"

    def __init__(self, model: PackedModel) -> None:
        self.device = torch.device("cpu")
        self.length = 0
        self._model = model
        self._capacity = 0
        # A layer each. Keys lie in blocks of places, as weights do: q has few rows, too.
        self._keys: list[Floats] = []  # [kv_heads, capacity / BLOCK, head_dim, BLOCK]
        self._values: list[Floats] = []  # [kv_heads, capacity, head_dim]
        self._buffers: dict[int, _Buffers] = {}

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        m, places = self._model, ids.numpy()
        self._reserve(self.length + len(places))
        logits = _quick_rows(keep, m.vocab)
        kept = len(places) - keep  # tokens before the first whose logits are asked for
        with np.errstate(all="ignore"):  # what is not finite is told by whoever reads the logits
            for begin in range(0, len(places), FED):
                block = places[begin : begin + FED]
                b = self._pass(block, layers)
                wanted = begin + len(block) - max(kept, begin)
                if wanted > 0:
                    self._head(b, wanted, max(0, begin - kept), logits, temperature)
        return logits.tensor

    def rollback(self, length: int) -> None:
        self.length = length

    def _pass(self, ids: np.ndarray, layers: int | None) -> _Buffers:
        """The last layer's states of `ids` [n], in the x of the buffers returned."""
        m, n = self._model, len(ids)
        start, end = self.length, self.length + n
        b = self._buffers.get(n) or _Buffers(m, n)
        if n <= KEPT_WIDTHS:
            self._buffers[n] = b
        np.take(m.embedding, ids, 0, out=b.x.array, mode="clip")
        rotation = m.rotation[start:end]  # [n, 1, head_dim / 2]
        scores = _Scores(m, start, end)
        # Of a shallow pass only the first layers' buffers hold what follows `start`.
        for layer, keys, values in zip(
            m.layers[:layers], self._keys, self._values, strict=layers is None
        ):
            self._norm(b)
            layer.qkv.into(b.normed, b.qkv)
            np.multiply(b.turned, rotation, out=b.turned)
            for block, there, here in scores.blocks:
                keys[:, block, :, there] = b.k[:, :, here]
            values[:, start:end] = b.v
            self._attend(b, keys, values, scores)
            layer.out.into(b.seen, b.added)
            np.add(b.x.array, b.added.array, out=b.x.array)
            self._gated(b, layer)
            np.add(b.x.array, b.added.array, out=b.x.array)
        self.length = end
        return b

    def _norm(self, b: _Buffers, temperature: float = 1.0) -> None:
        """x / rms(x) / temperature into `normed`."""
        m, x = self._model, b.x.array
        if len(x) == 1:
            row = x[0]
            scale = (float(row.dot(row)) / m.width + m.eps) ** -0.5 / temperature
            np.multiply(x, scale, out=b.normed.array)
            return
        np.matmul(b.x_lying, b.x_standing, out=b.squares)  # [n, 1, 1], faster than a sum
        np.multiply(b.squares, temperature**2 / m.width, out=b.squares)
        np.add(b.squares, temperature**2 * m.eps, out=b.squares)
        np.sqrt(b.squares, out=b.squares)
        np.divide(x, b.squares[:, 0], out=b.normed.array)

    def _attend(self, b: _Buffers, keys: Floats, values: Floats, scores: _Scores) -> None:
        """q over all places so far into `seen`."""
        np.matmul(b.q, keys[:, None, : scores.count], out=scores.by_block)
        if b.future is not None:
            np.add(scores.new, b.future, out=scores.new)
        if scores.beyond.size:
            scores.beyond.fill(-np.inf)
        torch.softmax(scores.tensor, -1, out=scores.tensor)
        np.matmul(scores.known, values[:, None, : scores.end], out=b.seen_by_head)

    def _gated(self, b: _Buffers, layer: Layer) -> None:
        """down(silu(gate) * up) of the normed x into `added`."""
        self._norm(b)
        layer.gate_up.into(b.normed, b.gate_up)
        np.multiply(b.up, b.gate, out=b.up)
        torch.sigmoid(b.gate_tensor, out=b.inner.tensor)
        np.multiply(b.inner.array, b.up, out=b.inner.array)
        layer.down.into(b.inner, b.added)

    def _head(self, b: _Buffers, count: int, place: int, logits: Rows, temperature: float) -> None:
        """Logits of the last `count` states, to stand at `place` and after."""
        self._norm(b, temperature)  # sooner done to the states than to their many logits
        normed = b.normed
        if not len(normed.array) == count == len(logits.array):
            normed = normed.part(slice(len(normed.array) - count, None))
            logits = logits.part(slice(place, place + count))
        self._model.head.into(normed, logits)

    def _reserve(self, length: int) -> None:
        if length <= self._capacity:
            return
        m = self._model
        # Nothing but a prompt is fed past the context, and nothing comes after it.
        places = min(max(2 * self._capacity, length, FIRST_PLACES), max(m.limit, length))
        blocks = -(-places // BLOCK)
        self._capacity = blocks * BLOCK
        # One memory, for the sake of huge pages: see `products.in_one_memory`.
        shape = (2, len(m.layers), m.kv_heads, self._capacity, m.head_dim)
        all_keys, all_values = np.empty(shape, np.float32)
        by_block = (m.kv_heads, blocks, m.head_dim, BLOCK)
        keys, values = [one.reshape(by_block) for one in all_keys], list(all_values)
        for new, old in zip(keys + values, self._keys + self._values, strict=False):
            new[:, : old.shape[1]] = old
        self._keys, self._values = keys, values


class _Buffers:
    """What a pass of n tokens writes to, and the views that it reads it by."""

    def __init__(self, m: PackedModel, n: int) -> None:
        heads, (group, rows) = m.heads + m.kv_heads, _grouped(m, n)
        self.x, self.normed, self.added = (new_rows(n, m.width) for _ in range(3))
        self.x_lying, self.x_standing = self.x.array[:, None], self.x.array[:, :, None]
        self.squares = np.empty((n, 1, 1), np.float32)
        self.qkv = new_rows(n, (heads + m.kv_heads) * m.head_dim)
        states = self.qkv.array.reshape(n, heads + m.kv_heads, m.head_dim)
        self.turned = states[:, :heads].view(np.complex64)  # [n, heads, head_dim / 2]
        queries = _by_head(states[:, : m.heads], m.kv_heads, group, rows)
        self.q = queries[:, :, None]  # [kv_heads, group, 1, rows, head_dim]
        self.k = states[:, m.heads : heads].transpose(1, 2, 0)  # [kv_heads, head_dim, n]
        self.v = states[:, heads:].transpose(1, 0, 2)  # [kv_heads, n, head_dim]
        self.seen = new_rows(n, m.heads * m.head_dim)
        seen = self.seen.array.reshape(n, m.heads, m.head_dim)
        self.seen_by_head = _by_head(seen, m.kv_heads, group, rows)
        self.gate_up = new_rows(n, 2 * m.inner)
        self.gate = self.gate_up.array[:, : m.inner]
        self.gate_tensor = self.gate_up.tensor[:, : m.inner]
        self.up = self.gate_up.array[:, m.inner :]
        self.inner = new_rows(n, m.inner)
        # What each token may not see of those fed with it, added to the scores.
        self.future = _future(n) if n > 1 else None


class _Scores:
    """The weights of all places for the tokens fed from `start` to `end`, one layer after another.

    Whole blocks of places are computed; those that lie beyond `end` count for nothing.
    """

    def __init__(self, m: PackedModel, start: int, end: int) -> None:
        self.end, self.count = end, -(-end // BLOCK)
        shape = (m.kv_heads, *_grouped(m, end - start))
        whole = np.empty((*shape, self.count * BLOCK), np.float32)
        self.tensor = torch.from_numpy(whole)
        by_block = whole.reshape(*shape, self.count, BLOCK)
        self.by_block = by_block.transpose(0, 1, 3, 2, 4)  # [kv_heads, group, blocks, rows, BLOCK]
        self.known, self.beyond = whole[..., :end], whole[..., end:]
        self.new = whole[..., start:end]
        # Where the new keys go: a block, places in it, and which of the tokens they are.
        self.blocks = [
            (first // BLOCK, slice(low - first, high - first), slice(low - start, high - start))
            for first in range(start - start % BLOCK, end, BLOCK)
            for low, high in [(max(first, start), min(first + BLOCK, end))]
        ]


def _quick_rows(count: int, width: int) -> Rows:
    """`new_rows` for what no kernel reads: NumPy's memory is there sooner."""
    array = np.empty((padded_rows(count), width), np.float32)
    return rows_of(count, torch.from_numpy(array), array)


def _grouped(m: PackedModel, n: int) -> tuple[int, int]:
    """How many products read the keys of one head, and with how many rows each.

    A single token's heads are the rows of one, which then reads the keys once. Of more tokens
    each head has rows enough.
    """
    group = m.heads // m.kv_heads
    return (1, group) if n == 1 else (group, n)


def _by_head(states: Floats, kv_heads: int, group: int, rows: int) -> Floats:
    """[n, heads, head_dim] seen as [kv_heads, group, rows, head_dim]."""
    n, _, head_dim = states.shape
    if n == 1:
        return states.reshape(kv_heads, group, rows, head_dim)
    by_head: Floats = states.reshape(n, kv_heads, group, head_dim).transpose(1, 2, 0, 3)
    return by_head


def _future(n: int) -> Floats:
    """-inf where a token would see a later one of the same pass, [n, n]."""
    return np.triu(np.full((n, n), -np.inf, np.float32), 1)

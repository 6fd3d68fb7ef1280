"""Distributions in the host's memory, and draws from them, with few calls and reused buffers.

The samplers are those of `tensor_draws`; tests compare them draw by draw.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .settings import Settings
from .tensor_draws import SAFE_TEMPERATURE, TIE, probabilities
from .types import Doubles, Floats


class HostDraws:
    """The uniform draws of one run; the size of each request does not change them."""

    def __init__(self, stream: np.random.SeedSequence) -> None:
        self._generator = np.random.Generator(np.random.PCG64(stream))

    def numbers(self, count: int) -> Doubles:
        """The next `count` draws, fp64 in [0, 1)."""
        return self._generator.random(count)

    def take(self, count: int) -> Tensor:
        """The same as a tensor, fp64 [count]."""
        return torch.from_numpy(self.numbers(count))


class _Buffers:
    """Memory for the ids and the rows of `count` tokens.

    Its views are made once: slicing takes as long as a small operation on the slice.
    """

    def __init__(self, count: int, vocab: int) -> None:
        ids = torch.zeros(count, dtype=torch.long)
        rows = torch.zeros(count, vocab)
        self.id_array: NDArray[np.int64] = ids.numpy()
        self.ids: tuple[Tensor, ...] = ids.split(1)
        self.rows: tuple[Tensor, ...] = rows.split(1)
        self.row_arrays: list[Floats] = list(rows.numpy())
        # Entry n: the first n of them.
        self.first_ids = [ids[:n] for n in range(count + 1)]
        self.first_rows = [rows[:n] for n in range(count + 1)]
        self.first_arrays: list[Floats] = [first_rows.numpy() for first_rows in self.first_rows]


class Distributions:
    """Distributions of several tokens, a row for each, and ids drawn from them, in reused buffers.

    temperature: by which the caller divides logits before it gives them here: the run's temperature
    if only a softmax remains to be done, else 1.
    argmax: the id at which each row is 1, if greedy.
    """

    def __init__(self, settings: Settings, vocab: int) -> None:
        self._settings = settings
        self._vocab = vocab
        self.greedy = settings.greedy
        self._softmax_only = softmax_only(settings)
        self.temperature = settings.temperature if self._softmax_only else 1.0
        self.argmax: list[int] = []
        self._buffers = _Buffers(0, vocab)

    def reserve(self, count: int) -> None:
        """Make room for `count` tokens."""
        if count <= len(self.argmax):
            return
        self.argmax = [0] * count
        self._buffers = _Buffers(count, self._vocab)

    def ids(self, count: int) -> Tensor:
        """The first `count` ids, int64 [count]."""
        return self._buffers.first_ids[count]

    def rows(self, count: int) -> Tensor:
        """The first `count` distributions, fp32 [count, vocab]."""
        return self._buffers.first_rows[count]

    def row(self, position: int) -> Tensor:
        """The distribution at `position`, fp32 [1, vocab]."""
        return self._buffers.rows[position]

    def array(self, count: int) -> Floats:
        """The memory of `rows(count)`, fp32 [count, vocab]. A caller that writes distributions to
        it calls `store` next."""
        return self._buffers.first_arrays[count]

    def draw(self, position: int, logits: Tensor, uniform: float) -> Tensor:
        """Draw one id from `logits` [1, vocab], divided by `temperature`; return int64 [1]."""
        row = self._buffers.rows[position]
        array = self._buffers.row_arrays[position]
        if self.greedy:  # a one-hot row has one possible draw
            token_id = self._one_hot(position, array, logits.numpy()[0])
        else:
            if self._softmax_only:
                torch.softmax(logits, -1, out=row)
            else:
                row.copy_(self._probabilities(logits))
            token_id = drawn_id(array, uniform)
        self._buffers.id_array[position] = token_id
        return self._buffers.ids[position]

    def store(self, ids: NDArray[np.int64]) -> None:
        """Store ids drawn from rows that the caller wrote to `array`; in greedy runs, write the
        one-hot rows."""
        self._buffers.id_array[: len(ids)] = ids
        if self.greedy:
            for position, token_id in enumerate(ids.tolist()):
                self._mark(position, self._buffers.row_arrays[position], token_id)

    def write(self, logits: Tensor) -> tuple[Tensor, Floats]:
        """Compute `tensor_draws.probabilities` of fp32 logits [n, vocab], divided by `temperature`;
        return them as a tensor and as an array of the same memory.

        The result may be in the logits' own memory: it has just been written to, and the pass of
        a large model has driven all other memory out of the processor's caches.
        """
        if self._softmax_only:
            torch.softmax(logits, -1, out=logits)
            return logits, logits.numpy()
        count = len(logits)
        self.reserve(count)
        rows = self.rows(count)
        if self.greedy:
            for position, row_logits in enumerate(logits.numpy()):
                self._one_hot(position, self._buffers.row_arrays[position], row_logits)
        else:
            rows.copy_(self._probabilities(logits))
        return rows, self.array(count)

    def _probabilities(self, logits: Tensor) -> Tensor:
        return probabilities(logits, self._settings)

    def _one_hot(self, position: int, array: Floats, logits: Floats) -> int:
        """Make a row one-hot at its greedy id, and return the id."""
        return self._mark(position, array, greedy_id(logits))

    def _mark(self, position: int, array: Floats, token_id: int) -> int:
        """Move the 1 of a one-hot row to another id, and return the id."""
        array[self.argmax[position]] = 0.0
        self.argmax[position] = token_id
        array[token_id] = 1.0
        return token_id


def softmax_only(settings: Settings) -> bool:
    """Whether tokens are drawn from a softmax, without top-k or top-p."""
    return settings.temperature >= SAFE_TEMPERATURE and not settings.truncates


def greedy_id(logits: Floats) -> int:
    """Compute `tensor_draws.greedy_ids` of one row."""
    best = int(logits.argmax())
    level = logits[best] - np.float32(TIE) * abs(logits[best])
    if best and logits[:best].max() >= level:
        best = int((logits[:best] >= level).argmax())
    return best


def drawn_id(weights: Floats, uniform: float) -> int:
    """Draw as `tensor_draws.draw` does, from one row [vocab] that is not negative."""
    # torch's sum of a large vocabulary takes a tenth of NumPy's time.
    cdf = torch.from_numpy(weights).cumsum(-1, dtype=torch.float64).numpy()
    token_id = int(cdf.searchsorted(uniform * cdf.item(-1), "right"))
    return min(token_id, len(weights) - 1)

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


class Distributions:
    """Distributions of several tokens, and ids drawn from them, in reused buffers.

    temperature: by which the caller divides logits before it gives them here: the run's temperature
    if only a softmax remains to be done, else 1.
    ids, p: `ids[n]` are the first n ids, int64 [n], and `p[n]` their distributions, fp32 [n,
    vocab].
    argmax: the id at which each row is 1, if greedy.
    """

    def __init__(self, settings: Settings, vocab: int) -> None:
        self._settings = settings
        self._vocab = vocab
        self.greedy = settings.greedy
        self._softmax_only = softmax_only(settings)
        self.temperature = settings.temperature if self._softmax_only else 1.0
        self.argmax: list[int] = []

    def reserve(self, count: int) -> None:
        """Make room for `count` tokens."""
        if count <= len(self.argmax):
            return
        self.argmax = [0] * count
        p = torch.zeros(count, self._vocab)
        ids = torch.zeros(count, dtype=torch.long)
        # Views are made once: slicing takes as long as a small operation on the slice.
        self.p = [p[:n] for n in range(count + 1)]
        self.ids = [ids[:n] for n in range(count + 1)]
        self._p_arrays: list[Floats] = [first_rows.numpy() for first_rows in self.p]
        self._rows = list(zip(p.split(1), self._p_arrays[count], strict=True))
        self._id_array = ids.numpy()
        self._feeds: tuple[Tensor, ...] = ids.split(1)

    def draw(self, position: int, logits: Tensor, uniform: float) -> Tensor:
        """Draw one id from `logits` [1, vocab], divided by `temperature`; return int64 [1]."""
        row, array = self._rows[position]
        if self.greedy:  # a one-hot row has one possible draw
            token_id = self._one_hot(position, array, logits.numpy()[0])
        else:
            if self._softmax_only:
                torch.softmax(logits, -1, out=row)
            else:
                row.copy_(self._probabilities(logits))
            token_id = drawn_id(array, uniform)
        self._id_array[position] = token_id
        return self._feeds[position]

    def buffer(self, count: int) -> Floats:
        """The memory of `p[count]`, fp32 [count, vocab], for distributions that the caller writes;
        see `store`."""
        self.reserve(count)
        return self._p_arrays[count]

    def store(self, ids: NDArray[np.int64]) -> None:
        """Store ids drawn from rows that the caller wrote to `buffer`; in greedy runs, write the
        one-hot rows."""
        self._id_array[: len(ids)] = ids
        if self.greedy:
            for position, token_id in enumerate(ids.tolist()):
                self._mark(position, self._p_arrays[-1][position], token_id)

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
        p = self.p[count]
        array = self._p_arrays[count]
        if self.greedy:
            for position, row in enumerate(logits.numpy()):
                self._one_hot(position, array[position], row)
        else:
            p.copy_(self._probabilities(logits))
        return p, array

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

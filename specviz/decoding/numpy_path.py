"""Drawing where the rows lie in the host's memory.

There a draft step of a small model takes a fifth of a millisecond, and a call some microseconds
whatever it computes: so few calls are made, and they write to memory that is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..settings import Settings
from .sampling import SAFE, Source, probabilities
from .wheel import Doubles, Floats, Wheel

AHEAD = 256  # draws that are made at once

Forward: TypeAlias = Callable[[Tensor, float], Tensor]
"""int64 ids [n] and a number to the fp32 logits of the last of them over that number, [1, vocab]"""


class HostSource:
    """The uniform draws of one run, and the memory that its distributions are written to.

    The draws are the generator's, in its order, however many are asked for at a time. heat: what
    the engines must divide logits by. judged: the target's distributions.
    """

    def __init__(self, generator: torch.Generator, settings: Settings, vocab: int) -> None:
        self._generator = generator
        self._draws: Doubles = np.empty(0)
        self._given = 0
        self._drafts, self.judged = HostRows(settings, vocab), HostRows(settings, vocab)
        self.heat = self.judged.heat

    def numbers(self, count: int) -> Doubles:
        """The next `count` draws, fp64 in [0, 1)."""
        if self._given + count > len(self._draws):
            rest, fresh = self._draws[self._given :], max(AHEAD, count)
            drawn = torch.rand(fresh, generator=self._generator, dtype=torch.float64)
            self._draws, self._given = np.concatenate([rest, drawn.numpy()]), 0
        self._given += count
        return self._draws[self._given - count : self._given]

    def take(self, count: int) -> Tensor:
        """The same as a tensor, fp64 [count]."""
        return torch.from_numpy(self.numbers(count))

    def draft(
        self, forward: Forward, feed: Tensor, count: int
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """`count` tokens drawn one after the other: ids int64 [count], the rows that they were
        drawn from, fp32 [count, vocab], and the rows of logits, each [1, vocab].

        feed: the first ids that `forward` takes, int64 [n]. All but the logits is valid until the
        next call.
        """
        rows, logits = self._drafts, []
        rows.reserve(count)
        for step, uniform in enumerate(self.numbers(count).tolist()):
            row = forward(feed, self.heat)
            logits.append(row)
            feed = rows.drawn(step, row, uniform)
        return rows.ids[count], rows.p[count], logits


class HostRows:
    """Distributions of several tokens, and ids drawn from them, in memory used again.

    heat: what logits must have been divided by, where that leaves nothing but a softmax to do.
    ids, p: by how many tokens, int64 [n] and fp32 [n, vocab]. greedy: whether the rows are
    one-hot. hot: where. wheel: what draws from one of them.
    """

    def __init__(self, settings: Settings, vocab: int) -> None:
        self.greedy = settings.greedy
        self._settings, self._vocab = settings, vocab
        self._plain = settings.temperature >= SAFE and not settings.truncates
        self.heat = settings.temperature if self._plain else 1.0
        self.wheel = Wheel(vocab)
        self.hot: list[int] = []
        self.reserve(settings.gamma + 1)

    def reserve(self, count: int) -> None:
        """Make room for so many tokens."""
        if count <= len(self.hot):
            return
        self.hot = [0] * count
        p, ids = torch.zeros(count, self._vocab), torch.zeros(count, dtype=torch.long)
        self.p, self.ids = ([whole[:n] for n in range(count + 1)] for whole in (p, ids))
        self._arrays: list[Floats] = [some.numpy() for some in self.p]
        self._rows = list(zip(p.split(1), self._arrays[count], strict=True))
        self._numbers = ids.numpy()
        self._feeds: tuple[Tensor, ...] = ids.split(1)

    def drawn(self, place: int, logits: Tensor, uniform: float) -> Tensor:
        """Draw one id from `logits` [1, vocab], over `heat`, with a draw from [0, 1): int64 [1]."""
        tensor, array = self._rows[place]
        if self.greedy:  # a one-hot row has one possible draw
            token_id = self._point(place, array, logits.numpy())
        else:
            if self._plain:
                torch.softmax(logits, -1, out=tensor)
            else:
                tensor.copy_(probabilities(logits, self._settings))
            self.wheel.load(array)
            token_id = self.wheel.place(uniform)
        self._numbers[place] = token_id
        return self._feeds[place]

    def write(self, logits: Tensor) -> tuple[Tensor, Floats]:
        """`sampling.probabilities` of fp32 logits [n, vocab], given over `heat`, as torch and as
        NumPy see it. The logits' own memory may hold them: it has just been written to, and the
        pass of a large model has driven all other memory out of the caches."""
        if self._plain:
            torch.softmax(logits, -1, out=logits)
            return logits, logits.numpy()
        count = len(logits)
        self.reserve(count)
        tensor, array = self.p[count], self._arrays[count]
        if self.greedy:
            for place, row in enumerate(logits.numpy()):
                self._point(place, array[place], row)
        else:
            tensor.copy_(probabilities(logits, self._settings))
        return tensor, array

    def _point(self, place: int, array: Floats, logits: Floats) -> int:
        """Make a row one-hot at the first maximum of its logits; returns where that is."""
        array[self.hot[place]] = 0.0
        self.hot[place] = likeliest = int(logits.argmax())
        array[likeliest] = 1.0
        return likeliest


def make_source(settings: Settings, vocab: int, device: torch.device) -> Source:
    """The draws of one run on `device`, begun with the seed of the settings."""
    generator = torch.Generator(device).manual_seed(settings.seed)
    return HostSource(generator, settings, vocab) if device.type == "cpu" else generator

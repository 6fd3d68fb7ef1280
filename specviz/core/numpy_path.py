"""Drafting and judging in the host's memory: NumPy, few calls, memory that is used again.

A draft step of a small model takes a fifth of a millisecond there, and each call some
microseconds whatever it computes. The samplers are those of `sampling`, the rule is that of
`verdict`; tests compare them draw by draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings import Settings
from .engine import Engine, host_ids
from .sampling import SAFE_TEMPERATURE, TIE, probabilities
from .types import Doubles, Draft, Floats, Judged, RunContext
from .verdict import decide, decided, decided_greedily, verdict

BLOCK = 64  # entries of a row that are summed at once
ONES = np.ones(BLOCK, np.float32)
# Share of a row's sum: more than rounding in fp32, 63 times a block at most, moves a draw and the
# end of an entry's share together.
MARGIN = 1e-5


class NumpyPath:
    """A `DecodingPath` for an engine on the processor."""

    def __init__(self, engine: Engine, run: RunContext) -> None:
        assert isinstance(run.source, HostDraws)
        self.engine, self._run, self._source = engine, run, run.source
        self._drafted = Distributions(run.settings, run.vocab)
        self._judged = Distributions(run.settings, run.vocab)

    def prepare(
        self, task: Literal["draft", "judge"], length: int, most: int, layers: int | None = None
    ) -> None:
        rows = self._drafted if task == "draft" else self._judged
        rows.reserve(self._run.settings.gamma + 1)

    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        rows, logits = self._drafted, []
        rows.reserve(count)
        feed = host_ids(ids[self.engine.length :])
        for step, uniform in enumerate(self._source.numbers(count).tolist()):
            row = self.engine.forward(feed, keep=1, layers=layers, temperature=rows.temperature)
            logits.append(row)
            feed = rows.draw(step, row, uniform)
        return Draft(rows.ids[count], rows.p[count], logits)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        drafted = [] if draft is None else draft.ids.tolist()
        feed = host_ids([ids[-1], *drafted])
        logits = self.engine.forward(feed, keep=len(feed), temperature=self._judged.temperature)
        p, rows = self._judged.write(logits)
        u = self._source.numbers(len(drafted))
        if self._run.decide is decide:
            accepted, next_id = self._decided(rows, drafted, draft, u)
        else:  # the other verdicts take tensors, as a benchmark's own does
            given, q = (draft.ids, draft.q) if draft else (host_ids([]), p[:0])
            draws = torch.from_numpy(u)
            accepted, next_id = self._run.decide(p, q, given, draws, self._source).tolist()
        return Judged(draft, drafted, logits, p, u, verdict(len(drafted), accepted, next_id))

    def _decided(
        self, p: Floats, drafted: list[int], draft: Draft | None, u: Doubles
    ) -> tuple[int, int]:
        last = self._source.numbers(1).item()
        if self._run.settings.greedy:
            return decided_greedily(drafted, self._judged.argmax)
        q = draft.q.numpy() if draft else p[:0]
        return decided(p, q, drafted, u.tolist(), last, self._judged.cdf)


class HostDraws:
    """The uniform draws of one run, the same in whatever portions they are taken."""

    def __init__(self, stream: np.random.SeedSequence) -> None:
        self._generator = np.random.Generator(np.random.PCG64(stream))

    def numbers(self, count: int) -> Doubles:
        """The next `count` draws, fp64 in [0, 1)."""
        return self._generator.random(count)

    def take(self, count: int) -> Tensor:
        """The same as a tensor, fp64 [count]."""
        return torch.from_numpy(self.numbers(count))


class Distributions:
    """Distributions of several tokens, and ids drawn from them, in memory that is used again.

    temperature: by which logits must be divided before they come here: the run's where a softmax
    is then all that is left to do, else 1. ids, p: by number of tokens, int64 [n] and fp32
    [n, vocab]. argmax: where each row is 1, if greedy. cdf: draws from one of them.
    """

    def __init__(self, settings: Settings, vocab: int) -> None:
        self._settings, self._vocab = settings, vocab
        self._softmax_only = settings.temperature >= SAFE_TEMPERATURE and not settings.truncates
        self.temperature = settings.temperature if self._softmax_only else 1.0
        self.cdf = InverseCdf(vocab)
        self.argmax: list[int] = []

    def reserve(self, count: int) -> None:
        """Make room for `count` tokens."""
        if count <= len(self.argmax):
            return
        self.argmax = [0] * count
        p, ids = torch.zeros(count, self._vocab), torch.zeros(count, dtype=torch.long)
        self.p, self.ids = ([whole[:n] for n in range(count + 1)] for whole in (p, ids))
        self._arrays: list[Floats] = [some.numpy() for some in self.p]
        self._rows = list(zip(p.split(1), self._arrays[count], strict=True))
        self._numbers = ids.numpy()
        self._feeds: tuple[Tensor, ...] = ids.split(1)

    def draw(self, place: int, logits: Tensor, uniform: float) -> Tensor:
        """Draw one id from `logits` [1, vocab], divided by `temperature`; returns int64 [1]."""
        tensor, array = self._rows[place]
        if self._settings.greedy:  # a one-hot row has one possible draw
            token_id = self._one_hot(place, array, logits.numpy()[0])
        else:
            if self._softmax_only:
                torch.softmax(logits, -1, out=tensor)
            else:
                tensor.copy_(probabilities(logits, self._settings))
            self.cdf.load(array)
            token_id = self.cdf.draw(uniform)
        self._numbers[place] = token_id
        return self._feeds[place]

    def rows(self, count: int) -> Floats:
        """fp32 [count, vocab], to write distributions to; see `take`."""
        self.reserve(count)
        return self._arrays[count]

    def take(self, ids: NDArray[np.int64]) -> None:
        """Take ids that were drawn from rows which others wrote; one-hot ones are written here."""
        self._numbers[: len(ids)] = ids
        if self._settings.greedy:
            for place, token_id in enumerate(ids.tolist()):
                self._mark(place, self._arrays[-1][place], token_id)

    def write(self, logits: Tensor) -> tuple[Tensor, Floats]:
        """`sampling.probabilities` of fp32 logits [n, vocab], divided by `temperature`, as torch
        and as NumPy see it.

        The result may be in the logits' own memory: it has just been written to, and the pass of
        a large model has driven all other memory out of the processor's caches.
        """
        if self._softmax_only:
            torch.softmax(logits, -1, out=logits)
            return logits, logits.numpy()
        count = len(logits)
        self.reserve(count)
        tensor, array = self.p[count], self._arrays[count]
        if self._settings.greedy:
            for place, row in enumerate(logits.numpy()):
                self._one_hot(place, array[place], row)
        else:
            tensor.copy_(probabilities(logits, self._settings))
        return tensor, array

    def _one_hot(self, place: int, array: Floats, logits: Floats) -> int:
        """Make a row one-hot at its greedy id, which is returned."""
        return self._mark(place, array, greedy_id(logits))

    def _mark(self, place: int, array: Floats, token_id: int) -> int:
        array[self.argmax[place]] = 0.0
        self.argmax[place] = token_id
        array[token_id] = 1.0
        return token_id


def greedy_id(logits: Floats) -> int:
    """`sampling.greedy_ids` of one row."""
    best = int(logits.argmax())
    level = logits[best] - np.float32(TIE) * abs(logits[best])
    if best and logits[:best].max() >= level:
        best = int((logits[:best] >= level).argmax())
    return best


class InverseCdf:
    """Draws from one row at a time, exactly as one running sum in fp64 would.

    Each addition of a long sum waits for the one before it. Sums of blocks in fp32 tell which
    block and which place, unless the draw falls next to the end of an entry's share: only then is
    the long sum made. This saves 3 % of a sampled round of the built-in pair.
    """

    def __init__(self, vocab: int) -> None:
        self._whole = vocab - vocab % BLOCK  # entries of whole blocks

    def load(self, weights: Floats) -> float:
        """Take a row [vocab] without negative entries, which must not change before it is drawn
        from; returns its sum."""
        self._row = weights
        shares: list[float] = weights[: self._whole].reshape(-1, BLOCK).dot(ONES).tolist()
        if self._whole < len(weights):
            rest = weights[self._whole :]
            shares.append(float(rest.dot(ONES[: len(rest)])))
        self._shares, self._sum = shares, sum(shares)
        return self._sum

    def draw(self, uniform: float) -> int:
        """The id that `uniform` in [0, 1) falls on, never one of weight zero.

        NaN weights give some id of the vocabulary: the models' tables are safe until the caller
        has seen that the logits were not finite.
        """
        block, left, _ = _share(self._shares, uniform * self._sum)
        begin = block * BLOCK
        place, left, share = _share(self._row[begin : begin + BLOCK].tolist(), left)
        margin = MARGIN * self._sum
        if margin < left < share - margin:
            return begin + place
        return self._by_one_sum(uniform)

    def _by_one_sum(self, uniform: float) -> int:
        # torch's sum of a large vocabulary takes a tenth of NumPy's time.
        sums = torch.from_numpy(self._row).cumsum(-1, dtype=torch.float64).numpy()
        # uniform is at most 1 - 2^-53, so the product stays below the sum: an id with mass.
        place = int(sums.searchsorted(uniform * sums.item(-1), "right"))
        return min(place, len(self._row) - 1)


def _share(shares: list[float], left: float) -> tuple[int, float, float]:
    """Which of `shares`, laid end to end, `left` falls into, how far into it, and its size; the
    last one and 0 if it falls behind all."""
    for place, share in enumerate(shares):
        if left < share:
            return place, left, share
        left -= share
    return len(shares) - 1, left, 0.0

"""What is asked of a target's server, whatever engine it runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...errors import PairError
from ...remote.wire import Server
from ...settings import Settings

USUAL_LIST = 20
"""The most log-probabilities that servers list by default."""

LISTS = (USUAL_LIST, 5, 1)
"""The lengths of lists to try where a server does not list a whole vocabulary."""


class Drawn(NamedTuple):
    """A token that the server drew after a prefix.

    p: its probability there. asked: the probability of each token that was asked about, by id. All
    are after temperature, top-k and top-p.
    """

    id: int
    p: float
    asked: dict[int, float]


class Spent(NamedTuple):
    """What requests have cost. exchanged: bytes sent and received. server: the seconds that the
    server says it worked on them; None if it does not tell."""

    exchanged: int = 0
    server: float | None = None

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        told = [one for one in (self.server, other.server) if one is not None]
        return Spent(self.exchanged + other.exchanged, sum(told) if told else None)

    def since(self, before: Spent) -> Spent:
        """What was added to `before`, an earlier sum, to make this one."""
        server = None if self.server is None else self.server - (before.server or 0.0)
        return Spent(self.exchanged - before.exchanged, server)


class TargetServer(Protocol):
    """A model on a server.

    model: its name there. spent: on the last call of `rows` or `draws`. In both, `prefixes` are
    the first n, n + 1, ... tokens of one text.
    """

    server: Server
    model: str
    spent: Spent

    def lists(self, vocab: int, wanted: int) -> int:
        """How many log-probabilities the server gives after a prefix, up to `wanted`, by the shape
        of its answers. Raises `ServerError`, and `UnsuitedError` if they have another form."""
        ...

    def rows(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        """The log-probabilities of the `listed` likeliest next tokens after each prefix, at
        temperature 1: fp32 [n, vocab], -inf where the server lists none. Raises `ServerError`."""
        ...

    def draws(
        self,
        prefixes: Sequence[Sequence[int]],
        asked: Sequence[int],
        settings: Settings,
        seed: int,
        count: int = 1,
    ) -> list[list[Drawn]]:
        """`count` tokens drawn after each prefix under the temperature, top-k and top-p of
        `settings`, and the probabilities of the tokens `asked`. Those after one prefix are
        independent; those after different ones need not be. Raises `ServerError`, and `PairError`
        if the server cannot draw."""
        ...

    def can_draw(self, vocab: int) -> bool:
        """Whether it does. A server that speculates must not be asked: vLLM 0.32.0 has ended over
        the question. Raises `ServerError`."""
        ...

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        """Tokens per second of the server's own greedy stream after a prompt, without the first
        token, as this machine sees it. Raises `ServerError` and `PairError`."""
        ...

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text without special tokens. Raises `ServerError`."""
        ...

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids. Raises `ServerError`."""
        ...


class UnsuitedError(PairError):
    """A server does not answer in the form that an adapter reads."""


def row_of(ids: Sequence[int], values: Sequence[float], vocab: int) -> NDArray[np.float32]:
    """fp32 [vocab] with `values` at `ids` and -inf elsewhere. Raises `ValueError` if nothing is
    known or a value is NaN."""
    row = np.full(vocab, -np.inf, np.float32)
    places, known = np.asarray(ids, np.int64), np.asarray(values, np.float32)
    inside = (places >= 0) & (places < vocab)  # rows of padding are never drawn
    row[places[inside]] = known[inside]
    if not np.isfinite(row).any() or np.isnan(known).any():
        raise ValueError
    return row


def listed_count(rows: Any, asked: int, vocab: int) -> int:
    """How many log-probabilities a server lists that was asked for `asked` and gave `rows`."""
    found = int(np.isfinite(rows).sum(-1).min())
    return vocab if found >= vocab else min(asked, found)


def texts_or_ids(server: Server, answer: Any, name: str, kind: type) -> Any:
    """`answer[name]`, which must be of this kind; a list must hold ids. Raises `UnsuitedError`."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, kind) or (
        isinstance(found, list) and not all(type(one) is int for one in found)
    ):
        raise UnsuitedError(server.rubbish())
    return found


def rate_of(server: Server, began: float, chunks: Iterable[Any], count: int) -> float:
    """Tokens per second of a stream of `count` tokens that was asked for at `began`, a time of
    `time.perf_counter`. Raises `PairError` if the stream holds nothing.

    The time to the first token is in it: on a busy machine chunks may wait and arrive together, so
    that the time between the first and the last of them says nothing.
    """
    times = [time.perf_counter() for chunk in chunks if chunk]
    if not times:
        raise PairError(f"{server.shown} streams nothing: its own speed is unknown.")
    return count / (times[-1] - began)

"""What the adapters of all engines read alike."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PairError
from .interface import UnsuitedError
from .wire import Server


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

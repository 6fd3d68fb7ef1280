"""What every source of drafts has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ...settings import Settings
from ..numpy_path import Forward, HostSource
from ..sampling import Source, sample, uniforms

UNLIMITED = 1_000_000  # tokens, more than any run drafts


class Draft(NamedTuple):
    """A draft run of n tokens, valid until the next one.

    ids: int64 [n]. q: fp32 [n, vocab], the very rows that `ids` was drawn from.
    rows: of logits, perhaps over the temperature, fp32 [.., vocab], n in all, what q was made
    of; None if no model made it.
    """

    ids: Tensor
    q: Tensor
    rows: Sequence[Tensor] | None

    @property
    def logits(self) -> Tensor | None:
        """`rows` as one, fp32 [n, vocab]."""
        return torch.cat(tuple(self.rows)) if self.rows else None


class Drafter(Protocol):
    """A source of drafts for one run.

    form: the implementation of the engine that it drafts with; None if it runs no model.
    layers: how many of the target's layers it drafts with, if it drafts with them.
    """

    layers: int | None

    @property
    def form(self) -> str | None: ...

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; returns synchronised seconds."""
        ...

    def room(self, length: int) -> int:
        """How many tokens could be drafted after `length` committed ones."""
        ...

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        """Up to `count` tokens (at least 1) to follow the committed `ids`; None if it has none.

        How many it gives may depend on `ids`, but not on what it draws.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget drafts: only the first `length` tokens are committed and may be cached."""
        ...

    def price(self) -> float:
        """Of one draft step, as `prices.pass_price` counts."""
        ...


def draft_run(
    forward: Forward,
    feed: Tensor,
    count: int,
    settings: Settings,
    source: Source,
) -> Draft:
    """`count` tokens drawn one after the other.

    forward: int64 ids [n] and a number to the fp32 logits of the last of them over that number,
    [1, vocab]. feed: the first ids that it takes. `ids` and `q` of the draft are on the source's
    device.
    """
    if isinstance(source, HostSource) and feed.is_cpu:
        return Draft(*source.draft(forward, feed, count))
    draws = uniforms(count, source)
    place = draws.device
    draws = draws.to(feed.device)
    drafted, rows, logits = [], [], []
    for step in range(count):
        row = forward(feed, 1.0)  # [1, vocab]
        q, feed = sample(row, settings, draws[step : step + 1])
        drafted.append(feed)
        rows.append(q)
        logits.append(row)
    return Draft(torch.cat(drafted).to(place), torch.cat(rows).to(place), logits)


class NoDrafter:
    """Has room for no draft, so that none is ever asked for."""

    form: str | None = None
    layers: int | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        return 0.0

    def room(self, length: int) -> int:
        return 0

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        return None

    def rollback(self, length: int) -> None:
        pass

    def price(self) -> float:
        return 0.0

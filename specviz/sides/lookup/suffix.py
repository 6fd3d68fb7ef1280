"""Drafts from counts: what followed the longest run at the text's end, in this text and in earlier
ones.

After Oliaro et al. 2024 (SuffixDecoding, arXiv 2411.04975) and Hu et al. 2024 (SAM Decoding,
arXiv 2411.10666). Unlike there, a sampled draft is drawn from the shares with which tokens
followed: these shares are q, so the verdict corrects them by the ordinary rule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.drafting import Drafter
from ...core.types import Draft, RunContext
from ...pairs.pair import Pair
from .suffix_index import Context, Followers, SuffixIndex

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

LEAST_CHANCE = 0.2
"""A draft ends where its likeliest continuation would hold with less chance than this: about the
cost of a further token in a target pass, in passes."""


class SuffixDrafter(Drafter):
    """Counts over the prompt, the text so far and the earlier texts of the run: committed tokens
    only."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        self._run = run
        self._index = SuffixIndex()
        for text in run.memory:
            self._index.extend(text)
            self._index.separate()
        self._before = self._index.size  # ids of earlier texts and between them
        self._rows = _Rows(run.vocab, run.device)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids[self._index.size - self._before :])
        seen = self._confident(count)
        if not seen:
            return None
        run = self._run
        if run.settings.greedy:
            drafted = [followers.ids[followers.likeliest] for followers in seen]
            q = self._rows.write([[i] for i in drafted], [[1.0]] * len(drafted))
        else:
            drafted, seen = self._drawn(len(seen))
            q = self._rows.write([f.ids for f in seen], [f.shares for f in seen])
        return Draft(
            torch.tensor(drafted, device=run.device),
            q,
            _Shares(seen, run.vocab, run.device) if run.settings.greedy else None,
            [followers.total for followers in seen],
        )

    def _confident(self, most: int) -> list[Followers]:
        """What the likeliest continuation is drawn from, as far as it is likely to hold: so many
        tokens are drafted.

        It looks at the text alone, before anything is drawn: a length that depended on what is
        drawn would bias the text.
        """
        context, chance = self._index.context(), 1.0
        found: list[Followers] = []
        while context.size and len(found) < most:
            followers = self._index.followers(context)
            chance *= chance_of_likeliest(context, followers)
            if chance < LEAST_CHANCE:
                break
            found.append(followers)
            context = self._index.after(context, followers.ids[followers.likeliest])
        return found

    def _drawn(self, count: int) -> tuple[list[int], list[Followers]]:
        """`count` tokens, drawn one after another, and what each was drawn from."""
        context = self._index.context()
        drafted: list[int] = []
        seen: list[Followers] = []
        for u in self._run.host.take(count).tolist():
            followers = self._index.followers(context)
            drafted.append(followers.ids[_drawn_place(followers, u)])
            seen.append(followers)
            context = self._index.after(context, drafted[-1])
        return drafted, seen


def chance_of_likeliest(context: Context, followers: Followers) -> float:
    """An estimate of the chance that the likeliest follower of a run holds: its share, discounted
    for short runs. A run of one id says as much as no run at all, so it counts half."""
    share = followers.counts[followers.likeliest] / followers.total
    return share * context.size / (context.size + 1)


def _drawn_place(followers: Followers, uniform: float) -> int:
    """A place among the followers, drawn with their shares."""
    # The product is below the sum, because a draw is below 1.
    return bisect_right(list(accumulate(followers.counts)), uniform * followers.total)


class _Rows:
    """Rows of shares in memory that is used again: few entries of a row are not 0, and a
    vocabulary is long."""

    def __init__(self, vocab: int, device: torch.device) -> None:
        self._vocab, self._device = vocab, device
        self._q = torch.zeros(0, vocab, device=device)
        self._written: list[int] = []  # places in `_q`, row after row

    def write(self, ids: list[list[int]], shares: list[list[float]]) -> Tensor:
        """fp32 [n, vocab], valid until the next call: the shares of the ids of each row."""
        if len(self._q) < len(ids):
            self._q, self._written = torch.zeros(len(ids), self._vocab, device=self._device), []
        places = [row * self._vocab + i for row, some in enumerate(ids) for i in some]
        values = [share for some in shares for share in some]
        flat = self._q.view(-1)
        if self._device.type == "cpu":  # a call of torch takes some microseconds
            array = flat.numpy()
            array[self._written] = 0.0
            array[places] = values
        else:
            flat[torch.tensor(self._written, dtype=torch.long, device=self._device)] = 0.0
            flat[torch.tensor(places, device=self._device)] = torch.tensor(
                values, device=self._device
            )
        self._written = places
        return self._q[: len(ids)]


class _Shares(Sequence[Tensor]):
    """What followed each context, as logits whose softmax are the shares. They are made when they
    are read, for the cards: no clock runs then."""

    def __init__(self, seen: list[Followers], vocab: int, device: torch.device) -> None:
        self._seen, self._vocab, self._device = seen, vocab, device

    def __len__(self) -> int:
        return len(self._seen)

    def __getitem__(self, place: int) -> Tensor:  # type: ignore[override]
        followers = self._seen[place]
        row = torch.full((1, self._vocab), -torch.inf, device=self._device)
        row[0, followers.ids] = torch.tensor(followers.shares, device=self._device).log()
        return row

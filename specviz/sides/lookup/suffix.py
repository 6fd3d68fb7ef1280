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

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids[self._index.size - self._before :])
        seen = self._confident(count)
        if not seen:
            return None
        run = self._run
        if run.settings.greedy:
            drafted = [followers.ids[followers.likeliest] for followers in seen]
            q = _rows([[i] for i in drafted], [[1.0]] * len(drafted), run)
        else:
            drafted, seen = self._drawn(len(seen))
            q = _rows([f.ids for f in seen], [f.shares for f in seen], run)
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


def _rows(ids: list[list[int]], shares: list[list[float]], run: RunContext) -> Tensor:
    """fp32 [n, vocab]: in each row the shares of its ids, and 0 elsewhere."""
    rows = torch.zeros(len(ids), run.vocab)
    for row, some, values in zip(rows.numpy(), ids, shares, strict=True):
        row[some] = values
    return rows.to(run.device)


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

"""Drafts from counts: what followed the longest run at the text's end, in this text and in earlier
ones.

After Oliaro et al. 2024 (SuffixDecoding, arXiv 2411.04975) and Hu et al. 2024 (SAM Decoding,
arXiv 2411.10666). Unlike there, a sampled draft is drawn from the shares with which tokens
followed: these shares are q, so the verdict corrects them by the ordinary rule.

Runs of up to `DEPTH` ids are counted in a tree. A run that occurred once is a leaf: what followed
it stands in the text, and is looked up when the run occurs again or is asked about. So the tree
grows by what repeats itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...core.drafting import Drafter
from ...core.pair import Pair
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

LEAST_CHANCE = 0.2
"""A draft ends where its likeliest continuation would hold with less chance than this: about the
cost of a further token in a target pass, in passes."""


DEPTH = 24  # ids of the longest run that is counted: a context and what follows it
SEPARATOR = -1  # stands between texts; never an id
ROOT = 0


Context: TypeAlias = Sequence[int]
"""A run of ids that stood in the text before: the places in the tree of all its ends, the shortest
first, so as many as it has ids."""


class Followers(NamedTuple):
    """What followed a run: ids in order of their first occurrence, how often each, the sum.

    likeliest: the place in `ids` of the most frequent one; of equally frequent ones, the latest.
    """

    ids: list[int]
    counts: list[int]
    total: int
    likeliest: int

    @property
    def shares(self) -> list[float]:
        """The share of each."""
        return [count / self.total for count in self.counts]


class SuffixIndex:
    """Counts of all runs of up to `DEPTH` ids in the texts that were added.

    Adding an id takes at most `DEPTH` steps.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        # Of each run: how often it occurred, the place after its last occurrence, what followed.
        self._count = [0]
        self._latest = [0]
        self._next: list[dict[int, int]] = [{}]
        self._ends: list[int] = []  # of the text, the shortest first, that occurred before

    @property
    def size(self) -> int:
        """Ids added, and ends of texts."""
        return len(self._ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids at the end of the text."""
        for token_id in ids:
            self._ids.append(token_id)
            ends = []
            for run in (ROOT, *self._ends)[:DEPTH]:
                longer = self._next[run].get(token_id)
                if longer is None:
                    self._add(run, token_id, self.size)
                    continue
                self._followers(longer)  # while its count and place are those of its first time
                self._count[longer] += 1
                self._latest[longer] = self.size
                ends.append(longer)
            self._ends = ends

    def separate(self) -> None:
        """End a text: what is added next does not follow from it."""
        self._ids.append(SEPARATOR)
        self._ends = []

    def context(self) -> Context:
        """The longest run at the text's end that was followed by something before; empty if there
        is none."""
        return self._followed(self._ends)

    def after(self, context: Context, token_id: int) -> Context:
        """The longest run that ends `context` and `token_id`, and was followed by something; the
        empty one, which all ids follow, if there is none."""
        return self._followed([self._followers(run)[token_id] for run in (ROOT, *context)])

    def followers(self, context: Context) -> Followers:
        """What followed a run that `context` or `after` returned."""
        found = self._followers(context[-1] if context else ROOT)
        counts = [self._count[run] for run in found.values()]
        ranks = list(zip(counts, map(self._latest.__getitem__, found.values()), strict=True))
        return Followers(list(found), counts, sum(counts), ranks.index(max(ranks)))

    def _followed(self, ends: Context) -> Context:
        # With what follows it, a run must still be short enough to be counted.
        size = min(len(ends), DEPTH - 1)
        while size and not self._followers(ends[size - 1]):
            size -= 1
        return ends[:size]

    def _followers(self, run: int) -> dict[int, int]:
        found, place = self._next[run], self._latest[run]
        is_leaf = not found and self._count[run] == 1 and place < self.size
        if is_leaf and self._ids[place] != SEPARATOR:
            self._add(run, self._ids[place], place + 1)
        return found

    def _add(self, run: int, token_id: int, place: int) -> None:
        self._next[run][token_id] = len(self._count)
        self._count.append(1)
        self._latest.append(place)
        self._next.append({})


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
        seen, run = self._confident(count), self._run
        if not seen:
            return None
        if run.settings.greedy:
            draft = Draft.certain([found.ids[found.likeliest] for found in seen], run)
            rows: Sequence[Tensor] | None = _Shares(seen, run.vocab, run.device)
        else:
            drafted, seen = self._drawn(len(seen))
            q = torch.zeros(len(seen), run.vocab)
            for row, found in zip(q.numpy(), seen, strict=True):
                row[found.ids] = found.shares
            draft = Draft(torch.tensor(drafted, device=run.device), q.to(run.device))
            rows = None
        return replace(draft, rows=rows, seen=[found.total for found in seen])

    def _confident(self, most: int) -> list[Followers]:
        """What the likeliest continuation is drawn from, as far as it is likely to hold: so many
        tokens are drafted.

        It looks at the text alone, before anything is drawn: a length that depended on what is
        drawn would bias the text.
        """
        context, chance = self._index.context(), 1.0
        found: list[Followers] = []
        while context and len(found) < most:
            followers = self._index.followers(context)
            chance *= chance_of_likeliest(len(context), followers)
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


def chance_of_likeliest(size: int, followers: Followers) -> float:
    """An estimate of the chance that the likeliest follower of a run holds: its share, discounted
    for runs of a small size. A run of one id says as much as no run at all, so it counts half."""
    share = followers.counts[followers.likeliest] / followers.total
    return share * size / (size + 1)


def _drawn_place(followers: Followers, uniform: float) -> int:
    """A place among the followers, drawn with their shares."""
    # The product is below the sum, because a draw is below 1.
    return bisect_right(list(accumulate(followers.counts)), uniform * followers.total)


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

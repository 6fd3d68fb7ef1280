"""Drafts from counts: what followed the longest run at the text's end, in this text and in earlier
ones.

After Oliaro et al. 2024 (SuffixDecoding, arXiv 2411.04975) and Hu et al. 2024 (SAM Decoding,
arXiv 2411.10666). Unlike there, a sampled draft is drawn from the shares with which tokens
followed: these shares are q, so the verdict corrects them by the ordinary rule.

Runs are counted by a suffix automaton, which grows by one id at a time as Blumer et al. 1985
describe ("The smallest automaton recognizing the subwords of a text"). Its states stand for the
runs of ids with the same set of end places. Counting all of them would take a step per state on the
way to the root, which for a text that repeats one id is as long as the text: so only runs of up to
`DEPTH` ids are counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...core.drafting import Drafter
from ...core.types import Draft, RunContext
from ...pairs.pair import Pair

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

LEAST_CHANCE = 0.2
"""A draft ends where its likeliest continuation would hold with less chance than this: about the
cost of a further token in a target pass, in passes."""


DEPTH = 24  # ids of the longest run that is counted: a context and what follows it
SEPARATOR = -1  # stands between texts; never an id
ROOT = 0


class Context(NamedTuple):
    """A run of `size` ids that stood in the text before, as a state of the automaton."""

    state: int
    size: int


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

    Adding an id takes at most `DEPTH` steps and a constant number on average; memory is linear in
    the number of ids.
    """

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [ROOT]
        self._length = [0]  # of the longest run of each state
        self._count = [0]
        self._latest = [0]  # the place of each state's last occurrence
        self._last = ROOT  # the state of the whole text
        self._end = Context(ROOT, 0)  # of its last ids, up to `DEPTH`
        self.size = 0  # ids added

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids at the end of the text."""
        for token_id in ids:
            self._grow(token_id)
            self._count_end(token_id)

    def separate(self) -> None:
        """End a text: what is added next does not follow from it."""
        self.extend((SEPARATOR,))
        self._end = Context(ROOT, 0)

    def context(self) -> Context:
        """The longest run at the text's end that was followed by something before; of size 0 if
        there is none."""
        return self._followed(*self._end)

    def after(self, context: Context, token_id: int) -> Context:
        """The longest run that ends `context` and `token_id`, and was followed by something; of
        size 0, which all ids follow, if there is none."""
        return self._followed(self._next[context.state][token_id], context.size + 1)

    def followers(self, context: Context) -> Followers:
        """What followed a run that `context` or `after` returned."""
        ids: list[int] = []
        counts: list[int] = []
        best, highest = 0, (0, 0)
        for token_id, state in self._next[context.state].items():
            if token_id == SEPARATOR:
                continue
            rank = self._count[state], self._latest[state]
            if rank > highest:
                best, highest = len(ids), rank
            ids.append(token_id)
            counts.append(rank[0])
        return Followers(ids, counts, sum(counts), best)

    def _followed(self, state: int, size: int) -> Context:
        """The longest run of up to `size` ids, at or above `state`, that something followed."""
        # With what follows it, a run must still be short enough to be counted.
        found = self._settled(state, min(size, DEPTH - 1))
        while found.size:
            moves = self._next[found.state]
            if len(moves) > (SEPARATOR in moves):
                return found
            shorter = self._link[found.state]
            found = Context(shorter, self._length[shorter])
        return found

    def _state(self, length: int, link: int, followers: dict[int, int], count: int) -> int:
        self._next.append(followers)
        self._link.append(link)
        self._length.append(length)
        self._count.append(count)
        self._latest.append(self.size)
        return len(self._link) - 1

    def _grow(self, token_id: int) -> None:
        """The automaton of the text with one more id."""
        place, links, moves = self._last, self._link, self._next
        self._last = state = self._state(self._length[place] + 1, ROOT, {}, 0)
        while token_id not in moves[place]:
            moves[place][token_id] = state
            if place == ROOT:
                return
            place = links[place]
        found = moves[place][token_id]
        if self._length[found] == self._length[place] + 1:
            links[state] = found
            return
        # The shorter runs of `found` occur here too and its longer ones do not: they part.
        count, length = self._count[found], self._length[place] + 1
        clone = self._state(length, links[found], dict(moves[found]), count)
        links[found] = links[state] = clone
        while moves[place].get(token_id) == found:
            moves[place][token_id] = clone
            if place == ROOT:
                return
            place = links[place]

    def _count_end(self, token_id: int) -> None:
        """Count the runs of up to `DEPTH` ids at the text's end, to which `token_id` was added."""
        self.size += 1
        # Its state may just have parted: both parts go on to the same state with this id.
        state, size = self._end
        self._end = self._settled(self._next[state][token_id], min(size + 1, DEPTH))
        state = self._end.state
        while state != ROOT:
            self._count[state] += 1
            self._latest[state] = self.size
            state = self._link[state]

    def _settled(self, state: int, size: int) -> Context:
        """The state of the last `size` ids, at or above `state`."""
        while state != ROOT and self._length[self._link[state]] >= size:
            state = self._link[state]
        return Context(state, size)


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

"""How often each run of ids stood in a text, and what followed it: a suffix automaton with counts.

The automaton grows by one id at a time, as Blumer et al. 1985 describe ("The smallest automaton
recognizing the subwords of a text"). Its states stand for the runs of ids with the same set of end
places. Counting all of them would take a step per state on the way to the root, which for a text
that repeats one id is as long as the text: so only runs of up to `DEPTH` ids are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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

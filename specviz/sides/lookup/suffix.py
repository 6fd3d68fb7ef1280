"""Drafts from counts of the tokens that followed the longest run at the text's end, in this text
and in earlier ones.

After Oliaro et al. 2024 (SuffixDecoding, arXiv 2411.04975) and Hu et al. 2024 (SAM Decoding, arXiv
2411.10666). Unlike there, a sampled draft is drawn from the shares of the followers: these shares
are q, so the verdict corrects them by the ordinary rule.

Runs of up to `DEPTH` ids are counted in a tree. A run that occurred once is a leaf: its followers
are in the text, and are looked up when the run occurs again or is queried. So the tree grows only
with repetitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...core.drafter import Drafter
from ...core.pair import Pair
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

MIN_CHANCE = 0.2
"""A draft ends where its likeliest continuation has a lower chance: about the cost of a further
token in a target pass, in passes."""


DEPTH = 24  # ids of the longest counted run: a context and its follower
SEPARATOR = -1  # stands between texts; never an id
ROOT = 0


Context: TypeAlias = Sequence[int]
"""A run of ids that occurred in the text before: the tree's nodes for all its suffixes, the
shortest first, so as many as it has ids."""


class Followers(NamedTuple):
    """The ids that followed a run, in order of their first occurrence, with their counts and the
    sum.

    likeliest: the index in `ids` of the most frequent one; of equally frequent ones, the latest.
    """

    ids: list[int]
    counts: list[int]
    total: int
    likeliest: int

    @property
    def likeliest_id(self) -> int:
        """The most frequent id."""
        return self.ids[self.likeliest]

    @property
    def shares(self) -> list[float]:
        """The share of each id."""
        return [count / self.total for count in self.counts]


class SuffixIndex:
    """Counts of all runs of up to `DEPTH` ids in the added texts.

    Each run is a node of the tree, identified by its number. Adding an id takes at most `DEPTH`
    steps.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        # By node: the run's count, the position after its last occurrence, and the nodes of the
        # runs longer by an id, by that id.
        self._count = [0]
        self._latest = [0]
        self._next: list[dict[int, int]] = [{}]
        # Nodes of the runs at the text's end that occurred before, the shortest first.
        self._ends: list[int] = []

    @property
    def size(self) -> int:
        """The number of added ids and separators."""
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
                self._followers(longer)  # while its counts are those of its first occurrence
                self._count[longer] += 1
                self._latest[longer] = self.size
                ends.append(longer)
            self._ends = ends

    def separate(self) -> None:
        """End a text: ids added next do not follow it."""
        self._ids.append(SEPARATOR)
        self._ends = []

    def context(self) -> Context:
        """The longest run at the text's end that had a follower before; empty if there is none."""
        return self._followed(self._ends)

    def after(self, context: Context, token_id: int) -> Context:
        """The longest run at the end of `context` and `token_id` that had a follower; if there is
        none, the empty run, which all ids follow."""
        ends = []
        for run in (ROOT, *context):
            followers = self._followers(run)
            ends.append(followers[token_id])
        return self._followed(ends)

    def followers(self, context: Context) -> Followers:
        """The followers of a run that `context` or `after` returned."""
        run = context[-1] if context else ROOT
        nodes = self._followers(run)
        counts = []
        ranks = []
        for node in nodes.values():
            count = self._count[node]
            counts.append(count)
            ranks.append((count, self._latest[node]))
        return Followers(
            ids=list(nodes),
            counts=counts,
            total=sum(counts),
            likeliest=ranks.index(max(ranks)),
        )

    def _followed(self, ends: Context) -> Context:
        """The longest of these runs that has followers."""
        # Together with its follower, a run must still be short enough to be counted.
        size = min(len(ends), DEPTH - 1)
        while size and not self._followers(ends[size - 1]):
            size -= 1
        return ends[:size]

    def _followers(self, run: int) -> dict[int, int]:
        """The nodes of the runs longer by an id, by that id."""
        nodes = self._next[run]
        position = self._latest[run]
        is_leaf = not nodes and self._count[run] == 1
        if is_leaf and position < self.size:
            follower = self._ids[position]
            if follower != SEPARATOR:
                self._add(run, follower, position + 1)
        return nodes

    def _add(self, run: int, token_id: int, position: int) -> None:
        """Add a node for `run` and an id after it, which occurred once, before this position."""
        self._next[run][token_id] = len(self._count)
        self._count.append(1)
        self._latest.append(position)
        self._next.append({})


class SuffixDrafter(Drafter):
    """Drafts from counts over the prompt, the text so far and the earlier texts of the run:
    committed tokens only."""

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        self._run = run
        self._index = SuffixIndex()
        for text in run.memory:
            self._index.extend(text)
            self._index.separate()
        self._before = self._index.size  # ids of earlier texts and between them

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        known = self._index.size - self._before  # ids of this text
        self._index.extend(ids[known:])
        confident = self._confident(count)
        if not confident:
            return None
        if self._run.settings.greedy:
            return self._likeliest_draft(confident)
        return self._drawn_draft(len(confident))

    def _likeliest_draft(self, followers: list[Followers]) -> Draft:
        run = self._run
        likeliest_ids = [step.likeliest_id for step in followers]
        return replace(
            Draft.certain(likeliest_ids, run),
            step_logits=_Shares(followers, run.vocab, run.device),
            seen=[step.total for step in followers],
        )

    def _drawn_draft(self, count: int) -> Draft:
        run = self._run
        drafted, followers = self._drawn(count)
        q = torch.zeros(count, run.vocab)
        for distribution, step in zip(q.numpy(), followers, strict=True):
            distribution[step.ids] = step.shares
        return Draft(
            torch.tensor(drafted, device=run.device),
            q.to(run.device),
            seen=[step.total for step in followers],
        )

    def _confident(self, limit: int) -> list[Followers]:
        """The followers along the likeliest continuation, as long as it is likely enough; as many
        tokens are drafted.

        It looks at the text alone, before anything is drawn: a length that depended on the draws
        would bias the text.
        """
        context = self._index.context()
        chance = 1.0
        confident: list[Followers] = []
        while context and len(confident) < limit:
            followers = self._index.followers(context)
            chance *= chance_of_likeliest(len(context), followers)
            if chance < MIN_CHANCE:
                break
            confident.append(followers)
            context = self._index.after(context, followers.likeliest_id)
        return confident

    def _drawn(self, count: int) -> tuple[list[int], list[Followers]]:
        """`count` tokens, drawn one after another, and the followers from which each was drawn."""
        context = self._index.context()
        drafted: list[int] = []
        drawn_from: list[Followers] = []
        for u in self._run.drafter_draws.take(count).tolist():
            followers = self._index.followers(context)
            token_id = followers.ids[_drawn_index(followers, u)]
            drafted.append(token_id)
            drawn_from.append(followers)
            context = self._index.after(context, token_id)
        return drafted, drawn_from


def chance_of_likeliest(size: int, followers: Followers) -> float:
    """An estimate of the chance that the likeliest follower of a run is accepted: its share,
    discounted for short runs. A run of one id says as much as no run at all, so it counts half."""
    share = followers.counts[followers.likeliest] / followers.total
    return share * size / (size + 1)


def _drawn_index(followers: Followers, uniform: float) -> int:
    """The index of a follower, drawn by the followers' shares."""
    sums = list(accumulate(followers.counts))
    # The product is below the last sum, because a draw is below 1.
    return bisect_right(sums, uniform * followers.total)


class _Shares(Sequence[Tensor]):
    """Logits after each context, whose softmax is the followers' shares. They are computed when
    the cards read them, while no clock runs."""

    def __init__(self, followers: list[Followers], vocab: int, device: torch.device) -> None:
        self._followers = followers
        self._vocab = vocab
        self._device = device

    def __len__(self) -> int:
        return len(self._followers)

    def __getitem__(self, step: int) -> Tensor:  # type: ignore[override]
        followers = self._followers[step]
        shares = torch.tensor(followers.shares, device=self._device)
        logits = torch.full((1, self._vocab), -torch.inf, device=self._device)
        logits[0, followers.ids] = shares.log()
        return logits

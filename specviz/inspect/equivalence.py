"""The equivalence test: do both lanes draw texts from the same distribution?

Speculative decoding is exact if drafts do not change the probability of any text. One run cannot
show that. The test draws some hundred short continuations of one prompt in each lane, and compares
how often each continuation was drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Outcome: TypeAlias = tuple[int, ...]

FEWEST = 10  # the fewest draws of both lanes together in a cell, so that 5 are expected in each
SHARE_LISTED = 0.5  # the least share of draws whose outcomes have a cell of their own


class Continuation(NamedTuple):
    """The tokens that one draw emitted: their ids and their text."""

    ids: Outcome
    text: str


class Cell(NamedTuple):
    """How often each lane drew an outcome: `ours` with drafts, `theirs` without.

    The outcome () stands for all rare outcomes together.
    """

    outcome: Outcome
    ours: int
    theirs: int


class Comparison(NamedTuple):
    """The result of a chi-square test of whether two samples have one distribution.

    length: how many leading tokens were compared. cells: the most frequent first, the rare
        outcomes together last. statistic, degrees: chi-square and its degrees of freedom. p_value:
        the probability that two samples of one distribution differ at least as much; None if
        there is only one cell.
    """

    length: int
    cells: tuple[Cell, ...]
    statistic: float
    degrees: int
    p_value: float | None


def two_sample_chi_square(a: Sequence[Outcome], b: Sequence[Outcome]) -> Comparison:
    """Test whether two samples come from one distribution (Pearson's test of homogeneity).

    Outcomes with fewer than `FEWEST` draws in both samples together share one cell. If that cell
    would hold most draws, fewer leading tokens are compared. Both choices use only the sum of the
    samples, not their difference, so they do not bias the test.
    """
    longest = max(map(len, [*a, *b]))
    for length in range(longest, 0, -1):
        cells = _cells([o[:length] for o in a], [o[:length] for o in b])
        listed = sum(cell.ours + cell.theirs for cell in cells if cell.outcome)
        if listed >= SHARE_LISTED * (len(a) + len(b)):
            break
    statistic, degrees = 0.0, len(cells) - 1
    for cell in cells:
        for seen, draws in ((cell.ours, len(a)), (cell.theirs, len(b))):
            if expected := draws * (cell.ours + cell.theirs) / (len(a) + len(b)):
                statistic += (seen - expected) ** 2 / expected
    return Comparison(length, cells, statistic, degrees, tail(statistic, degrees))


def _cells(a: Sequence[Outcome], b: Sequence[Outcome]) -> tuple[Cell, ...]:
    ours, theirs, both = Counter(a), Counter(b), Counter([*a, *b])
    common = sorted((o for o in both if o and both[o] >= FEWEST), key=lambda o: (-both[o], o))
    cells = [Cell(outcome, ours[outcome], theirs[outcome]) for outcome in common]
    rest = Cell((), len(a) - sum(c.ours for c in cells), len(b) - sum(c.theirs for c in cells))
    if cells and 0 < rest.ours + rest.theirs < FEWEST:
        # Too few draws for a cell: they are added to the rarest cell.
        last = cells.pop()
        rest = Cell((), last.ours + rest.ours, last.theirs + rest.theirs)
    return (*cells, rest) if rest.ours + rest.theirs or not cells else tuple(cells)


def tail(statistic: float, degrees: int) -> float | None:
    """P(X >= statistic) for X chi-square distributed: Q(degrees / 2, statistic / 2)."""
    if degrees == 0:
        return None
    import torch  # here, because importing it takes seconds and readers of results do not need it

    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))

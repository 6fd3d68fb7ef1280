"""The equivalence test: do both lanes draw texts from the same distribution?

Speculative decoding is exact if drafts do not change the probability of any text. One run cannot
show that. The test draws some hundred short continuations of one prompt in each lane, and compares
how often each continuation was drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Outcome: TypeAlias = tuple[int, ...]

MIN_DRAWS = 10  # least draws of both lanes together in a cell, so that 5 are expected in each
SIGNIFICANCE = 1e-3  # a kept distribution gives a lower p-value once in a thousand times
EXPECTED = 5.0  # the fewest expected draws of a cell
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

    @property
    def draws(self) -> int:
        """The draws of both lanes together."""
        return self.ours + self.theirs


class Comparison(NamedTuple):
    """The result of a chi-square test of whether two samples have one distribution.

    length: how many leading tokens were compared.
    cells: the most frequent first, the rare outcomes together last.
    statistic, degrees: chi-square and its degrees of freedom.
    p_value: the probability that two samples of one distribution differ at least as much; None if
        there is only one cell.
    """

    length: int
    cells: tuple[Cell, ...]
    statistic: float
    degrees: int
    p_value: float | None


def two_sample_chi_square(a: Sequence[Outcome], b: Sequence[Outcome]) -> Comparison:
    """Test whether two samples come from one distribution (Pearson's test of homogeneity).

    Outcomes with fewer than `MIN_DRAWS` draws in both samples together share one cell. If that cell
    would hold most draws, fewer leading tokens are compared. Both choices use only the sum of the
    samples, not their difference, so they do not bias the test.
    """
    draws = len(a) + len(b)
    longest = max(map(len, [*a, *b]))
    for length in range(longest, 0, -1):
        beginnings_of_a = [outcome[:length] for outcome in a]
        beginnings_of_b = [outcome[:length] for outcome in b]
        cells = _cells(beginnings_of_a, beginnings_of_b)
        listed = sum(cell.draws for cell in cells if cell.outcome)
        if listed >= SHARE_LISTED * draws:
            break
    statistic = 0.0
    for cell in cells:
        expected_ours = len(a) * cell.draws / draws
        expected_theirs = len(b) * cell.draws / draws
        if expected_ours:
            statistic += (cell.ours - expected_ours) ** 2 / expected_ours
        if expected_theirs:
            statistic += (cell.theirs - expected_theirs) ** 2 / expected_theirs
    degrees = len(cells) - 1
    return Comparison(
        length=length,
        cells=cells,
        statistic=statistic,
        degrees=degrees,
        p_value=tail(statistic, degrees),
    )


def _cells(a: Sequence[Outcome], b: Sequence[Outcome]) -> tuple[Cell, ...]:
    ours = Counter(a)
    theirs = Counter(b)
    both = ours + theirs
    common = [outcome for outcome, draws in both.items() if outcome and draws >= MIN_DRAWS]
    common.sort(key=lambda outcome: (-both[outcome], outcome))
    cells = [Cell(outcome, ours[outcome], theirs[outcome]) for outcome in common]
    listed_ours = sum(cell.ours for cell in cells)
    listed_theirs = sum(cell.theirs for cell in cells)
    rare = Cell((), len(a) - listed_ours, len(b) - listed_theirs)
    if cells and 0 < rare.draws < MIN_DRAWS:
        # Too few draws for a cell: they are added to the rarest cell.
        last = cells.pop()
        rare = Cell((), last.ours + rare.ours, last.theirs + rare.theirs)
    if rare.draws or not cells:
        cells.append(rare)
    return tuple(cells)


def chi_square(
    drawn: Mapping[Outcome, int], law: Mapping[Outcome, float], runs: int
) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; texts that are expected less than `EXPECTED`
    times share one cell."""
    counts: Counter[Outcome] = Counter()
    expected: dict[Outcome, float] = defaultdict(float)
    for text, probability in law.items():
        mean = runs * probability
        cell: Outcome = ()
        if mean >= EXPECTED:
            cell = text
        counts[cell] += drawn.get(text, 0)
        expected[cell] += mean
    statistic = sum((counts[cell] - mean) ** 2 / mean for cell, mean in expected.items())
    return statistic, len(expected) - 1


def tail(statistic: float, degrees: int) -> float | None:
    """P(X >= statistic) for X chi-square distributed: Q(degrees / 2, statistic / 2)."""
    if degrees == 0:
        return None
    import torch  # imported here: the import takes seconds, and readers of results do not need it

    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))

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
    """How often each lane drew an outcome: `speculative` with drafts, `baseline` without.

    The outcome () stands for all rare outcomes together.
    """

    outcome: Outcome
    speculative: int
    baseline: int

    @property
    def draws(self) -> int:
        """The draws of both lanes together."""
        return self.speculative + self.baseline


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


def two_sample_chi_square(
    speculative: Sequence[Outcome], baseline: Sequence[Outcome]
) -> Comparison:
    """Test whether two samples come from one distribution (Pearson's test of homogeneity).

    Outcomes with fewer than `MIN_DRAWS` draws in both samples together share one cell. If that cell
    would hold most draws, fewer leading tokens are compared. Both choices use only the sum of the
    samples, not their difference, so they do not bias the test.
    """
    draws = len(speculative) + len(baseline)
    longest = max(map(len, [*speculative, *baseline]))
    for length in range(longest, 0, -1):
        cells = _cells(
            [outcome[:length] for outcome in speculative],
            [outcome[:length] for outcome in baseline],
        )
        listed = sum(cell.draws for cell in cells if cell.outcome)
        if listed >= SHARE_LISTED * draws:
            break
    statistic = 0.0
    for cell in cells:
        expected_speculative = len(speculative) * cell.draws / draws
        expected_baseline = len(baseline) * cell.draws / draws
        if expected_speculative:
            statistic += (cell.speculative - expected_speculative) ** 2 / expected_speculative
        if expected_baseline:
            statistic += (cell.baseline - expected_baseline) ** 2 / expected_baseline
    degrees = len(cells) - 1
    return Comparison(
        length=length,
        cells=cells,
        statistic=statistic,
        degrees=degrees,
        p_value=tail(statistic, degrees),
    )


def _cells(speculative: Sequence[Outcome], baseline: Sequence[Outcome]) -> tuple[Cell, ...]:
    counts = Counter(speculative)
    baseline_counts = Counter(baseline)
    both = counts + baseline_counts
    common = [outcome for outcome, draws in both.items() if outcome and draws >= MIN_DRAWS]
    common.sort(key=lambda outcome: (-both[outcome], outcome))
    cells = [Cell(outcome, counts[outcome], baseline_counts[outcome]) for outcome in common]
    listed = sum(cell.speculative for cell in cells)
    listed_of_baseline = sum(cell.baseline for cell in cells)
    rare = Cell((), len(speculative) - listed, len(baseline) - listed_of_baseline)
    if cells and 0 < rare.draws < MIN_DRAWS:
        # Too few draws for a cell: they are added to the rarest cell.
        last = cells.pop()
        rare = Cell((), last.speculative + rare.speculative, last.baseline + rare.baseline)
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

"""The costs of rounds, from the races of a sweep, and the speed-up that they predict for rows that
were not measured."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..races import RaceFigures
from .predicted_rounds import Rounds


@dataclass(slots=True)
class Costs:
    """The costs of each race, in rounds of the target alone.

    verify: of a target pass, by its width. step: of a draft step, by drafter. overhead: of a round.
    c: a draft step in target passes, by drafter, as in `Metrics`. rounds: the number of rounds
    behind each drafter's costs.
    """

    verify: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    step: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    overhead: list[float] = field(default_factory=list)
    c: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    rounds: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, runs: Iterable[RaceFigures]) -> Costs:
        """Collect the costs of races."""
        costs = cls()
        for run in runs:
            costs._add(run)
        return costs

    def _add(self, run: RaceFigures) -> None:
        if run.costs is None:
            return
        drafter = run.key.split()[0]
        for width, cost in run.costs.verify.items():
            self.verify[width].append(cost)
        if run.costs.step is not None:
            self.step[drafter].append(run.costs.step)
        if run.metrics.c is not None:
            self.c[drafter].append(run.metrics.c)
        self.overhead.append(run.costs.overhead)
        self.rounds[drafter] += run.rounds.total()

    def speedup(self, drafter: str, rounds: Rounds) -> float | None:
        """Divide the tokens of such rounds by their cost in rounds of the target alone; None if a
        cost is unknown. The result is at most tau / (1 + c * drafts): no pass costs less than that
        of one token."""
        if not rounds or not self.verify:
            return None
        step = 0.0
        max_drafted = max(counts.drafted for counts in rounds)
        if max_drafted > 0:
            if len(self.verify) < 2 or not self.step.get(drafter):
                return None
            step = self._step_cost(drafter)
        overhead = statistics.median(self.overhead)
        widths, pass_costs = self._by_width(1 + max_drafted)
        cost = 0.0
        tokens = 0
        for counts, number in rounds.items():
            # The cost of a pass between two measured widths is on the line through them.
            target_pass = float(np.interp(1 + counts.drafted, widths, pass_costs))
            cost += number * (counts.drafted * step + max(1.0, target_pass + overhead))
            tokens += number * counts.emitted
        return tokens / cost

    def _step_cost(self, drafter: str) -> float:
        """The median cost of a draft step, and no less than c."""
        step = statistics.median(self.step[drafter])
        if not self.c.get(drafter):
            return step
        return max(step, statistics.median(self.c[drafter]))

    def _by_width(self, widest: int) -> tuple[list[int], list[float]]:
        """Rising widths up to `widest` at least, and the median cost of each, none below that of a
        narrower pass: a lower cost is noise. Beyond the widest measured pass, the cost rises with
        its last slope."""
        widths = sorted(self.verify)
        medians = [statistics.median(self.verify[width]) for width in widths]
        pass_costs = list(np.maximum.accumulate(medians))
        if widest > widths[-1] and len(widths) > 1:
            slope = (pass_costs[-1] - pass_costs[-2]) / (widths[-1] - widths[-2])
            cost_of_widest = pass_costs[-1] + slope * (widest - widths[-1])
            pass_costs.append(cost_of_widest)
            widths.append(widest)
        return widths, pass_costs

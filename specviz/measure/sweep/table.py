"""The table of a sweep: rows from races and predictions, and which rows cannot be distinguished
from the best one within noise.

Each run has a baseline of its own, the target alone, which alternated with it. Rows are compared
in pairs, on the prompts that both ran. A prompt's value is the median over its repeats of the
logarithm of the speed-up. Intervals are those of the bootstrap over prompts.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ...core.lanes import BASELINE
from ...core.policy import predicted_tau
from ...core.registry import drafter_kind
from ...pairs.prompts import PromptOfKind
from ...runs.metrics import Metrics, ratio
from ...runs.uncertainty import MIN_ROUNDS, Estimate, geometric_mean, mean_interval, spread
from ..races import RaceFigures, busy_runs, by_prompt
from .costs import Costs
from .predicted_rounds import Rounds, figures
from .types import Configuration, Mark, Measured, Predicted, RoundTimes, Row, Status

MIN_PROMPTS_TO_ELIMINATE = 4  # shared prompts before a row is given up
MIN_PROMPTS_TO_COMPARE = 3  # shared prompts before a row is called better or as good
MIN_PROMISE = 0.8  # of the best predicted speed-up; rows below it are not measured

RunsByRow: TypeAlias = Mapping[str, Sequence[RaceFigures]]
"""Key of a row -> its runs."""

Values: TypeAlias = Mapping[int, float]
"""Prompt -> the logarithm of a row's speed-up there, measured or predicted."""


@dataclass
class Findings:
    """The findings of a sweep so far. predicted: row -> prompt -> rounds. missing: why drafters
    are left out. memory: as in `Row`, by drafter. begins: the rows with the pair's own settings."""

    rows: tuple[Configuration, ...]
    prompts: tuple[PromptOfKind, ...]
    runs: list[RaceFigures] = field(default_factory=list)
    predicted: dict[str, dict[int, Rounds]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int | None] = field(default_factory=dict)
    begins: frozenset[str] = frozenset()

    def quiet_runs(self) -> list[RaceFigures]:
        """The runs without delays."""
        busy = busy_runs(self.runs)
        return [run for index, run in enumerate(self.runs) if index not in busy]

    def table(self) -> tuple[Row, ...]:
        """Derive every row from the findings."""
        quiet_runs = self.quiet_runs()
        runs = self._by_row(self.runs)
        quiet = self._by_row(quiet_runs)
        costs = Costs.of(quiet_runs)
        predicted = {row.key: self._predicted_values(row, costs) for row in self.rows}
        marks, eliminated = self._compared(runs, quiet, predicted)
        rows: list[Row] = []
        for configuration in self.rows:
            key = configuration.key
            row = Row(
                configuration=configuration,
                status=self._status(configuration, bool(runs[key]), key in eliminated),
                mark=marks.get(key),
                predicted=self._prediction(configuration, predicted[key], costs),
                measured=self._measured(configuration, runs[key], quiet[key]),
                memory=self.memory.get(configuration.drafter),
                note=self.missing.get(configuration.drafter, ""),
            )
            rows.append(row)
        return with_reasons(without_hopeless(rows, self.begins))

    def _by_row(self, runs: Sequence[RaceFigures]) -> RunsByRow:
        return {row.key: _of_row(row.key, runs) for row in self.rows}

    def _compared(
        self,
        runs: RunsByRow,
        quiet: RunsByRow,
        predicted: Mapping[str, Values],
    ) -> tuple[dict[str, Mark], set[str]]:
        """The marks of all rows, and the rows that are given up. runs: of each row. quiet: the runs
        without delays; a temperature that has some counts no others."""
        marks: dict[str, Mark] = {}
        eliminated: set[str] = set()
        possible = [row for row in self.rows if row.drafter not in self.missing]
        for temperature in dict.fromkeys(row.temperature for row in possible):
            keys = [row.key for row in possible if row.temperature == temperature]
            counted = quiet if any(quiet[key] for key in keys) else runs
            values = {key: prompt_values(counted[key]) for key in keys}
            marks |= marked(values, predicted)
            for key in slower(values):
                rounds = sum(run.rounds.total() for run in counted[key])
                if rounds >= MIN_ROUNDS:
                    eliminated.add(key)
        return marks, eliminated

    def _predicted_values(self, row: Configuration, costs: Costs) -> dict[int, float]:
        """The logarithm of a row's predicted speed-up on each prompt that has a prediction."""
        values: dict[int, float] = {}
        for prompt, rounds in self.predicted.get(row.key, {}).items():
            speedup = costs.speedup(row.drafter, rounds)
            if speedup:
                values[prompt] = math.log(speedup)
        return values

    def _status(self, row: Configuration, is_measured: bool, is_eliminated: bool) -> Status:
        if row.drafter in self.missing:
            return "left out"
        if is_eliminated:
            return "eliminated"
        if is_measured:
            return "measured"
        if any(self.predicted.get(row.key, {}).values()):
            return "predicted"
        return "planned"

    def _prediction(self, row: Configuration, values: Values, costs: Costs) -> Predicted | None:
        rounds = sum(self.predicted.get(row.key, {}).values(), Counter())
        if not rounds:
            return None
        speedup = None
        if values:
            # Speed-ups are averaged over prompts as the measured ones are. Such a mean may be above
            # the speed-up of all prompts together, which is what the row's tau and c allow.
            together = costs.speedup(row.drafter, rounds)
            average = math.exp(statistics.fmean(values.values()))
            speedup = average
            if together is not None:
                speedup = min(average, together)
        return Predicted(
            exact=row.temperature == 0.0,
            speedup=speedup,
            prompts=len(self.predicted[row.key]),
            enough=costs.rounds[row.drafter] >= MIN_ROUNDS,
            **figures(rounds),
        )

    def _measured(
        self, row: Configuration, runs: Sequence[RaceFigures], quiet: Sequence[RaceFigures]
    ) -> Measured | None:
        """The figures of a row from its runs without delays, or from all if every one had some."""
        if not runs:
            return None
        counted = quiet or runs
        prompts = len({run.prompt for run in counted})
        distinct = counted
        if row.temperature == 0.0:
            # A greedy repeat has the same rounds again: they are counted once.
            distinct = _first_on_each_prompt(counted)
        rounds = sum((run.rounds for run in distinct), Counter())
        metrics = [run.metrics for run in counted]
        values = prompt_values(counted)
        speedup = None
        if values:
            speedup = geometric_mean(list(values.values()))
        return Measured(
            runs=len(runs),
            prompts=prompts,
            rate=spread(run.rate for run in counted),
            alone_rate=spread(run.alone_rate for run in counted),
            speedup=speedup,
            by_kind=self._by_kind(values),
            tau_predicted=_tau_predicted(rounds),
            c=_median_c(metrics),
            times=_round_times(metrics),
            doubts=len(runs) - len(quiet),
            **figures(rounds),
        )

    def typical_prompt(self, key: str) -> PromptOfKind | None:
        """The prompt on which a row had about its usual speed-up; None if it did not run."""
        runs = _of_row(key, self.quiet_runs()) or _of_row(key, self.runs)
        values = prompt_values(runs)
        if not values:
            return None
        usual = statistics.median(values.values())
        nearest = min(values, key=lambda prompt: abs(values[prompt] - usual))
        return self.prompts[nearest]

    def _by_kind(self, values: Values) -> dict[str, Estimate]:
        by_kind: dict[str, list[float]] = defaultdict(list)
        for prompt, value in sorted(values.items()):
            by_kind[self.prompts[prompt].kind].append(value)
        return {kind: geometric_mean(values_of_kind) for kind, values_of_kind in by_kind.items()}


def _of_row(key: str, runs: Sequence[RaceFigures]) -> list[RaceFigures]:
    return [run for run in runs if run.key == key]


def _first_on_each_prompt(runs: Sequence[RaceFigures]) -> list[RaceFigures]:
    by_prompt = {run.prompt: run for run in reversed(runs)}  # a repeat gives way to the first run
    return list(by_prompt.values())


def with_reasons(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Add to rows that are only predicted the reason why they were not measured."""
    explained = []
    for row in rows:
        if row.status == "predicted":
            row = replace(row, note=_prediction_reason(row, rows))
        explained.append(row)
    return tuple(explained)


def _prediction_reason(row: Row, rows: Sequence[Row]) -> str:
    if row.promise is None:
        return "its cost is unknown"
    best = best_promise(_of_temperature(rows, row.temperature))
    if row.promise < MIN_PROMISE * best:
        return f"{1 - row.promise / best:.0%} behind the best prediction"
    return "the time budget was used up"


def without_hopeless(
    rows: Sequence[Row], begins: AbstractSet[str] = frozenset()
) -> tuple[Row, ...]:
    """Leave out unpredictable rows of drafters that lose at every gamma: an adapted gamma would
    lose too. begins: rows that stay."""
    checked = []
    for row in rows:
        settings = row.configuration
        is_hopeless = row.status == "planned" and _is_far_behind(settings, rows)
        if is_hopeless and settings.key not in begins:
            drafter = drafter_kind(settings.drafter).choice
            behind = f"{drafter[:1].upper()}{drafter[1:]} is far behind at every γ"
            note = f"{behind}, so {settings.policy} was not measured."
            row = replace(row, status="left out", note=note)
        checked.append(row)
    return tuple(checked)


def _is_far_behind(settings: Configuration, rows: Sequence[Row]) -> bool:
    """Whether the drafter loses at every gamma, at the row's temperature, by its predictions."""
    rivals = _of_temperature(rows, settings.temperature)
    rows_of_drafter = [row for row in rivals if row.drafter == settings.drafter]
    predictions = [row.predicted for row in rows_of_drafter if row.predicted is not None]
    if not all(prediction.enough for prediction in predictions):
        return False
    return 0.0 < best_promise(rows_of_drafter) < MIN_PROMISE * best_promise(rivals)


def _of_temperature(rows: Sequence[Row], temperature: float) -> list[Row]:
    return [row for row in rows if row.temperature == temperature]


def best_promise(rows: Sequence[Row]) -> float:
    """The highest predicted speed-up, 0 where none is predicted."""
    return max((row.promise or 0.0 for row in rows), default=0.0)


def prompt_values(runs: Sequence[RaceFigures]) -> dict[int, float]:
    """The logarithm of a row's speed-up on each prompt that it ran on."""

    def log_speedup(run: RaceFigures) -> float | None:
        if not run.speedup:
            return None
        return math.log(run.speedup)

    return by_prompt(runs, log_speedup)


def _tau_predicted(rounds: Rounds) -> float | None:
    """Tokens per round by the formula, from alpha; None if no draft was judged."""
    alpha = figures(rounds)["alpha"]
    if alpha is None:
        return None
    tokens = sum(predicted_tau(alpha, counts.drafted) * number for counts, number in rounds.items())
    return ratio(tokens, rounds.total())


def _median_c(metrics: Sequence[Metrics]) -> float | None:
    costs = [m.c for m in metrics if m.c is not None]
    if not costs:
        return None
    return statistics.median(costs)


def _round_times(metrics: Sequence[Metrics]) -> RoundTimes:
    # A round of the target alone writes one token.
    alone = [m.seconds[BASELINE] / max(1, m.tokens[BASELINE]) for m in metrics]
    scale = 1000 / max(1, sum(m.rounds for m in metrics))  # from seconds to ms per round
    return RoundTimes(
        draft=scale * sum(m.draft_seconds for m in metrics),
        verify=scale * sum(m.verify_seconds for m in metrics),
        overhead=scale * sum(m.overhead_seconds for m in metrics),
        alone=1000 * statistics.fmean(alone),
    )


def difference(
    values: Values, reference: Values, min_values: int = 2
) -> tuple[float, float] | None:
    """The interval of a row's mean advantage over the reference, on the prompts that both have;
    None if these are fewer than `min_values`."""
    advantages = _advantages(values, reference)
    if len(advantages) < min_values:
        return None
    return mean_interval(advantages)


def advantage(values: Values, reference: Values) -> float | None:
    """The mean advantage of a row over the reference on the prompts that both have; None if there
    are none."""
    advantages = _advantages(values, reference)
    if not advantages:
        return None
    return statistics.fmean(advantages)


def _advantages(values: Values, reference: Values) -> tuple[float, ...]:
    """The advantage of a row over the reference on each prompt that both have."""
    shared = sorted(values.keys() & reference.keys())
    return tuple(values[prompt] - reference[prompt] for prompt in shared)


def best_row(rows: Mapping[str, Values]) -> str | None:
    """The row with an advantage over every other one; None if no row ran. Rows that ran on less
    than half as many prompts as others are not compared, nor rows that share fewer than
    `MIN_PROMPTS_TO_COMPARE` with the best of the rows that ran on more."""
    max_prompts = max(map(len, rows.values()), default=0)
    comparable = [key for key, values in rows.items() if values and 2 * len(values) >= max_prompts]
    comparable.sort(key=lambda key: len(rows[key]), reverse=True)
    best: str | None = None
    for key in comparable:
        if best is None or _is_above(rows[key], rows[best]):
            best = key
    return best


def _is_above(values: Values, reference: Values) -> bool:
    """Whether a row has an advantage over the reference, on enough shared prompts."""
    shared = values.keys() & reference.keys()
    if len(shared) < min(MIN_PROMPTS_TO_COMPARE, len(reference)):
        return False
    return (advantage(values, reference) or 0.0) > 0.0


def is_open(measured: Values, best: Values, predicted: Values) -> bool:
    """Whether a row may beat the best one, but ran on too few of its prompts to tell.

    The row's predicted values, or without a prediction the measured ones, are compared with those
    of the best row on the prompts that both have.
    """
    if len(measured.keys() & best.keys()) >= min(MIN_PROMPTS_TO_COMPARE, len(best)):
        return False
    promise = predicted or measured
    if not promise:
        return False
    ahead = advantage(promise, best)
    if ahead is None:
        ahead = statistics.fmean(promise.values()) - statistics.fmean(best.values())
    return ahead > 0.0


def marked(values: Mapping[str, Values], predicted: Mapping[str, Values]) -> dict[str, Mark]:
    """The marks of the rows of one temperature."""
    best = best_row(values)
    if best is None:
        return {}
    marks: dict[str, Mark] = {best: "best"}
    best_values = values[best]
    max_prompts = max(map(len, values.values()))
    min_values = min(MIN_PROMPTS_TO_COMPARE, len(best_values))
    for key, row_values in values.items():
        if key == best:
            continue
        ran_on_few = 2 * len(row_values) < max_prompts
        is_ahead = (advantage(row_values, best_values) or 0.0) > 0.0
        # Faster so far, and not the best one only because it ran on too few prompts.
        is_held_back = ran_on_few and is_ahead
        interval = difference(row_values, best_values, min_values)
        if is_held_back or is_open(row_values, best_values, predicted[key]):
            marks[key] = "open"
        elif interval is not None and interval[1] >= 0:
            marks[key] = "tied"
    return marks


def slower(rows: Mapping[str, Values]) -> set[str]:
    """The rows that are slower than the best one beyond noise, on at least
    `MIN_PROMPTS_TO_ELIMINATE` prompts."""
    best = best_row(rows)
    if best is None:
        return set()
    behind: set[str] = set()
    for key, values in rows.items():
        interval = difference(values, rows[best], MIN_PROMPTS_TO_ELIMINATE)
        if key != best and interval is not None and interval[1] < 0:
            behind.add(key)
    return behind

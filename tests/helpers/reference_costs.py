"""A reference for the page's panel "Why this speed?" (assets/page/facts/costs.js), in Python.

It computes what a round costs, and which alpha or gamma would pay for that. The cost of 1 is a
baseline round: one pass of the target and its overhead. The names of fields are those of the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from specviz import Metrics, Trace, compute_metrics
from specviz.core.policy import MOST_GAMMA, predicted_tau

HALVINGS = 60  # of the interval that holds the break-even alpha: enough for fp64


@dataclass(frozen=True, slots=True)
class Costs:
    """The mean round of each lane.

    draft, verify, overhead: seconds of a speculative round. alone_verify, alone_overhead:
        seconds of a baseline round.
    gamma: drafted tokens per round.
    step, judging: the cost of one draft step, and of verification and overhead together.
    price: the cost of a whole speculative round, gamma * step + judging.
    """

    draft: float
    verify: float
    overhead: float
    alone_verify: float
    alone_overhead: float
    gamma: float
    step: float
    judging: float
    price: float


@dataclass(frozen=True, slots=True)
class Why:
    """The numbers that explain the speed-up of a run; None if the run does not determine them.

    speedup: tau / price, which equals the measured speed-up. formula: the predicted tau divided
        by gamma c + 1, as if a target pass cost the same for any number of judged tokens.
    break_even: the alpha at which the speed-up would be 1 at the measured costs; None if there is
        none. best_gamma, best_speedup: the best choice for this alpha at the measured costs; the
        gamma is 0 if no draft would pay.
    """

    costs: Costs
    speedup: float
    formula: float | None
    break_even: float | None
    best_gamma: int | None
    best_speedup: float | None


def explain(trace: Trace) -> Why | None:
    """The explanation of a run's speed, or None if the lanes cannot be compared."""
    metrics = compute_metrics(trace)
    costs = round_costs(trace, metrics)
    if costs is None or metrics.tau is None or metrics.speedup is None:
        return None
    alpha = metrics.alpha
    best = None if alpha is None else best_gamma(alpha, costs.step, costs.judging, costs.gamma)
    return Why(
        costs=costs,
        speedup=metrics.tau / costs.price,
        formula=metrics.speedup_predicted,
        break_even=break_even_of(_lengths(trace), costs.price),
        best_gamma=best and best[0],
        best_speedup=best and best[1],
    )


def _lengths(trace: Trace) -> Counter[int]:
    """Drafted tokens per round -> number of such rounds."""
    return Counter(len(r.drafted) for r in trace.lane("speculative"))


def round_costs(trace: Trace, metrics: Metrics) -> Costs | None:
    """The mean round of each lane, or None if one of the lanes has no rounds."""
    rounds, alone = metrics.rounds, trace.lane("baseline")
    single = metrics.seconds["baseline"] / len(alone) if alone else 0.0  # seconds
    if not rounds or not single:
        return None
    draft, verify = metrics.draft_seconds / rounds, metrics.verify_seconds / rounds
    overhead = metrics.seconds["speculative"] / rounds - draft - verify
    alone_verify = sum(r.verify_seconds for r in alone) / len(alone)
    gamma = metrics.drafted / rounds
    return Costs(
        draft=draft,
        verify=verify,
        overhead=overhead,
        alone_verify=alone_verify,
        alone_overhead=single - alone_verify,
        gamma=gamma,
        step=draft / gamma / single if gamma else 0.0,
        judging=(verify + overhead) / single,
        price=(draft + verify + overhead) / single,
    )


def best_gamma(
    alpha: float, c: float, judging: float = 1.0, judged: float = 1.0
) -> tuple[int, float]:
    """The gamma up to `MOST_GAMMA` with the highest predicted speed-up, and that speed-up.

    judging: the measured cost of judging `judged` drafted tokens.
    """
    speeds = {
        gamma: predicted_tau(alpha, gamma) / (gamma * c + judging_cost(gamma, judging, judged))
        for gamma in range(MOST_GAMMA + 1)
    }
    best = max(speeds, key=speeds.__getitem__)
    return best, speeds[best]


def judging_cost(gamma: int, judging: float, judged: float) -> float:
    """The cost of judging gamma drafted tokens, if judging `judged` tokens costs `judging`.

    It lies on a straight line through 1 at gamma 0. If `judging` is below 1, that line would fall
    below any real cost, so `judging` itself is used for every gamma.
    """
    if gamma == 0 or not judged:
        return 1.0
    return judging if judging < 1 else 1 + (judging - 1) * gamma / judged


def break_even_alpha(gamma: int, c: float, judging: float = 1.0) -> float | None:
    """The alpha at which the predicted speed-up, tau(gamma) / (gamma c + judging), is 1.

    c, judging: the cost of a draft step and of judging gamma tokens; with the default, a target
    pass costs the same for any number of tokens (Leviathan et al. 2022, theorem 3.8). None if
    there is no such alpha: the round costs more than the gamma + 1 tokens that it can emit.
    """
    return break_even_of({gamma: 1}, gamma * c + judging)


def break_even_of(lengths: Mapping[int, int], price: float) -> float | None:
    """The alpha at which rounds of this mean price have a predicted speed-up of 1.

    lengths: drafted tokens -> number of rounds. None if there is no such alpha, or nothing was
    drafted.
    """
    rounds = sum(lengths.values())
    drafted = sum(gamma * count for gamma, count in lengths.items())
    if drafted == 0 or price * rounds > drafted + rounds:
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tokens = sum(predicted_tau(middle, gamma) * n for gamma, n in sorted(lengths.items()))
        low, high = (low, middle) if tokens >= price * rounds else (middle, high)
    return high

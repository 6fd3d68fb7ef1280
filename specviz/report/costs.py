"""Why a run is as fast as it is: what a round costs, and which alpha or gamma would pay for it.

The unit of every price is a round of the target alone: one pass and what goes with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..theory import best_gamma, predicted_tau
from ..trace import Trace
from .metrics import Metrics, compute_metrics

HALVINGS = 60  # of the interval that holds the break-even alpha: more than fp64 can tell


@dataclass(frozen=True, slots=True)
class Costs:
    """A mean round of each lane.

    draft, verify, overhead: seconds of a speculative round. alone_verify, alone_overhead:
        seconds of a baseline round.
    gamma: tokens drafted per round.
    step, judging: prices of one draft step, and of verification and overhead together.
    price: of a whole speculative round, gamma * step + judging.
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
    """What explains the speed-up of a run; None where the run does not tell.

    speedup: tau / price, which is the measured speed-up. formula: tau predicted from alpha over
        gamma c + 1, as if a target pass cost the same however many tokens it judges.
        priced: tau predicted over the measured price.
    break_even: the alpha at which these drafts would only just pay, at the measured prices; None
        if not even 1 would. best_gamma, best_speedup: by the same prices, from this alpha; the
        gamma is 0 if no draft would pay.
    """

    costs: Costs
    speedup: float
    formula: float | None
    priced: float | None
    break_even: float | None
    best_gamma: int | None
    best_speedup: float | None


def explain(trace: Trace) -> Why | None:
    """Why a run is as fast as it is, or None before both lanes have been measured."""
    metrics = compute_metrics(trace)
    costs = round_costs(trace, metrics)
    if costs is None or metrics.tau is None:
        return None
    alpha, predicted = metrics.alpha, metrics.tau_predicted
    best = None if alpha is None else best_gamma(alpha, costs.step, costs.judging, costs.gamma)
    return Why(
        costs=costs,
        speedup=metrics.tau / costs.price,
        formula=metrics.speedup_predicted,
        priced=None if predicted is None else predicted / costs.price,
        break_even=break_even_of(_lengths(trace), costs.price),
        best_gamma=best and best[0],
        best_speedup=best and best[1],
    )


def _lengths(trace: Trace) -> Counter[int]:
    """How many rounds drafted how many tokens."""
    return Counter(len(r.drafted) for r in trace.lane("speculative"))


def round_costs(trace: Trace, metrics: Metrics) -> Costs | None:
    """The mean rounds of a trace, or None if one of its lanes has none."""
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


def break_even_alpha(gamma: int, c: float, judging: float = 1.0) -> float | None:
    """The alpha at which the predicted speed-up, tau(gamma) / (gamma c + judging), is 1.

    c, judging: prices of a draft step and of judging gamma drafts; by default the textbook's,
    where a target pass costs the same however many tokens it judges (Leviathan et al. 2022,
    theorem 3.8). None if no alpha reaches it: a round then costs more than the gamma + 1 tokens
    that it can yield at most.
    """
    return break_even_of({gamma: 1}, gamma * c + judging)


def break_even_of(lengths: Mapping[int, int], price: float) -> float | None:
    """The alpha at which rounds of that mean price, `lengths` of which drafted so many tokens,
    would only just pay. None if no alpha reaches it, or nothing was drafted."""
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

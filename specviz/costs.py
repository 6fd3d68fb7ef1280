"""Why a run is as fast as it is: what a round costs, and which alpha or gamma would pay for it.

The unit of every price is a round of the target alone: one pass and what goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .metrics import Metrics, compute_metrics, predicted_tau
from .trace import Trace

MOST_GAMMA = 16  # the longest draft that is looked at, as long as the page lets anyone ask for
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
    break_even: the alpha at which this gamma would only just pay, at the measured prices; None
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
        break_even=break_even_alpha(trace.header.settings.gamma, costs.step, costs.judging),
        best_gamma=best and best[0],
        best_speedup=best and best[1],
    )


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
    price = gamma * c + judging
    if gamma == 0 or price > gamma + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        pays = predicted_tau(middle, gamma) >= price
        low, high = (low, middle) if pays else (middle, high)
    return high


def best_gamma(
    alpha: float, c: float, judging: float = 1.0, judged: float = 1.0, *, most: int = MOST_GAMMA
) -> tuple[int, float]:
    """The gamma from 0 to `most` with the highest predicted speed-up, and that speed-up.

    judging: the price of judging `judged` drafts, from which that of other gammas is guessed.
    """
    speeds = [
        predicted_tau(alpha, gamma) / (gamma * c + judging_price(gamma, judging, judged))
        for gamma in range(most + 1)
    ]
    best = max(range(most + 1), key=speeds.__getitem__)
    return best, speeds[best]


def judging_price(gamma: int, judging: float, judged: float) -> float:
    """The price of judging gamma drafts, where judging `judged` of them was measured.

    On a straight line from 1, that of a pass over one token. If several were cheaper than one,
    the line would fall below any real price, so that the measured one is taken for all.
    """
    if gamma == 0 or not judged:
        return 1.0
    return judging if judging < 1 else 1 + (judging - 1) * gamma / judged

"""The reference for the page's costs, checked against the formulas and against real rounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_costs import best_gamma, break_even_alpha, explain, judging_cost
from toy_recordings import SAMPLED, recorded

from specviz import Settings, Trace, compute_metrics
from specviz.core import policy as theory
from specviz.core.policy import predicted_tau, speedup_at

gammas = st.integers(1, 32)
costs = st.floats(0.0, 2.0)


def predicted_speedup(alpha: float, gamma: int, c: float) -> float:
    """Theorem 3.8."""
    return speedup_at(alpha, gamma, step=c, one=1.0, wide=1.0)


@given(gammas, costs, st.floats(0.5, 3.0))
def test_the_predicted_speedup_is_one_at_the_break_even(
    gamma: int, c: float, judging: float
) -> None:
    alpha = break_even_alpha(gamma, c, judging)
    price = gamma * c + judging
    if alpha is None:
        assert price > gamma + 1
    elif price <= 1:
        assert alpha == pytest.approx(0.0)
    else:
        assert predicted_tau(alpha, gamma) / price == pytest.approx(1.0)


def test_in_theory_drafts_can_pay_if_a_step_costs_less_than_a_pass() -> None:
    """Leviathan et al. 2022, corollary 3.9: alpha > c is needed, and enough for gamma = 1."""
    assert break_even_alpha(1, 0.3) == pytest.approx(0.3)
    assert break_even_alpha(5, 1.0) == pytest.approx(1.0)
    assert break_even_alpha(5, 1.01) is None
    assert break_even_alpha(5, 0.86, 2.0) is None
    assert break_even_alpha(0, 0.1) is None


@given(st.floats(0.0, 1.0), costs)
def test_no_gamma_is_better_than_the_best_one(alpha: float, c: float) -> None:
    best, speed = theory.best_gamma(alpha, c)
    assert (best, speed) == best_gamma(alpha, c)
    assert speed >= 1.0
    for gamma in range(17):
        assert predicted_speedup(alpha, gamma, c) <= speed
    assert speed == predicted_speedup(alpha, best, c)


@given(st.floats(0.0, 1.0), costs, st.floats(0.0, 1.0))
def test_the_reference_and_the_theory_agree_on_passes_over_several_tokens(
    alpha: float, c: float, extra_token: float
) -> None:
    found, expected = (
        theory.best_gamma(alpha, c, extra_token),
        best_gamma(alpha, c, 1 + extra_token),
    )
    assert found[1] == pytest.approx(expected[1])


def test_the_cost_of_judging_lies_on_a_line_through_the_measured_cost() -> None:
    assert judging_cost(0, 1.8, 4) == 1.0
    assert judging_cost(4, 1.8, 4) == pytest.approx(1.8)
    assert judging_cost(2, 1.8, 4) == pytest.approx(1.4)
    assert judging_cost(9, 0.8, 4) == 0.8  # a line through this would fall below any real cost
    assert best_gamma(0.9, 0.05, 3.0, 2.0)[0] < best_gamma(0.9, 0.05)[0]


def test_tau_over_price_is_the_measured_speedup() -> None:
    trace = recorded(SAMPLED)
    why, metrics = explain(trace), compute_metrics(trace)
    assert why is not None and metrics.tau is not None
    assert why.speedup == pytest.approx(metrics.speedup)
    assert why.formula == metrics.speedup_predicted
    found = why.costs
    assert found.price == pytest.approx(found.gamma * found.step + found.judging)
    per_round = metrics.seconds["speculative"] / metrics.rounds
    assert found.draft + found.verify + found.overhead == pytest.approx(per_round)
    alone = trace.lane("baseline")
    assert found.alone_verify + found.alone_overhead == pytest.approx(alone[-1].clock / len(alone))


def test_without_drafts_or_rounds_some_figures_are_none() -> None:
    trace = recorded(Settings(gamma=3, drafter="none", max_new_tokens=6))
    why = explain(trace)
    assert why is not None
    assert why.costs.step == 0.0
    assert (why.formula, why.best_gamma) == (None, None)
    assert explain(Trace(trace.header)) is None
    assert explain(Trace(trace.header, trace.lane("speculative"))) is None

"""What a round costs: the formulas against their definitions, the prices against the rounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_recordings import SAMPLED, recorded

from specviz import Settings, Trace, compute_metrics
from specviz.report.costs import break_even_alpha, explain
from specviz.theory import best_gamma, judging_price, predicted_speedup, predicted_tau

gammas = st.integers(1, 32)
prices = st.floats(0.0, 2.0)


@given(gammas, prices, st.floats(0.5, 3.0))
def test_at_the_break_even_the_predicted_speedup_is_one(
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


def test_by_the_textbook_drafts_can_pay_if_a_step_costs_less_than_a_pass() -> None:
    """Leviathan et al. 2022, corollary 3.9: alpha > c is needed, and enough for gamma = 1."""
    assert break_even_alpha(1, 0.3) == pytest.approx(0.3)
    assert break_even_alpha(5, 1.0) == pytest.approx(1.0)
    assert break_even_alpha(5, 1.01) is None
    assert break_even_alpha(5, 0.86, 2.0) is None
    assert break_even_alpha(0, 0.1) is None


@given(st.floats(0.0, 1.0), prices)
def test_no_gamma_beats_the_best_one(alpha: float, c: float) -> None:
    best, speed = best_gamma(alpha, c)
    assert speed >= 1.0
    for gamma in range(17):
        assert predicted_speedup(alpha, gamma, c) <= speed
    assert speed == predicted_speedup(alpha, best, c)


def test_judging_is_priced_on_a_line_through_what_was_measured() -> None:
    assert judging_price(0, 1.8, 4) == 1.0
    assert judging_price(4, 1.8, 4) == pytest.approx(1.8)
    assert judging_price(2, 1.8, 4) == pytest.approx(1.4)
    assert judging_price(9, 0.8, 4) == 0.8  # several for less than one: no line goes there
    assert best_gamma(0.9, 0.05, 3.0, 2.0)[0] < best_gamma(0.9, 0.05)[0]


def test_tau_over_price_is_the_measured_speedup() -> None:
    trace = recorded(SAMPLED)
    why, metrics = explain(trace), compute_metrics(trace)
    assert why is not None and metrics.tau is not None
    assert why.speedup == pytest.approx(metrics.speedup)
    assert why.formula == metrics.speedup_predicted
    costs = why.costs
    assert costs.price == pytest.approx(costs.gamma * costs.step + costs.judging)
    per_round = metrics.seconds["speculative"] / metrics.rounds
    assert costs.draft + costs.verify + costs.overhead == pytest.approx(per_round)
    alone = trace.lane("baseline")
    assert costs.alone_verify + costs.alone_overhead == pytest.approx(alone[-1].clock / len(alone))


def test_without_drafts_or_rounds_there_is_little_to_explain() -> None:
    trace = recorded(Settings(gamma=3, drafter="none", max_new_tokens=6))
    why = explain(trace)
    assert why is not None
    assert why.costs.step == 0.0
    assert (why.formula, why.priced, why.best_gamma) == (None, None, None)
    assert explain(Trace(trace.header)) is None
    assert explain(Trace(trace.header, trace.lane("speculative"))) is None

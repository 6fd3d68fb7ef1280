"""The metrics of real runs, and the formulas that predict them. test_figures.py has small runs with
figures worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import VirtualTime, examples, mini, pair_of, relative

from specviz import Pair, Round, Settings, Token, Trace, compute_metrics, race
from specviz.core.policy import predicted_tau, speedup_at
from specviz.runs.terminal import metric_lines

PROMPT = [3, 1, 4]
# Seconds of virtual time for a pass.
TARGET = 10.0
DRAFT = 1.0

ALPHAS = st.floats(0.0, 0.999) | st.just(1.0)
GAMMAS = st.integers(0, 64)
COSTS = st.floats(0.001, 2.0)


def predicted_speedup(alpha: float, gamma: int, c: float) -> float:
    """The speed-up by theorem 3.8 of Leviathan et al. 2022."""
    return speedup_at(alpha, gamma, step=c, one=1.0, wide=1.0)


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = mini(9, seed=1, spread=3.0)
    return pair_of(target, relative(target, noise=0.5))


RUNS = {
    "sampled": Settings(gamma=4, temperature=1.0, max_new_tokens=60),
    "greedy": Settings(gamma=3, max_new_tokens=60),
    "truncated": Settings(gamma=5, temperature=0.7, top_k=4, top_p=0.9, max_new_tokens=60),
    "stopped": Settings(gamma=5, temperature=1.0, stop=("w7",), max_new_tokens=60),
    "without drafts": Settings(gamma=0, max_new_tokens=10),
    "one token": Settings(gamma=5, max_new_tokens=1),
}


@pytest.fixture(scope="module")
def traced(pair: Pair) -> Callable[[Settings], Trace]:
    """A function from settings to the trace of a race with them, which runs once."""

    @cache
    def trace_of(settings: Settings) -> Trace:
        return Trace.from_events(race(pair, PROMPT, settings))

    return trace_of


# A greedy run does not depend on its seed.
SEEDED = {
    f"{name}, seed {seed}": replace(settings, seed=seed)
    for name, settings in RUNS.items()
    for seed in range(1 if settings.greedy else 3)
}


@pytest.mark.parametrize("settings", SEEDED.values(), ids=list(SEEDED))
def test_the_counts_add_up_in_every_run(traced: Callable[[Settings], Trace], settings: Settings):
    trace = traced(settings)
    m = compute_metrics(trace)
    n = m.counts
    assert m.drafted == n["accepted"] + n["rejected"] + n["ignored"]
    assert m.emitted == n["accepted"] + n["corrected"] + n["bonus"] == m.tokens["speculative"]
    assert m.rounds == len(trace.lane("speculative"))
    assert n["rejected"] == n["corrected"] <= m.rounds
    assert m.seconds["speculative"] == pytest.approx(
        m.draft_seconds + m.verify_seconds + m.overhead_seconds
    )
    assert {t.outcome for r in trace.lane("baseline") for t in r.emitted} <= {"bonus"}


def test_with_known_costs_the_speedup_is_known(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """tau tokens cost gamma draft steps and one target pass; measured and predicted values
    agree."""
    time = VirtualTime()
    monkeypatch.setattr("specviz.core.clock.time", time)
    twins = pair_of(time.charge(mini(9), TARGET), time.charge(mini(9), DRAFT))
    trace = Trace.from_events(race(twins, PROMPT, Settings(gamma=4, max_new_tokens=50)))
    m = compute_metrics(trace)
    assert m.c == DRAFT / TARGET and m.alpha == m.efficiency == m.beta == 1.0
    assert m.tau == m.tau_predicted == 5.0
    assert m.speedup == pytest.approx(5 / (4 * 0.1 + 1))
    assert m.speedup_predicted == pytest.approx(m.speedup)
    whole = (500 + TARGET) / (10 * 14 + TARGET + DRAFT)  # with a prefill pass of each model
    assert m.speedup_end_to_end == pytest.approx(whole)
    assert m.speedup_wall == pytest.approx(whole)  # texts take no virtual time
    assert m.tokens_per_second == {"speculative": 50 / 140, "baseline": 50 / 500}
    assert m.alpha_by_position == (1.0,) * 4


def random_round(index: int, gamma: int, alpha: float, dice: random.Random) -> Round:
    """Draw a round whose drafts are accepted independently with probability alpha."""
    kept = next((i for i in range(gamma) if dice.random() >= alpha), gamma)
    names = ["accepted"] * kept + ["rejected"] * (kept < gamma) + ["ignored"] * gamma
    drafted = [Token(1, "", name) for name in names[:gamma]]  # type: ignore[arg-type]
    last = Token(2, "", "bonus" if kept == gamma else "corrected")
    return Round("speculative", index, drafted, last, 5.0, 10.0, 0.0, 0.0)


def test_one_run_has_several_acceptance_rates(pair: Pair):
    """The rates of alpha 0.8 and gamma 5: 0.80 of the judged drafts, 0.54 of all drafts, 3.69
    tokens a round."""
    header = next(iter(race(pair, PROMPT, RUNS["sampled"])))
    dice = random.Random(0)
    m = compute_metrics(Trace(header, [random_round(i, 5, 0.8, dice) for i in range(4000)]))
    assert m.alpha == pytest.approx(0.80, abs=0.01)
    assert m.efficiency == pytest.approx(0.54, abs=0.01)
    assert m.tau == pytest.approx(3.69, abs=0.04)
    assert m.tau == pytest.approx(m.tau_predicted, abs=0.04)
    assert m.alpha_by_position == pytest.approx((0.8,) * 5, abs=0.03)
    survived = sum(
        len(r.emitted) == 6 for r in (random_round(i, 5, 0.8, dice) for i in range(4000))
    )
    assert survived / 4000 == pytest.approx(0.33, abs=0.03)


@pytest.mark.parametrize(("kept", "compared"), [(1, False), (2, True)])
def test_a_terminal_compares_no_run_of_one_round(pair: Pair, kept: int, compared: bool):
    trace = Trace.from_events(race(pair, PROMPT, RUNS["sampled"]))
    rounds = trace.lane("speculative")[:kept] + trace.lane("baseline")
    said = "\n".join(metric_lines(Trace(trace.header, rounds)))
    assert ("too short to compare" in said) != compared


@pytest.mark.parametrize(
    ("per_token", "said"),
    [(0.5, "drafting pays"), (0.98, "even"), (1.02, "even"), (1.5, "costs more")],
)
def test_a_terminal_says_what_drafting_is_worth(pair: Pair, per_token: float, said: str):
    trace = Trace.from_events(race(pair, PROMPT, RUNS["sampled"]))
    rounds = []
    for lane, seconds in (("speculative", per_token), ("baseline", 1.0)):
        ends = np.cumsum([0 if r.reads_prompt else len(r.emitted) for r in trace.lane(lane)])
        rounds += [
            replace(r, clock=seconds * end)
            for r, end in zip(trace.lane(lane), ends.tolist(), strict=True)
        ]
    lines = metric_lines(replace(trace, rounds=rounds))
    assert said in next(line for line in lines if line.startswith("speed-up"))


def test_metrics_of_an_unfinished_run(pair: Pair):
    """The page computes metrics after every round."""
    trace = Trace.from_events(race(pair, PROMPT, RUNS["sampled"]))
    for count in range(len(trace.rounds)):
        m = compute_metrics(Trace(trace.header, trace.rounds[:count]))
        assert m.emitted + m.tokens["baseline"] == sum(len(r.emitted) for r in trace.rounds[:count])


def test_the_formulas_give_the_values_of_the_papers():
    assert predicted_tau(0.8, 5) == pytest.approx(3.689, abs=1e-3)
    assert predicted_tau(0.0, 7) == 1.0 and predicted_tau(1.0, 7) == 8.0
    assert predicted_speedup(0.8, 5, 0.05) == pytest.approx(3.689 / 1.25, abs=1e-3)


@examples(100)
@given(ALPHAS, GAMMAS)
def test_tau_is_the_sum_of_the_powers_of_alpha(alpha: float, gamma: int):
    assert predicted_tau(alpha, gamma) == pytest.approx(
        sum(alpha**i for i in range(gamma + 1)), rel=1e-6
    )


@examples(100)
@given(ALPHAS, GAMMAS, COSTS)
def test_a_draft_whose_cost_exceeds_alpha_never_pays(alpha: float, gamma: int, c: float):
    if alpha <= c:
        assert predicted_speedup(alpha, gamma, c) <= 1 + 1e-9


@examples(100)
@given(ALPHAS, st.integers(0, 31), COSTS)
def test_one_more_drafted_token_pays_as_the_formula_says(alpha: float, gamma: int, c: float):
    gain = alpha ** (gamma + 1) * (gamma * c + 1) - c * predicted_tau(alpha, gamma)
    more = predicted_speedup(alpha, gamma + 1, c) - predicted_speedup(alpha, gamma, c)
    if abs(gain) > 1e-6:
        assert (more > 0) == (gain > 0)

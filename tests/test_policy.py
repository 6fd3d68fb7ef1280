"""Policies for the number of drafted tokens: the rule of each, which never depends on a clock."""

from __future__ import annotations

import copy
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from hypothesis import given
from hypothesis import strategies as st
from toy_heads import random_head
from toy_models import emitted_ids, examples, finish, generated, llama, pair_of, relative
from toy_recordings import saved

from specviz import Pair, Round, Settings, Trace, compute_metrics, race
from specviz.core.policy import (
    MAX_IDLE_ROUNDS,
    DraftCosts,
    HeuristicGamma,
    OptimalGamma,
    Policy,
    best_gamma,
    expected_tau,
    predicted_tau,
    tokens_read_again,
)
from specviz.core.registry import drafter_names
from specviz.core.settings import GAMMA_POLICIES
from specviz.runs.recording import read_recording

PROMPT = [3, 1, 4, 1, 5, 3, 1]
MOST = 5
DRAFTERS = [name for name in drafter_names() if name != "none"]
COMBINATIONS = [
    *(("model", policy) for policy in GAMMA_POLICIES),
    *itertools.product(DRAFTERS[1:], ("optimal", "confidence")),
]
"""The draft model with every policy; other drafters with the policies that use their costs or
confidence."""


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(12, num_hidden_layers=3, hidden_size=32, initializer_range=0.2)
    return pair_of(target, relative(target, noise=0.3), head=random_head(target))


@pytest.fixture(scope="module")
def alone(pair: Pair) -> list[int]:
    """The text that transformers' `generate` writes."""
    return generated(pair.target, PROMPT, adaptive("fixed").max_new_tokens)


def adaptive(policy: str, drafter: str = "model", **changes: Any) -> Settings:
    values = {"temperature": 1.0, "max_new_tokens": 60, "seed": 4, **changes}
    return Settings(gamma=MOST, gamma_policy=policy, drafter=drafter, **values)


def lengths(rounds: list[Round]) -> list[int]:
    return [len(r.drafted) for r in rounds]


def kept(r: Round) -> int:
    return sum(token.outcome == "accepted" for token in r.drafted)


def alpha_of(policy: OptimalGamma) -> float:
    accepted, rejected = policy.evidence
    return accepted / (accepted + rejected)


# The rules


def rows_read_again(alpha: float, gamma: int, extra_token: float, rounds: int) -> float:
    """Simulate `running_engine` on a target with running states, with independent acceptances: the
    mean number of tokens that a round with drafts reads again."""
    dice = random.Random(0)
    unread = 0
    rent = 0.0
    rows = []
    while len(rows) < rounds:
        rent = rent + unread * extra_token if unread else 0.0
        rows.append(unread)
        accepted = 0
        while accepted < gamma and dice.random() < alpha:
            accepted += 1
        unread = 0 if accepted == gamma else unread + accepted + 1
        if unread and rent >= 1.0:
            unread = 0  # a round without drafts
    return sum(rows) / len(rows)


@pytest.mark.parametrize(
    ("alpha", "gamma", "extra_token", "tolerance"),
    [(0.9, 2, 0.001, 0.05), (0.7, 3, 0.001, 0.05), (0.7, 8, 0.02, 0.3), (0.5, 5, 0.14, 0.3)],
)
def test_tokens_read_again_are_those_of_a_long_run(
    alpha: float, gamma: int, extra_token: float, tolerance: float
):
    predicted = tokens_read_again(lambda g: predicted_tau(alpha, g), gamma, extra_token)
    seen = rows_read_again(alpha, gamma, extra_token, 20_000)
    assert predicted == pytest.approx(seen, rel=tolerance)
    assert tokens_read_again(lambda g: predicted_tau(alpha, g), 0, extra_token) == 0.0


def test_a_target_that_reads_tokens_again_drafts_fewer():
    for alpha in (0.5, 0.7, 0.9):
        usual, speedup = best_gamma(alpha, DraftCosts(0.05, 0.1))
        again, slower = best_gamma(alpha, DraftCosts(0.05, 0.1, True))
        assert again <= usual and 1.0 < slower < speedup
    assert (
        OptimalGamma(8, DraftCosts(0.05, 0.1, True)).gamma
        <= OptimalGamma(8, DraftCosts(0.05, 0.1)).gamma
    )


def test_the_heuristic_adds_two_and_takes_one():
    policy = HeuristicGamma(6)
    seen = []
    for drafted, accepted in [(6, 3), (5, 0), (4, 0), (3, 3), (5, 5), (6, 6), (0, 0)]:
        policy.observe(drafted, accepted)
        seen.append(policy.gamma)
    assert seen == [5, 4, 3, 5, 6, 6, 6]
    for _ in range(9):
        policy.observe(policy.gamma, 0)
    assert policy.gamma == 1


ROUNDS = st.lists(st.tuples(st.integers(0, 64), st.floats(0, 1)), max_size=60)


@examples(100)
@given(st.integers(1, 32), st.floats(0.0, 2.0), ROUNDS)
def test_no_policy_leaves_its_range(most: int, c: float, rounds: list[tuple[int, float]]):
    optimal = OptimalGamma(most, DraftCosts(c, 0.05))
    policies = (Policy(most), HeuristicGamma(most), optimal)
    for drafted, share in rounds:
        for policy, least in zip(policies, (most, 1, 0), strict=True):
            drafted = min(drafted, policy.gamma)
            policy.observe(drafted, int(share * drafted))
            assert least <= policy.gamma <= most
        assert 0.0 <= alpha_of(optimal) <= 1.0


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9, 0.97])
@pytest.mark.parametrize("c", [0.02, 0.15, 0.5])
def test_optimal_finds_the_best_gamma_for_the_measured_alpha(alpha: float, c: float):
    dice = random.Random(1)
    policy = OptimalGamma(16, DraftCosts(c, 0.05))
    estimates = []
    chosen: list[int] = []
    for _ in range(600):
        gamma = policy.gamma
        accepted = next((i for i in range(gamma) if dice.random() >= alpha), gamma)
        policy.observe(gamma, accepted)
        chosen.append(gamma)
        estimates.append(alpha_of(policy))
    if best_gamma(alpha, DraftCosts(c, 0.05))[0]:
        assert sum(estimates) / 600 == pytest.approx(alpha, abs=0.1)

    def speed(gamma: int) -> float:
        return predicted_tau(alpha, gamma) / (gamma * c + 1 + 0.05 * gamma)

    # The policy does not know alpha, but its speed-up is close to that of the best gamma.
    reached = sum(predicted_tau(alpha, g) for g in chosen) / sum(g * (c + 0.05) + 1 for g in chosen)
    assert reached > 0.9 * max(map(speed, range(17)))


def test_optimal_begins_as_if_drafts_paid_and_soon_knows_better():
    easy = OptimalGamma(4, DraftCosts(0.2, 0.1))
    hard = OptimalGamma(4, DraftCosts(0.2, 0.1))
    for _ in range(20):
        assert easy.gamma == 4
        easy.observe(4, 4)
    chosen = []
    for _ in range(8):
        chosen.append(hard.gamma)
        hard.observe(hard.gamma, 0)
    assert chosen[0] == 4 and max(chosen[3:]) <= 1


@pytest.mark.parametrize("accepted, rejected", [(0.7, 0.3), (5.0, 1.6), (20.0, 30.0)])
@pytest.mark.parametrize("gamma", [0, 1, 4, 16])
def test_expected_tau_is_the_mean_over_what_alpha_may_be(
    accepted: float, rejected: float, gamma: int
):
    torch.manual_seed(0)
    likely = torch.distributions.Beta(torch.tensor(accepted), torch.tensor(rejected))
    alphas = likely.sample((200_000,)).double().clamp(max=1 - 1e-9)
    taus = (1 - alphas ** (gamma + 1)) / (1 - alphas)  # equation 1
    error = float(taus.std() / len(taus) ** 0.5)
    assert expected_tau(accepted, rejected, gamma) == pytest.approx(
        float(taus.mean()), abs=5 * error + 1e-9
    )


def test_one_unlucky_round_does_not_shorten_the_drafts_of_a_good_pair():
    """The estimated alpha makes three tokens look best, but rests on few verdicts."""
    policy = OptimalGamma(8, DraftCosts(0.13, 0.1))
    policy.gamma = 4
    policy.observe(4, 0)
    assert best_gamma(alpha_of(policy), DraftCosts(0.13, 0.1))[0] == 3
    assert policy.gamma == 4
    for _ in range(3):
        policy.observe(policy.gamma, 0)
    assert policy.gamma <= 1


def test_a_round_that_drafted_nothing_tells_the_heuristic_nothing():
    policy = HeuristicGamma(5)
    policy.observe(5, 2)
    policy.observe(0, 0)
    assert policy.gamma == 4


@pytest.mark.parametrize("extra", [0.0, 0.1, 0.3, 2.0])
def test_a_dear_target_pass_shortens_the_best_draft(extra: float):
    speeds = [predicted_tau(0.8, g) / (g * 0.05 + 1 + g * extra) for g in range(17)]
    gamma, speedup = best_gamma(0.8, DraftCosts(0.05, extra))
    assert gamma == speeds.index(max(speeds)) and speedup == pytest.approx(max(speeds))


def test_optimal_stops_using_a_bad_draft_and_tries_it_again():
    policy = OptimalGamma(5, DraftCosts(0.4, 0.05))
    chosen = []
    for _ in range(100):
        chosen.append(policy.gamma)
        policy.observe(policy.gamma, 0)
    tries = [place for place, gamma in enumerate(chosen) if gamma]
    assert chosen.count(0) > 80
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert max(gaps) <= MAX_IDLE_ROUNDS + 1
    for _ in range(60):
        policy.observe(policy.gamma, policy.gamma)
    assert policy.gamma >= 4, "the text has become easy, and the policy must notice it"


def test_optimal_only_probes_a_draft_that_costs_too_much():
    policy = OptimalGamma(5, DraftCosts(1.5, 0.05))
    chosen = []
    for _ in range(60):
        chosen.append(policy.gamma)
        policy.observe(policy.gamma, policy.gamma)
    assert set(chosen) == {0, 1} and chosen.count(1) == 60 // (MAX_IDLE_ROUNDS + 1)


# Runs


def test_a_run_follows_the_heuristic(pair: Pair):
    rounds, _ = finish(pair, PROMPT, adaptive("heuristic"))
    policy = HeuristicGamma(MOST)
    for r in rounds[:-MOST]:  # the last rounds may lack room
        assert len(r.drafted) == policy.gamma
        policy.observe(len(r.drafted), kept(r))
    assert len(set(lengths(rounds))) > 2


@pytest.mark.parametrize(("drafter", "policy"), COMBINATIONS)
def test_greedy_text_is_the_targets_own(pair: Pair, alone: list[int], drafter: str, policy: str):
    rounds, _ = finish(pair, PROMPT, adaptive(policy, drafter, temperature=0.0))
    assert emitted_ids(rounds) == alone
    assert any(r.drafted for r in rounds)


class UnsteadyTime:
    """A clock that advances by random amounts, so that all times differ between runs."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._seconds = 0.0

    def perf_counter(self) -> float:
        self._seconds += self._dice.expovariate(1.0)
        return self._seconds


@pytest.mark.parametrize(("drafter", "policy"), COMBINATIONS)
def test_a_seeded_run_does_not_depend_on_the_clock(
    pair: Pair, drafter: str, policy: str, monkeypatch: pytest.MonkeyPatch
):
    runs = []
    for seed in range(2):
        monkeypatch.setattr("specviz.core.clock.time", UnsteadyTime(seed))
        # Fresh copies of the models: measurements of one run must not help the next.
        target = copy.deepcopy(pair.target)
        draft = copy.deepcopy(pair.draft)
        again = pair_of(target, draft, head=pair.head)
        with bare_rounds():
            rounds, _ = finish(again, PROMPT, adaptive(policy, drafter))
        runs.append((emitted_ids(rounds), lengths(rounds)))
    assert runs[0] == runs[1]
    with bare_rounds():
        other, _ = finish(pair, PROMPT, adaptive(policy, drafter, seed=5))
    assert emitted_ids(other) != runs[0][0]


# Metrics and recordings


# Metrics depend on a policy only through the lengths of drafts.
@pytest.mark.parametrize(
    ("drafter", "policy"),
    [
        *(("model", policy) for policy in GAMMA_POLICIES),
        *((drafter, "heuristic") for drafter in DRAFTERS if drafter != "model"),
    ],
)
def test_metrics_and_recordings_of_adaptive_runs_are_consistent(
    pair: Pair, drafter: str, policy: str, tmp_path: Path
):
    trace = Trace.from_events(race(pair, PROMPT, adaptive(policy, drafter)))
    assert read_recording(saved(trace, tmp_path)) == trace
    ours = trace.lane("speculative")
    m = compute_metrics(trace)
    assert m.drafted == sum(lengths(ours)) == sum(m.counts[o] for o in list(m.counts)[:3])
    assert m.alpha is not None
    tau = sum(predicted_tau(m.alpha, n) for n in lengths(ours)) / len(ours)
    assert m.tau_predicted == pytest.approx(tau)
    first = [r.drafted[0] for r in ours if r.drafted]
    judged = [t for t in first if t.outcome != "ignored"]
    share = sum(t.outcome == "accepted" for t in judged) / len(judged)
    assert m.alpha_by_position[0] == pytest.approx(share)

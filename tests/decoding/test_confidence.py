"""The policy "confidence": a draft ends when its confidence falls, and the text stays the
target's."""

from __future__ import annotations

import itertools
import operator
import random
from dataclasses import replace
from typing import Any

import pytest
from bare_rounds import bare_rounds
from reference_distribution import chain_p_value
from toy_models import emitted_ids, finish, generated, llama, mini, pair_of, relative

from specviz import Pair, Round, Settings, speculate
from specviz.core.numpy_path import NumpyPath
from specviz.core.policy import Calibration, ConfidenceGamma, DraftCosts, OptimalGamma
from specviz.core.tensor_path import TensorPath
from specviz.core.types import Draft
from specviz.measure.sweep.predicted_rounds import is_predictable

PROMPT = [3, 1, 4, 1, 5, 3, 1]
CONFIDENT = Settings(gamma=6, gamma_policy="confidence", temperature=1.0, seed=4, ignore_eos=True)
SIGNIFICANCE = 1e-4  # failure rate of a right sampler; seeds are fixed, so it never fails
COSTS = DraftCosts(c=0.2, extra_token=0.1)


@pytest.fixture
def cheap_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make drafts cheap: at the real cost of toy models of equal size it is best not to draft."""
    monkeypatch.setattr("specviz.core.cost.draft_costs", lambda *_: COSTS)


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(12, num_hidden_layers=3, hidden_size=32, initializer_range=0.2)
    return pair_of(target, relative(target, noise=0.3))


def kept(r: Round) -> int:
    return sum(token.outcome == "accepted" for token in r.drafted)


def confidences(r: Round) -> list[float]:
    return [token.top_q[0].probability for token in r.drafted]


def test_the_threshold_is_what_the_lane_writes_at_the_price_of_one_more_token():
    policy = ConfidenceGamma(8, COSTS)
    # The policy's prior, before the first round.
    written = 7.5
    spent = 5.0
    for drafted, accepted in ((8, 8), (3, 1), (1, 0), (8, 5)):
        assert policy.gamma == 8
        assert policy.min_confidence == pytest.approx(min(1.0, 0.3 * written / spent))
        policy.observe(drafted, accepted)
        written += accepted + 1
        spent += 1 + 0.3 * drafted
    assert OptimalGamma(8, COSTS).min_confidence == 0.0


@pytest.mark.parametrize("exponent", [0.25, 1.0, 2.0])
def test_the_exponent_of_the_confidences_is_learnt_from_the_verdicts(exponent: float):
    dice = random.Random(1)
    calibration = Calibration()
    policy = ConfidenceGamma(8, COSTS)
    for _ in range(400):
        round_of_drafts = [dice.uniform(0.1, 0.99) for _ in range(8)]
        kept = [dice.random() < confidence**exponent for confidence in round_of_drafts]
        accepted = [*kept, False].index(False)
        calibration.observe(round_of_drafts[: accepted + 1], accepted)
        policy.observe(8, accepted, round_of_drafts)
    assert calibration.exponent == exponent
    bare = ConfidenceGamma(8, COSTS)
    bare._written = policy._written
    bare._spent = policy._spent
    assert policy.min_confidence == pytest.approx(bare._break_even() ** (1 / exponent))


def test_what_is_quite_sure_or_quite_unsure_is_not_believed():
    calibration = Calibration()
    calibration.observe([1.0, 0.0], 1)
    calibration.observe([1.0], 0)
    assert calibration.exponent > 1


def test_nothing_is_drafted_where_no_draft_would_pay_and_it_is_tried_again():
    policy = ConfidenceGamma(5, DraftCosts(0.4, 0.05))
    chosen = []
    for _ in range(100):
        chosen.append(policy.gamma)
        policy.observe(min(2, policy.gamma), 0)
    assert chosen[0] == 5 and chosen.count(0) > 80 and chosen.count(1) > 3
    for _ in range(60):
        policy.observe(policy.gamma, policy.gamma)
    assert policy.gamma == 5, "the text has become easy, and the policy must notice it"


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {}, {"top_k": 5}], ids=str)
@pytest.mark.parametrize("drafter", ["model", "early-exit"])
def test_a_draft_ends_behind_the_token_with_which_its_chance_is_too_small(
    pair: Pair, drafter: str, sampling: dict[str, Any]
):
    settings = replace(CONFIDENT, drafter=drafter, max_new_tokens=120, **sampling)
    policy = ConfidenceGamma(settings.gamma, COSTS)
    ended_early = 0
    written = 0
    for r in finish(pair, PROMPT, settings)[0]:
        most = min(policy.gamma, settings.max_new_tokens - written - 1)
        assert len(r.drafted) <= most
        chances = list(itertools.accumulate(confidences(r), operator.mul))
        assert all(chance >= policy.min_confidence for chance in chances[:-1])
        if len(chances) < most:
            assert chances[-1] < policy.min_confidence
            ended_early += 1
        policy.observe(len(r.drafted), kept(r), confidences(r))
        written += len(r.emitted)
    assert ended_early > 5


@pytest.mark.usefixtures("cheap_drafts")
def test_greedy_text_is_the_targets_own(pair: Pair):
    rounds, _ = finish(pair, PROMPT, replace(CONFIDENT, temperature=0.0))
    assert emitted_ids(rounds) == generated(pair.target, PROMPT, CONFIDENT.max_new_tokens)
    assert len({len(r.drafted) for r in rounds}) > 1


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_all_paths_end_their_drafts_alike(
    pair: Pair, temperature: float, monkeypatch: pytest.MonkeyPatch
):
    settings = replace(CONFIDENT, temperature=temperature)

    def drafted() -> list[list[int]]:
        return [[t.id for t in r.drafted] for r in finish(pair, PROMPT, settings)[0]]

    at_once = drafted()
    monkeypatch.setattr("specviz.sides.fast_cpu.engine.drafts_at_once", lambda *_: False)
    step_by_step = drafted()
    monkeypatch.setenv("SPECVIZ_FORM", "static")
    by_programs = drafted()
    monkeypatch.delenv("SPECVIZ_FORM")
    monkeypatch.setattr("specviz.core.paths.NumpyPath", TensorPath)
    assert at_once == step_by_step == by_programs == drafted()
    assert len({len(ids) for ids in at_once}) > 1


def fit_of_a_chain(settings: Settings) -> float:
    """The p-value of a long text under a target whose next token depends only on the last one, or
    of the first part of the text that shows a wrong distribution."""
    models = (mini(4, seed=s, spread=2.0, decay=0.0, max_position_embeddings=3500) for s in (2, 3))
    pair = pair_of(*models)
    lengths = set()
    ids = [0]
    looks = [500, 1000, 2000]
    fit = 1.0
    with bare_rounds():
        for r in speculate(pair, [2, 0], replace(settings, max_new_tokens=2000)):
            lengths.add(len(r.drafted))
            ids += [token.id for token in r.emitted]
            if len(ids) > looks[0]:
                del looks[0]
                fit = chain_p_value(pair.target, ids, settings)
                if fit < SIGNIFICANCE:
                    break
    assert len(lengths) > 1, "the test needs drafts that end at different places"
    return fit


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("verdict", ["token", "block"])
def test_a_long_text_follows_the_target(verdict: str):
    assert fit_of_a_chain(replace(CONFIDENT, verdict=verdict)) > SIGNIFICANCE


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("verdict", ["token", "block"])
def test_one_that_leaves_out_an_unlikely_token_does_not(
    verdict: str, monkeypatch: pytest.MonkeyPatch
):
    """The decision to draft a token must not depend on its own draw."""
    right = NumpyPath.draft

    def without_an_unlikely_end(*arguments: Any, **options: Any) -> Draft:
        draft = right(*arguments, **options)
        likeliest = draft.q.argmax(-1) == draft.ids
        likeliest[0] = True  # a draft needs at least one token
        count = int(likeliest.long().cumprod(0).sum())
        return Draft(draft.ids[:count], draft.q[:count], draft.step_logits[:count])

    monkeypatch.setattr(NumpyPath, "draft", without_an_unlikely_end)
    assert fit_of_a_chain(replace(CONFIDENT, verdict=verdict)) < SIGNIFICANCE


def test_only_a_run_tells_how_sure_a_draft_is(pair: Pair):
    assert is_predictable(Settings(gamma_policy="optimal"), pair)
    assert not is_predictable(Settings(gamma_policy="confidence"), pair)
    assert is_predictable(Settings(gamma_policy="confidence", drafter="ngram"), pair), "has no say"

"""Predict the rounds of every gamma from one run, without running them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from toy_heads import random_head
from toy_models import finish, llama, pair_of, relative

from specviz import Pair, Round, Settings
from specviz.core.model_facts import context_length
from specviz.core.tensor_draws import probabilities
from specviz.kinds import DRAFTERS
from specviz.measure.sweep.predicted_rounds import (
    DraftsAlong,
    KnownText,
    acceptance_along,
    predicted_rounds,
    simulated_rounds,
)
from specviz.sides.heads.eagle import Head

VOCAB = 12
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
LARGEST = 8
LENGTH = 36
BASE = Settings(gamma=LARGEST, max_new_tokens=LENGTH, ignore_eos=True)


@pytest.fixture(scope="module", autouse=True)
def bare() -> Iterator[None]:
    with bare_rounds():
        yield


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A target of three layers and a draft that often agrees with it."""
    target = llama(VOCAB, num_hidden_layers=3, initializer_range=0.3)
    return pair_of(target, relative(target, noise=0.12))


def agreeing_head(target: Any) -> Head:
    """A head that continues with the target's own last state: sometimes right, and less often with
    each step."""
    head = random_head(target)
    head.fc.weight.data.zero_()
    head.fc.weight.data[:, -head.fc.out_features :] = torch.eye(head.fc.out_features)
    head.lm_head.weight.data = target.get_output_embeddings().weight.detach().clone()
    return head


def told(rounds: list[Round]) -> list[tuple[int, int, int, int]]:
    """Count the drafted, judged, accepted and emitted tokens of each round."""
    return [
        (
            len(r.drafted),
            sum(token.outcome != "ignored" for token in r.drafted),
            sum(token.outcome == "accepted" for token in r.drafted),
            len(r.emitted),
        )
        for r in rounds
    ]


def text_of(pair: Pair, rounds: list[Round], settings: Settings) -> KnownText:
    ids = (*PROMPT, *(token.id for r in rounds for token in r.emitted))
    budget = len(PROMPT) + settings.max_new_tokens
    return KnownText(ids, len(PROMPT), budget, context_length(pair.target))


def predicted(pair: Pair, text: KnownText, settings: Settings) -> list[tuple[int, int, int, int]]:
    drafts = DraftsAlong(pair, text, settings, acceptance_along(pair, text, settings))
    return list(simulated_rounds(drafts, settings, random.Random(0)))


@pytest.mark.parametrize("drafter", [kind.name for kind in DRAFTERS if kind.predicted])
def test_one_greedy_run_tells_the_rounds_of_every_gamma_and_policy(pair: Pair, drafter: str):
    if drafter in ("head", "ngram-head"):
        pair = replace(pair, head=agreeing_head(pair.target))
    at_largest = replace(BASE, drafter=drafter)
    text = text_of(pair, finish(pair, PROMPT, at_largest)[0], at_largest)
    seen = set()
    for policy, gammas in {"fixed": (1, 3, 8), "heuristic": (8,), "optimal": (8,)}.items():
        for gamma in gammas:
            settings = replace(at_largest, gamma=gamma, gamma_policy=policy)
            measured = told(finish(pair, PROMPT, settings)[0])
            assert predicted(pair, text, settings) == measured, (policy, gamma)
            seen |= {(accepted == judged) for _, judged, accepted, _ in measured if judged}
    assert seen == {True, False}, "the test needs rounds with and without a rejection"


def test_a_text_that_ends_by_itself_and_one_that_fills_the_context(pair: Pair):
    rounds, _ = finish(pair, PROMPT, BASE)
    ids = [token.id for r in rounds for token in r.emitted]
    limits = [(512, {last}, "eos") for last in dict.fromkeys(ids)]
    ends_in_drafts = 0
    for context, ends, why in (*limits, (len(PROMPT) + 21, set(), "context")):
        pair.target.config.max_position_embeddings = context
        pair.target.generation_config.eos_token_id = list(ends) or None
        at_largest = replace(BASE, ignore_eos=not ends)
        try:
            done, reason = finish(pair, PROMPT, at_largest)
            assert reason == why
            text = text_of(pair, done, at_largest)
            for gamma in (1, 3, 6):
                settings = replace(at_largest, gamma=gamma)
                measured = told(finish(pair, PROMPT, settings)[0])
                assert predicted(pair, text, settings) == measured
                ends_in_drafts += measured[-1][2] == measured[-1][3]
        finally:
            pair.target.config.max_position_embeddings = 512
            pair.target.generation_config.eos_token_id = None
    assert ends_in_drafts, "no text ended within accepted drafts: the test shows nothing"


def test_a_draft_with_a_shorter_context_drafts_no_further(pair: Pair):
    draft = relative(pair.target, noise=0.05)
    draft.config = copy.deepcopy(draft.config)  # it was shared with the target
    draft.config.max_position_embeddings = len(PROMPT) + 15
    short = pair_of(pair.target, draft)
    text = text_of(short, finish(short, PROMPT, BASE)[0], BASE)
    for gamma in (2, 5):
        settings = replace(BASE, gamma=gamma)
        measured = told(finish(short, PROMPT, settings)[0])
        assert predicted(short, text, settings) == measured
        assert measured[-1][0] == 0, "the last rounds draft nothing"


def test_a_sampled_token_was_accepted_with_the_probability_that_theory_gives(pair: Pair):
    settings = Settings(temperature=0.8, top_k=8, gamma=4, max_new_tokens=20, ignore_eos=True)
    text = text_of(pair, finish(pair, PROMPT, settings)[0], settings)
    known = acceptance_along(pair, text, settings)
    assert known is not None and len(known) == 20
    ids = torch.tensor([text.ids])
    with torch.inference_mode():
        p, q = (
            probabilities(model(ids).logits[0, :, :VOCAB], settings)
            for model in (pair.target, pair.draft)
        )
    for place, chance in enumerate(known, len(PROMPT)):
        token = text.ids[place]
        ratio = (q[place - 1, token] / p[place - 1, token]).item()
        assert chance == pytest.approx(min(1.0, ratio), abs=1e-4)


def test_the_expected_rounds_of_sampled_texts_are_those_of_real_runs(pair: Pair):
    """Summed over many texts, a prediction from runs with gamma 6 matches real runs with gamma
    2."""
    real = drafted = accepted = expected = expected_accepted = 0.0
    for seed in range(30):
        large = Settings(temperature=1.0, gamma=6, max_new_tokens=16, seed=seed, ignore_eos=True)
        small = replace(large, gamma=2, seed=1000 + seed)
        text = text_of(pair, finish(pair, PROMPT, large)[0], large)
        rounds = predicted_rounds(pair, text, small, acceptance_along(pair, text, small))
        expected += rounds.total() / 32
        expected_accepted += sum(one[2] * count for one, count in rounds.items()) / 32
        measured = told(finish(pair, PROMPT, small)[0])
        real += len(measured)
        drafted += sum(one[0] for one in measured)
        accepted += sum(one[2] for one in measured)
    assert 0.2 < accepted / drafted < 0.95, "neither trivial nor hopeless"
    assert expected == pytest.approx(real, rel=0.08)
    assert expected_accepted == pytest.approx(accepted, rel=0.12)

"""The tokens follow the target's own distribution, for every draft and all settings.

`reference_distribution` computes that distribution. The last part biases the verifier in ways that
occur in public code, and the same tests must then fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from all_pairs import all_pairs
from bare_rounds import bare_rounds, short_texts
from reference_distribution import (
    chain_p_value,
    continuation_distribution,
    p_value,
    text_p_value,
)
from torch import Tensor
from toy_models import emitted_ids, llama, mini, pair_of

import specviz.core.loop
from specviz import Pair, Settings, baseline, speculate
from specviz.core.draws import Distributions
from specviz.core.events import OUTCOMES
from specviz.core.numpy_path import NumpyPath
from specviz.core.policy import DraftCosts
from specviz.core.tensor_draws import draw, probabilities, residual, uniforms
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.core.types import Draft

PROMPT = [2, 0]
SHOWN = 3  # tokens of a sequence whose joint distribution is tested
SAMPLES = 400  # the mildest of the wrong verifiers below needs most of them
RUN = 500  # tokens of the one long run of a chain
TEXT = 1000  # tokens of one long text in which each depends on all before
ROOM = {"max_position_embeddings": 3500}  # for such runs
PARTS = (200, 300, 400, 1000)  # samples, or tokens of the long run, after which the fit is tested
SIGNIFICANCE = 1e-4  # failure rate of a right sampler per test; seeds are fixed, so it never fails

Decode = Callable[..., Iterator[Any]]


def history_pair(**config: Any) -> Pair:
    """A pair of models whose next token depends on all before it."""
    return pair_of(*(mini(4, seed=seed, spread=2.0, **config) for seed in (2, 3)))


def ending_pair() -> Pair:
    """A pair that ends half of its texts early, at id 1. Its two distributions differ so much that
    samples expose `lenient` three times as clearly as with other such pairs."""
    models = (mini(4, seed=seed, spread=3.0, eos_token_id=1) for seed in (6, 20))
    return pair_of(*models)


def llama_pair() -> Pair:
    return pair_of(*(llama(4, seed=seed, **ROOM) for seed in (0, 1)))


def chain_pair() -> Pair:
    """A pair of Markov chains: each token of one long run is a sample of a known distribution."""
    return history_pair(decay=0.0, **ROOM)


def deep_pair() -> Pair:
    """A target of two layers whose first layer sometimes agrees with the whole."""
    target = llama(4, seed=0, num_hidden_layers=2, **ROOM)
    with torch.no_grad():
        for weight in target.model.layers[1].parameters():
            weight *= 1.5
    return pair_of(target)


def deep_chain() -> Pair:
    """The same target without attention, which makes it a Markov chain."""
    pair = deep_pair()
    with torch.no_grad():
        for block in pair.target.model.layers:
            block.self_attn.o_proj.weight.zero_()
    return pair


def sequences_fit(pair: Pair, settings: Settings) -> float:
    """The p-value of the first tokens of many texts under the target's distribution.

    The test stops at the first part of the samples that does not fit.
    """
    law = continuation_distribution(pair.target, PROMPT, SHOWN, settings, pair.eos_ids)
    # Texts are longer than the tested part, so that every round has room for all its drafts.
    longer = replace(settings, max_new_tokens=SHOWN + settings.gamma)
    seen: list[tuple[int, ...]] = []
    for text in short_texts(pair, PROMPT, longer, count=SAMPLES, shown=SHOWN):
        seen.append(text)
        if len(seen) in PARTS and (fit := p_value(seen, law)) < SIGNIFICANCE:
            return fit
    return p_value(seen, law)


def text_fits(pair: Pair, settings: Settings, lane: Decode = speculate) -> float:
    """The p-value of the tokens of one long text, each under the target's distribution after its
    prefix."""
    with bare_rounds():
        ids = emitted_ids(lane(pair, PROMPT, replace(settings, max_new_tokens=TEXT)))
    assert len(ids) == TEXT
    return text_p_value(pair.target, PROMPT, ids, settings, pair.draft)


def chain_fits(settings: Settings, lane: Decode = speculate, tokens: int = RUN) -> float:
    """The p-value of one long run of a chain; the test stops early as above."""
    pair = deep_chain() if settings.drafter == "early-exit" else chain_pair()
    ids = [PROMPT[-1]]
    parts = [part for part in PARTS if part < tokens]
    with bare_rounds():
        for r in lane(pair, PROMPT, replace(settings, max_new_tokens=tokens)):
            ids += [token.id for token in r.emitted]
            if parts and len(ids) > parts[0]:
                del parts[0]
                if (fit := chain_p_value(pair.target, ids, settings)) < SIGNIFICANCE:
                    return fit
    return chain_p_value(pair.target, ids, settings)


def named(settings: Settings) -> str:
    return f"{settings.gamma}-{settings.temperature}-{settings.top_k}-{settings.top_p}"


def sampling(gamma: int, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Settings:
    return Settings(gamma=gamma, temperature=temperature, top_k=top_k, top_p=top_p)


ENDING = sampling(3, 1.0, top_k=3)  # for `ending_pair`


def test_bare_rounds_have_the_tokens_of_whole_ones():
    """Texts here and in other tests of a distribution are written without cards."""
    pair = ending_pair()
    seen = set()
    for seed in range(12):
        settings = replace(ENDING, max_new_tokens=20, seed=seed)
        whole = list(speculate(pair, PROMPT, settings))
        with bare_rounds():
            bare = list(speculate(pair, PROMPT, settings))
        for ours, theirs in zip(bare, whole, strict=True):
            assert [t.q for t in ours.drafted] == [t.q for t in theirs.drafted]
            uniforms_shown = [t.u for t in theirs.drafted if t.outcome != "ignored"]
            assert [t.u for t in ours.drafted][: len(uniforms_shown)] == uniforms_shown
            tokens, others = ([(t.id, t.outcome) for t in r.tokens] for r in (ours, theirs))
            assert tokens == others
            seen |= {outcome for _, outcome in tokens}
    assert seen == set(OUTCOMES)


def test_whole_sequences_that_may_end_early_follow_the_target():
    assert sequences_fit(ending_pair(), ENDING) > SIGNIFICANCE


def test_a_text_of_a_llama_follows_the_target():
    assert text_fits(llama_pair(), sampling(3, 1.0)) > SIGNIFICANCE


def test_a_text_of_the_baseline_follows_the_target():
    pair = history_pair(**ROOM)
    assert text_fits(pair, sampling(5, 0.7, top_k=3, top_p=0.8), baseline) > SIGNIFICANCE


@pytest.mark.parametrize(
    "mix",
    all_pairs(gamma=(1, 5), temperature=(1.0, 1.5), top_k=(0, 3), top_p=(1.0, 0.8)),
    ids=str,
)
def test_every_two_settings_together_follow_the_target(mix: dict[str, Any]):
    assert chain_fits(Settings(**mix)) > SIGNIFICANCE


def test_rounds_of_64_copies_follow_the_target():
    settings = replace(sampling(64, 1.0), drafter="ngram")
    assert chain_fits(settings) > SIGNIFICANCE


@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_the_baseline_follows_the_target(temperature: float):
    assert chain_fits(sampling(5, temperature, top_k=3, top_p=0.8), baseline) > SIGNIFICANCE


# The tests of wrong verifiers below run every drafter with a fixed gamma; test_confidence.py runs
# the draft model with the policy "confidence".
ADAPTIVE = [
    replace(sampling(gamma, temperature, top_k=top_k), drafter=drafter, gamma_policy=policy)
    for drafter in ("model", "ngram", "early-exit")
    for policy, gamma, temperature, top_k in (
        ("heuristic", 5, 1.0, 3),
        ("optimal", 5, 0.7, 0),
    )
]
ADAPTIVE.append(replace(ADAPTIVE[-1], gamma_policy="confidence"))


@pytest.fixture
def cheap_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make drafts cheap: at the real cost of toy models of equal size "optimal" would not draft."""
    monkeypatch.setattr("specviz.core.cost.draft_costs", lambda *_: DraftCosts(0.1, 0.05))


def in_words(settings: Settings) -> str:
    return f"{settings.drafter}-{settings.gamma_policy}-{settings.temperature}"


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize(
    "settings",  # settings that the next test does not cover
    [ADAPTIVE[i] for i in (0, 1, 3, 4, 6)],
    ids=in_words,
)
def test_a_long_run_with_every_drafter_and_policy_follows_the_target(settings: Settings):
    assert chain_fits(settings, tokens=2 * RUN) > SIGNIFICANCE


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize(
    "settings",  # each drafter and each policy once
    [replace(ADAPTIVE[0], gamma_policy="fixed"), ADAPTIVE[2], ADAPTIVE[5]],
    ids=in_words,
)
def test_a_text_with_every_drafter_and_policy_follows_the_target(settings: Settings):
    pair = deep_pair() if settings.drafter == "early-exit" else history_pair(**ROOM)
    assert text_fits(pair, settings) > SIGNIFICANCE


# Verifiers that are wrong on purpose


def lenient(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, rng: torch.Generator) -> Tensor:
    """A wrong verifier: accept with probability 1.2 p / q."""
    return decide_on_tensors(p, q, drafted, u / 1.2, rng)


def reckless(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, rng: torch.Generator) -> Tensor:
    """A wrong verifier: accept with probability 2 p / q."""
    return decide_on_tensors(p, q, drafted, u / 2, rng)


def corrects_from_p(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, rng: torch.Generator
) -> Tensor:
    """A wrong verifier: after a rejection, draw from the target instead of the residual."""
    accepted = decide_on_tensors(p, q, drafted, u, rng)[0]
    return torch.stack([accepted, draw(p[accepted], uniforms(1, rng)[0])])


def residual_of_the_last_row(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, rng: torch.Generator
) -> Tensor:
    """A wrong verifier: correct with the residual of the wrong position."""
    accepted, next_id = decide_on_tensors(p, q, drafted, u, rng)
    if accepted < len(drafted):
        next_id = draw(residual(p[-2], q[-1]), uniforms(1, rng)[0])
    return torch.stack([accepted, next_id])


WRONG = [lenient, corrects_from_p, residual_of_the_last_row]


def test_a_wrong_verifier_fails_on_whole_sequences(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: lenient)
    assert sequences_fit(ending_pair(), ENDING) < SIGNIFICANCE


@pytest.mark.parametrize("pair_with", [llama_pair, lambda: history_pair(**ROOM)])
def test_a_wrong_verifier_fails_on_a_text(pair_with: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: corrects_from_p)
    assert text_fits(pair_with(), sampling(3, 1.0)) < SIGNIFICANCE


@pytest.mark.parametrize("verifier", [decide_on_tensors, *WRONG])
def test_a_long_run_tells_a_wrong_verifier_from_the_right_one(
    verifier: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: verifier)
    fit = chain_fits(sampling(3, 1.0), tokens=3 * RUN)
    assert fit > SIGNIFICANCE if verifier is decide_on_tensors else fit < SIGNIFICANCE


@pytest.mark.parametrize("drafter", ["ngram", "early-exit"])
@pytest.mark.parametrize("verifier", [decide_on_tensors, reckless, *WRONG[1:]])
def test_other_drafters_tell_a_wrong_verifier_from_the_right_one(
    verifier: Any, drafter: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: verifier)
    settings = replace(sampling(3, 1.0), drafter=drafter)
    fit = chain_fits(settings, tokens=4 * RUN)
    assert fit > SIGNIFICANCE if verifier is decide_on_tensors else fit < SIGNIFICANCE


def test_dropping_a_draft_because_of_what_was_drawn_fails(monkeypatch: pytest.MonkeyPatch):
    """Ending a draft before an unlikely token, as some rules for gamma do, biases the text. A test
    above shows that an equally long run of the right rule fits."""

    whole_run = NumpyPath.draft

    def drops_unlikely(*values: Any, **options: Any) -> Draft:
        drawn = whole_run(*values, **options)
        ids = drawn.ids
        q = drawn.q
        rows = drawn.step_logits
        chances = q.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        kept = int((chances > 0.25).long().cumprod(0).sum())
        return Draft(ids[:kept], q[:kept], rows[:kept] if rows is not None else None)

    monkeypatch.setattr(NumpyPath, "draft", drops_unlikely)
    assert chain_fits(sampling(3, 1.0), tokens=3 * RUN) < SIGNIFICANCE


def test_a_q_from_before_truncation_fails(monkeypatch: pytest.MonkeyPatch):
    """Drafts are drawn from the truncated q but judged by the whole one."""
    settings = sampling(3, 1.0, top_k=2)
    whole = replace(settings, top_k=0)
    drawn = Distributions.draw

    def judged_by_the_whole(
        distributions: Distributions, place: int, logits: Tensor, uniform: float
    ) -> Tensor:
        feed = drawn(distributions, place, logits, uniform)
        whole_q = probabilities(logits * distributions.temperature, whole)
        distributions.row(place)[0] = whole_q[0]
        return feed

    monkeypatch.setattr(Distributions, "draw", judged_by_the_whole)
    assert chain_fits(settings) < SIGNIFICANCE

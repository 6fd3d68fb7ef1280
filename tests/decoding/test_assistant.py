"""Assistants of Gemma 4: their drafts, and texts that stay exact here but not in transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from reference_distribution import chain_p_value
from toy_assistants import assistant, drafted_logits, gemma, gemma_chain
from toy_models import emitted_ids, finish, generated, outcome_counts, pair_of

from specviz import Settings, Trace, race, speculate
from specviz.core.draws import Distributions
from specviz.runs.identities import check_trace

VOCAB = 24
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6]  # longer than the sliding window
SAMPLED = Settings(gamma=4, temperature=1.0, max_new_tokens=24, drafter="head")
LONG = replace(SAMPLED, gamma=3, max_new_tokens=300)
SIGNIFICANCE = 1e-4


@pytest.mark.parametrize("shared", [0, 2])
def test_chains_read_the_states_and_the_cache_of_the_text_alone(shared: int):
    target = gemma(VOCAB, shared=shared)
    head = assistant(target)
    pair = pair_of(target, head=head)
    text = list(PROMPT)
    seen = 0
    rounds = list(speculate(pair, PROMPT, replace(SAMPLED, temperature=2.0)))
    for r in rounds:
        for place, token in enumerate(r.drafted):
            ids = [*text, *(t.id for t in r.drafted[:place])]
            q = (drafted_logits(head, target, ids, place) / 2.0).softmax(-1)
            assert token.q == pytest.approx(q[token.id].item(), abs=2e-4)
            seen += 1
        text += [t.id for t in r.emitted]
    counts = outcome_counts(rounds)
    assert seen > 30 and counts["accepted"] > 3 and counts["rejected"] > 3


@pytest.mark.parametrize("prompt", [PROMPT, [7]])
def test_greedy_text_is_the_targets_own(prompt: list[int]):
    target = gemma(VOCAB)
    clusters = {"num_centroids": 6, "centroid_intermediate_top_k": 2}
    head = assistant(target, use_ordered_embeddings=True, **clusters)
    head.model.masked_embedding.token_ordering.copy_(torch.arange(VOCAB))
    events = list(race(pair_of(target, head=head), prompt, replace(SAMPLED, temperature=0.0)))
    trace = Trace.from_events(events)
    check_trace(trace)
    assert trace.end is not None and trace.end.identical
    assert emitted_ids(trace.lane("speculative")) == generated(target, prompt, 24)
    assert events[0].draft["context"] is None and events[0].draft["parameters"] > 1000


def fit(target: Any, ids: list[int]) -> float:
    return chain_p_value(target, [2, *ids], LONG)


def test_a_long_run_follows_the_target_and_a_wrong_q_does_not(monkeypatch: pytest.MonkeyPatch):
    """The wrong q is that of transformers: the likeliest token is drafted, but judged as if it was
    drawn."""
    target = gemma_chain(4)
    pair = pair_of(target, head=assistant(target))
    with bare_rounds():
        rounds, _ = finish(pair, [2], LONG)
    assert outcome_counts(rounds)["accepted"] > 60
    assert fit(target, emitted_ids(rounds)) > SIGNIFICANCE

    def likeliest(rows: Any, place: int, logits: torch.Tensor, uniform: float) -> torch.Tensor:
        return draw(rows, place, logits, uniform).copy_(logits.argmax(-1))

    draw = Distributions.draw
    monkeypatch.setattr(Distributions, "draw", likeliest)
    with bare_rounds():
        rounds, _ = finish(pair, [2], replace(LONG, max_new_tokens=150, seed=1))
    assert fit(target, emitted_ids(rounds)) < SIGNIFICANCE


def test_transformers_own_sampling_with_an_assistant_follows_another_law():
    """docs/heads.md states this for the versions that requirements.txt allows."""
    target = gemma_chain(4, shared=2)  # without shared layers it hands out no keys
    helper = assistant(target).model
    helper.generation_config.num_assistant_tokens = 3
    sampled = dict(do_sample=True, top_k=0, pad_token_id=0, max_new_tokens=300)
    prompt = torch.tensor([[2]])
    torch.manual_seed(0)
    with torch.no_grad():
        ids = target.generate(
            prompt, attention_mask=torch.ones_like(prompt), assistant_model=helper, **sampled
        )
    assert fit(target, ids[0, 1:].tolist()) < SIGNIFICANCE

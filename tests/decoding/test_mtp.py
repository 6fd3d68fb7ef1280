"""A target's own multi-token prediction layers: their drafts, and texts that stay exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bare_rounds import bare_rounds
from reference_distribution import chain_p_value
from toy_models import emitted_ids, finish, generated, outcome_counts, pair_of
from toy_mtp import KINDS, drafted_logits, head_of, with_layers
from transformers.cache_utils import MtpCache

from specviz import Settings, Trace, race, speculate
from specviz.base.errors import PairError
from specviz.runs.identities import check_trace
from specviz.sides.heads.mtp import MtpHead

VOCAB = 24
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6]
SAMPLED = Settings(gamma=5, temperature=1.0, max_new_tokens=24, drafter="head")
SIGNIFICANCE = 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_chains_begin_at_true_states_whatever_was_rejected(kind: str):
    """The test covers a whole run, with chains longer than the number of layers."""
    target, layers = with_layers(kind, VOCAB)
    pair = pair_of(target, head=MtpHead(layers, target))
    text = list(PROMPT)
    seen = 0
    rounds = list(speculate(pair, PROMPT, SAMPLED))
    for r in rounds:
        for place, token in enumerate(r.drafted):
            ids = [*text, *(t.id for t in r.drafted[:place])]
            q = drafted_logits(target, layers, ids, place).softmax(-1)
            assert token.q == pytest.approx(q[token.id].item(), abs=2e-4)
            seen += 1
        text += [t.id for t in r.emitted]
    counts = outcome_counts(rounds)
    assert seen > 40 and counts["accepted"] > 3 and counts["rejected"] > 3


def test_the_reference_is_what_transformers_own_drafting_computes():
    target, layers = with_layers("deepseek", VOCAB)
    text = torch.tensor([[*PROMPT, 7]])
    with torch.no_grad():
        states = target(input_ids=text[:, :-1], output_hidden_states=True).hidden_states[-1]
        places = torch.arange(1, text.shape[1])[None]
        cache = MtpCache(config=layers.config)
        drafted, logits, _ = layers(text[:, 1:], states, None, places, cache)
    for chain in range(3):
        ids = [*text[0].tolist(), *drafted[0, :chain].tolist()]
        torch.testing.assert_close(drafted_logits(target, layers, ids, chain), logits[0, chain])


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_the_targets_own_from_any_prompt(kind: str):
    target, layers = with_layers(kind, VOCAB)
    pair = pair_of(target, head=MtpHead(layers, target))
    for prompt in (PROMPT, [7]):
        events = list(race(pair, prompt, replace(SAMPLED, temperature=0.0, max_new_tokens=12)))
        trace = Trace.from_events(events)
        check_trace(trace)
        text = emitted_ids(trace.lane("speculative"))
        assert trace.end is not None and trace.end.identical
        assert text == generated(target, prompt, 12)
    described = events[0].draft
    assert described["name"].endswith(", MTP layers") and described["context"] is None
    assert 1000 < described["parameters"] < events[0].target["parameters"] * len(layers.layers)


def test_a_long_run_follows_the_target():
    """A broken q fails the same test with an assistant, whose drafts use the same code."""
    target, layers = with_layers("mellum", 4)
    with torch.no_grad():
        for layer in target.model.layers:  # without attention, its text is a Markov chain
            layer.self_attn.o_proj.weight.zero_()
    settings = replace(SAMPLED, gamma=3, max_new_tokens=300)
    with bare_rounds():
        rounds, _ = finish(pair_of(target, head=MtpHead(layers, target)), [2], settings)
    assert outcome_counts(rounds)["accepted"] > 60
    assert chain_p_value(target, [2, *emitted_ids(rounds)], settings) > SIGNIFICANCE


def test_layers_of_another_target_are_refused():
    one = head_of("mellum", VOCAB)
    other, _ = with_layers("mellum", VOCAB)
    with pytest.raises(PairError, match="another target"):
        pair_of(other, head=one)

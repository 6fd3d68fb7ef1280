"""Races of models in memory, with more architectures and configs than the families have."""

from __future__ import annotations

from functools import cache
from itertools import cycle
from typing import Any

import pytest
from model_families import VARIANTS, build
from toy_heads import random_head
from toy_models import emitted_ids, generated, pair_of, relative

from specviz import Settings, baseline, race, speculate
from specviz.core.engine_choice import make_engine
from specviz.core.model_facts import context_length

VOCAB = 40
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]  # longer than the window of sliding attention
LENGTH = 24  # of the texts, in tokens


@cache
def target_and_text(kind: str) -> tuple[Any, list[int]]:
    """A model of this kind, and the text that its `generate` writes after the prompt."""
    target = build(kind)
    return target, generated(target, PROMPT, LENGTH)


@pytest.mark.parametrize(("kind", "gamma"), zip(VARIANTS, cycle((1, 4)), strict=False))
def test_both_lanes_write_what_generate_writes(kind: str, gamma: int):
    target, wanted = target_and_text(kind)
    pair = pair_of(target, relative(target, noise=0.2))
    settings = Settings(gamma=gamma, max_new_tokens=LENGTH)
    assert len(set(wanted)) > 3, "a text of one token would prove little"
    rounds = list(speculate(pair, PROMPT, settings))
    assert emitted_ids(rounds) == wanted
    assert emitted_ids(baseline(pair, PROMPT, settings)) == wanted
    assert {"accepted", "rejected"} <= {t.outcome for r in rounds for t in r.drafted}


# Early exits and heads read the modules of each kind. Copies of the text need only its cache: a
# compiled one, a sliding one, and one with a running state.
MET = [
    *zip(VARIANTS, cycle(("early-exit", "head"))),
    ("llama, biases", "ngram"),
    ("qwen 2, sliding", "suffix"),
    ("lfm 2, convolutions", "ngram-head"),
]


@pytest.mark.parametrize(("kind", "drafter"), MET)
def test_a_target_alone_writes_what_generate_writes(kind: str, drafter: str):
    target, wanted = target_and_text(kind)
    settings = Settings(gamma=3, drafter=drafter, max_new_tokens=LENGTH)
    rounds = list(speculate(pair_of(target, head=random_head(target)), PROMPT, settings))
    assert emitted_ids(rounds) == wanted
    assert any(r.drafted for r in rounds)


@pytest.mark.parametrize("kind", ["gpt 2", "opt", "mistral, sliding", "gpt neox"])
def test_the_last_place_of_the_context_is_used(kind: str):
    """Learned positions would run off their table one position further."""
    limit = {"n_positions": 16} if kind == "gpt 2" else {"max_position_embeddings": 16}
    target = build(kind, **limit)
    assert context_length(target) == 16
    pair = pair_of(target, relative(target, noise=0.2))
    ours, theirs = (
        emitted_ids(lane(pair, PROMPT, Settings(gamma=4, max_new_tokens=99)))
        for lane in (speculate, baseline)
    )
    assert ours == theirs and len(ours) == 16 - len(PROMPT) + 1


def test_plain_llamas_and_their_like_run_compiled_and_all_others_as_they_are():
    for kind in ("llama", "llama, biases", "llama, yarn", "qwen 2", "qwen 3"):
        assert make_engine(build(kind), VOCAB).name == "compiled", kind
    for kind in ("llama, dynamic rope", "llama, wide heads", "mistral, sliding", "gpt 2"):
        assert make_engine(build(kind), VOCAB).name == "eager", kind


def test_different_architectures_race_each_other():
    pair = pair_of(build("gpt 2"), build("mistral, sliding"))
    *_, end = race(pair, PROMPT, Settings(gamma=3, max_new_tokens=20))
    assert end.identical

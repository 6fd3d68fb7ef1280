"""More architectures and configs than the families have: models held in memory can race."""

from __future__ import annotations

from itertools import cycle

import pytest
from model_families import VARIANTS, build
from toy_heads import random_head
from toy_models import emitted_ids, generated, pair_of, relative

from specviz import Settings, baseline, race, speculate
from specviz.core.engine_choice import make_engine
from specviz.core.model_facts import context_length
from specviz.core.registry import drafter_names

VOCAB = 40
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]  # longer than the window of sliding attention


@pytest.mark.parametrize(("kind", "gamma"), zip(VARIANTS, cycle((1, 4)), strict=False))
def test_both_lanes_write_what_generate_writes(kind: str, gamma: int):
    target = build(kind)
    pair = pair_of(target, relative(target, noise=0.2))
    settings = Settings(gamma=gamma, max_new_tokens=40)
    wanted = generated(target, PROMPT, 40)
    assert len(set(wanted)) > 3, "a text of one token would prove little"
    rounds = list(speculate(pair, PROMPT, settings))
    assert emitted_ids(rounds) == wanted
    assert emitted_ids(baseline(pair, PROMPT, settings)) == wanted
    assert {"accepted", "rejected"} <= {t.outcome for r in rounds for t in r.drafted}


# Each drafter meets half of them.
ALONE = [d for d in drafter_names() if d not in ("model", "none")]
MET = [(kind, ALONE[(i + 2 * j) % len(ALONE)]) for i, kind in enumerate(VARIANTS) for j in (0, 1)]


@pytest.mark.parametrize(("kind", "drafter"), MET)
def test_a_target_alone_writes_what_generate_writes(kind: str, drafter: str):
    target = build(kind)
    settings = Settings(gamma=3, drafter=drafter, max_new_tokens=40)
    rounds = list(speculate(pair_of(target, head=random_head(target)), PROMPT, settings))
    assert emitted_ids(rounds) == generated(target, PROMPT, 40)
    assert any(r.drafted for r in rounds)


@pytest.mark.parametrize("kind", ["gpt 2", "opt", "mistral, sliding", "gpt neox"])
def test_the_last_place_of_the_context_is_used(kind: str):
    """Learned positions would run off their table, one place further."""
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

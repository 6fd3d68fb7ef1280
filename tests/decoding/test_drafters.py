"""Drafts from earlier text and from the target's own first layers."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_families import FAMILIES, build
from sentences import Sentences
from toy_models import (
    emitted_ids,
    examples,
    finish,
    generated,
    llama,
    mini,
    next_logits,
    pair_of,
    relative,
    scripted,
)

import specviz.core.loop
from specviz import Settings, race, speculate
from specviz.base.errors import PairError
from specviz.core.cost import pass_cost
from specviz.core.eager import EagerEngine
from specviz.core.engine_choice import make_engine
from specviz.core.layers import first_layers
from specviz.core.loop import start_lane
from specviz.core.model_facts import parameter_count, pass_bytes
from specviz.core.ngrams import SIZES, NgramIndex
from specviz.inspect.random_models import random_model
from specviz.inspect.shapes import SHAPES
from specviz.sides.early_exit import drafter as exits
from specviz.sides.early_exit.drafter import best_exit, measured_exits

VOCAB = 40
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
SAMPLED = Settings(gamma=4, temperature=1.0, max_new_tokens=40, drafter="early-exit")


def eager_engine(model: Any, vocab: int, **_: bool) -> EagerEngine:
    return EagerEngine(model, vocab)


@pytest.fixture(params=["fastest", "eager"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with the engine's choice for a Llama, and with transformers' own forward."""
    if request.param == "eager":
        monkeypatch.setattr(specviz.core.loop, "make_engine", eager_engine)
    return str(request.param)


# Prompt lookup


def looked_up(ids: list[int], count: int) -> list[int]:
    """Prompt lookup by its definition: compare the text's end with every earlier position."""
    for size in SIZES:
        for start in range(len(ids) - size - 1, -1, -1):
            if ids[start : start + size] == ids[-size:] and len(ids) > size:
                text = list(ids)
                for place in range(start + size, start + size + count):
                    text.append(text[place])
                return text[len(ids) :]
    return []


@examples(200)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 5))
def test_the_index_finds_the_longest_then_latest_match(ids: list[int], count: int, step: int):
    index = NgramIndex()
    for end in range(1, len(ids) + 1, step):
        index.extend(ids[:end])
        size, start = index.match()
        found = index.copied(start, count) if size else []
        assert found == looked_up(ids[:end], count)
        assert ids[start - size : start] == ids[end - size : end]


def test_a_look_up_takes_microseconds_whatever_the_context():
    ids = [(7 * i * i + i // 9) % 5000 for i in range(20_000)]
    index = NgramIndex()
    index.extend(ids)
    start = time.perf_counter()
    for token in range(200):
        ids.append(token % 50)
        index.extend(ids)
        index.copied(index.match()[1], 8)
    assert (time.perf_counter() - start) / 200 < 500e-6  # seconds; a few microseconds if idle


def test_prompt_lookup_needs_no_draft_model_and_loves_a_circle():
    circle = [1, 2, 3, 4, 5]
    target = scripted(circle, 9)
    with torch.no_grad():
        target.head.weight[1, 5] = 12.0
    settings = Settings(gamma=5, drafter="ngram", max_new_tokens=40)
    rounds, _ = finish(pair_of(target), [1], settings)
    assert emitted_ids(rounds) == generated(target, [1], 40)
    seen = [len(r.drafted) for r in rounds]
    assert seen[:6] == [0] * 6, "nothing has been said twice yet"
    assert set(seen[6:-1]) == {5}
    assert {t.outcome for r in rounds[:-1] for t in r.drafted} == {"accepted"}
    header = next(iter(race(pair_of(target), [1], settings)))
    assert header.draft is None and "draft" not in header.prefill_seconds["speculative"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_card_of_a_token_that_was_looked_up_shows_its_certainty(temperature: float):
    settings = Settings(gamma=3, drafter="ngram", temperature=temperature, max_new_tokens=30)
    rounds, _ = finish(pair_of(llama(5, seed=3)), [1, 2, 1, 2], settings)
    drafted = [t for r in rounds for t in r.drafted]
    assert {t.outcome for t in drafted} >= {"accepted", "rejected"}
    for token in drafted:
        assert token.q == 1.0 and token.soft_q in (None if temperature else 1.0,)
        assert [(c.id, c.probability) for c in token.top_q] == [(token.id, 1.0)]
        if token.outcome != "ignored":
            assert token.beta == pytest.approx(token.p)


# Early exit


def layered(layers: int = 3, *, idle: int = 0, **config: Any) -> Any:
    """A Llama whose last `idle` layers have no effect."""
    model = llama(VOCAB, num_hidden_layers=layers, hidden_size=32, **config)
    with torch.no_grad():
        for block in list(model.model.layers)[layers - idle :]:
            block.self_attn.o_proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()
    return model


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_shallow_pass_shares_cache_and_weights_in_every_family(kind: str):
    model = build(kind)
    before = dict(model.named_modules()).keys()
    shallow = first_layers(model, 1)
    own = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in shallow.parameters()} <= own
    assert 0 < parameter_count(shallow) < parameter_count(model)
    assert dict(model.named_modules()).keys() == before
    engine = EagerEngine(model, VOCAB)
    begin = len(PROMPT)
    engine.forward(torch.tensor(PROMPT), keep=1)
    engine.rollback(begin)
    drafted = [7, 8, 9]
    rows = [engine.forward(torch.tensor([i]), keep=1, layers=1) for i in drafted]
    engine.rollback(begin)
    with torch.inference_mode():
        ids = torch.tensor([[*PROMPT, *drafted]])
        wanted = shallow(input_ids=ids, use_cache=False).logits[0, begin:]
        whole = model(input_ids=ids, use_cache=False).logits[0, begin:]
    torch.testing.assert_close(torch.cat(rows), wanted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(wanted, whole, atol=1e-2), "cut off nowhere"
    judged = engine.forward(torch.tensor(drafted), keep=3)
    torch.testing.assert_close(judged, whole, atol=1e-4, rtol=1e-4)


def test_after_every_round_the_one_cache_agrees_with_an_uncached_pass(form: str):
    pair = pair_of(layered(idle=1, initializer_range=0.2))
    run = start_lane(pair, PROMPT, SAMPLED, "speculative")
    first = run.prefill()
    assert first.seconds["draft"] == 0.0 and first.engines["draft"] == first.engines["target"]
    drafted = 0
    while run.ended is None:
        drafted += len(run.round().drafted)
        ids = torch.tensor([run.ids])
        with torch.inference_mode():
            wanted = pair.target(input_ids=ids, use_cache=False).logits[0, -1]
        torch.testing.assert_close(
            next_logits(run.target_engine, run.ids), wanted, atol=1e-4, rtol=1e-4
        )
    assert drafted > 20


def test_q_is_what_the_first_layers_say(form: str):
    target = layered()
    settings = Settings(gamma=2, temperature=1.0, drafter="early-exit")
    first = next(speculate(pair_of(target), PROMPT, settings))
    shallow = first_layers(target, best_exit(target, VOCAB).layers)
    ids = torch.tensor([[*PROMPT, first.drafted[0].id]])
    rows = torch.softmax(shallow(input_ids=ids).logits[0, -2:], -1)
    for token, row in zip(first.drafted, rows, strict=True):
        assert token.q == pytest.approx(row[token.id].item(), abs=1e-5)


def test_layers_that_do_nothing_are_left_out_and_the_header_says_so(form: str):
    """The exit before these layers agrees with the whole model, and deeper exits cost more."""
    pair = pair_of(layered(4, idle=2))
    found = best_exit(pair.target, VOCAB)
    assert found.layers == 2 and found.beta == pytest.approx(1.0, abs=1e-4) and found.speedup > 1
    events = list(race(pair, PROMPT, SAMPLED))
    drafted = [t.outcome for r in events[1:-1] for t in r.drafted]
    assert drafted and set(drafted) == {"accepted"}
    header = events[0]
    assert header.draft["name"].endswith(", layers 1 to 2")
    assert header.draft["parameters"] == parameter_count(first_layers(pair.target, 2))
    assert header.draft["form"] == header.target["form"]


def test_the_exit_is_chosen_for_its_predicted_speedup_and_chosen_alike_again():
    model = layered(5, idle=1)
    found = measured_exits(model, VOCAB)
    assert [one.layers for one in found] == [1, 2, 3, 4]
    assert sorted(one.c for one in found) == [one.c for one in found]
    best = best_exit(model, VOCAB)
    assert best.speedup == max(one.speedup for one in found)
    assert measured_exits(relative(model, noise=0.0), VOCAB) == found


def test_many_layers_are_sampled_evenly():
    for layers in (2, 3, 17, 18, 48, 80):
        depths = exits._depths(layers)
        assert depths[0] == 1 and depths[-1] == layers - 1
        assert len(depths) == min(layers - 1, exits.MAX_DEPTHS) == len(set(depths))


@pytest.mark.parametrize("target", [llama(5), mini(5)], ids=["one layer", "layers unknown"])
def test_a_target_that_cannot_exit_early_gets_a_sentence(target: Any, sentences: Sentences):
    with sentences.raises(PairError):
        list(speculate(pair_of(target, relative(target, noise=0.1)), [1, 2], SAMPLED))


# Costs


def test_a_pass_is_priced_by_what_it_reads():
    tied, untied = (
        llama(50, tie_word_embeddings=tie, num_hidden_layers=3) for tie in (True, False)
    )
    table = untied.get_input_embeddings().weight.numel() * 4
    assert pass_bytes(untied) == 4 * parameter_count(untied) - table
    assert pass_bytes(tied) == 4 * parameter_count(tied) == pass_bytes(untied)
    form = make_engine(tied, 50).name
    costs = [pass_cost(tied, form, layers) for layers in (1, 2, 3)]
    assert costs[0] < costs[1] < costs[2] == pass_cost(tied, form)
    assert costs[2] - costs[1] == costs[1] - costs[0]


def test_the_cost_of_a_static_pass_is_what_an_h100_took():
    """The milliseconds of one token are those of docs/performance.md: a small model spends as long
    on kernels as a large one on reading."""
    qwen = SHAPES["qwen2.5-1.5b+0.5b"]
    llama_pair = SHAPES["llama-3.1-8b+3.2-1b"]
    measured = {qwen.target: 2.9, qwen.draft: 1.8, llama_pair.target: 7.6, llama_pair.draft: 1.9}
    for size, milliseconds in measured.items():
        model = random_model(size, torch.device("meta"))
        cost = pass_cost(model, "static, CUDA graphs")
        assert cost / 3.03e9 == pytest.approx(milliseconds, rel=0.15)
        assert pass_cost(model, "static, CUDA graphs, Triton's kernels") < 0.8 * cost
        without = "static, CUDA graphs, torch's kernels: Triton is not installed"
        assert pass_cost(model, without) == cost

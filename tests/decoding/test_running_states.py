"""Models whose layers keep a running state: it is restored, and accepted tokens are read again."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from model_families import ONE_BY_ONE, PAST_ELSEWHERE, RUNNING, WINDOW, build
from reference_distribution import text_p_value
from sentences import Sentences
from torch import Tensor
from toy_heads import random_head
from toy_models import (
    emitted_ids,
    finish,
    generated,
    next_logits,
    outcome_counts,
    pair_of,
    relative,
)

from specviz import Pair, Settings, race, speculate
from specviz.base.errors import ModelError
from specviz.core.cost import draft_costs, extra_token_cost
from specviz.core.eager import EagerEngine
from specviz.core.engine_choice import make_engine, make_state_engine
from specviz.core.loop import start_lane
from specviz.core.policy import DraftCosts
from specviz.core.running_states import running_states

PROMPT = list(range(3, 14))
COUNT = 14  # tokens to write
GAMMA = 3

# Other seeds have a near-tie in their text, or only wrong drafts.
SEEDS = {"olmo hybrid": 1, "kimi linear": 1, "zamba": 1, "zamba 2": 1}
# With more noise on the draft, hardly any of its tokens is right.
NOISE = {"granite 4": 0.03, "kimi linear": 0.03, "zamba": 0.03, "zamba 2": 0.03}
DIFFERENT_CACHES = ["mamba 2", "falcon-h1", "qwen 3.5", "zaya, sliding", "mamba"]

pytestmark = pytest.mark.filterwarnings("ignore:for .* models, transformers' passes")


def model_of(kind: str, **changes: Any) -> Any:
    return build(kind, seed=SEEDS.get(kind, 0), **changes)


def greedy(drafter: str = "model", gamma: int = GAMMA, **fields: Any) -> Settings:
    values = dict(gamma=gamma, drafter=drafter, max_new_tokens=COUNT, ignore_eos=True)
    return Settings(**{**values, **fields})


def uncached(model: Any, ids: list[int]) -> Tensor:
    """The logits after each of `ids`, [n, vocab], without a cache."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits


def assert_close(logits: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(logits, wanted, atol=3e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [*RUNNING, *ONE_BY_ONE])
def test_target_and_draft_with_states_write_what_generate_writes(kind: str):
    target = model_of(kind)
    wanted = generated(target, PROMPT, COUNT)
    assert len(set(wanted)) >= 8
    pair = pair_of(target, relative(target, noise=NOISE.get(kind, 0.05)))
    if kind in DIFFERENT_CACHES:
        _, *events, end = race(pair, PROMPT, greedy())
        assert end.identical
        rounds = [r for r in events if r.lane == "speculative"]
    else:
        rounds = list(speculate(pair, PROMPT, greedy()))
    assert emitted_ids(rounds) == wanted
    judged = outcome_counts(rounds)
    assert judged["accepted"] >= 4 and judged["rejected"] >= 3


@pytest.mark.parametrize("singly", [False, True], ids=["judging", "drafting"])
@pytest.mark.parametrize("kind", DIFFERENT_CACHES)
def test_rejected_tokens_leave_no_trace(kind: str, singly: bool):
    """Rejections occur at each position, in consecutive rounds."""
    model = model_of(kind)
    engine = make_engine(model, 40)
    text = torch.randint(40, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    committed = WINDOW + 3
    engine.forward(torch.tensor(text[:committed]), keep=1)
    engine.rollback(committed)
    for kept in (5, 0, 1, 4, 2, 5, 3, 0, 5):  # accepted drafts of five
        wrong = [(token + 1) % 40 for token in text[committed + 1 + kept : committed + 6]]
        fed = [text[committed], *text[committed + 1 : committed + 1 + kept], *wrong]
        steps = [[token] for token in fed] if singly else [fed]
        passes = [engine.forward(torch.tensor(step), keep=len(step)) for step in steps]
        assert_close(torch.cat(passes), uncached(model, [*text[:committed], *fed])[-6:])
        committed += kept + 1
        engine.rollback(committed)
        assert engine.length == committed


@pytest.mark.parametrize("kind", ["qwen 3.5", "mamba"])
def test_hidden_states_are_those_of_the_tokens_of_a_pass(kind: str):
    """A head reads these states, and it already has those of tokens that are read again."""
    model = model_of(kind)
    engine = make_state_engine(model, 40)
    engine.keep_states([1])
    engine.forward(torch.tensor(PROMPT), keep=1)
    engine.rollback(len(PROMPT))
    engine.forward(torch.tensor([5, 6, 7]), keep=3)
    engine.rollback(len(PROMPT) + 2)
    engine.forward(torch.tensor([8, 9]), keep=2)
    fresh = make_state_engine(model, 40)
    fresh.keep_states([1])
    fresh.forward(torch.tensor([*PROMPT, 5, 6, 8, 9]), keep=1)
    assert_close(engine.states, fresh.states[-2:])


@pytest.mark.parametrize("kind", ["qwen 3.5", "mamba"])
def test_a_text_may_be_taken_back_to_any_length(kind: str):
    """The whole text is read again if no state was kept."""
    model = model_of(kind)
    engine = make_engine(model, 40)
    for length in (12, 7, 0):
        engine.forward(torch.tensor(PROMPT), keep=1)
        engine.rollback(min(length, engine.length))
        ids = [*(PROMPT * 3)[: engine.length], 5]
        assert_close(next_logits(engine, ids), uncached(model, ids)[-1])


@pytest.mark.parametrize(
    ("kind", "drafter"),
    [
        *(("falcon-h1", drafter) for drafter in ("ngram", "early-exit", "head")),
        *(("mamba", drafter) for drafter in ("suffix", "early-exit", "head")),
    ],
)
def test_other_drafters_write_what_generate_writes(kind: str, drafter: str):
    target = model_of(kind)
    pair = replace(pair_of(target), head=random_head(target))
    prompt = PROMPT * 2  # repetitive, for copies
    rounds = list(speculate(pair, prompt, greedy(drafter)))
    assert emitted_ids(rounds) == generated(target, prompt, COUNT)
    assert outcome_counts(rounds)["rejected"]


@pytest.mark.parametrize(
    ("kind", "policy"), [("qwen3-next", "confidence"), ("mamba 2", "optimal"), ("mamba", "optimal")]
)
def test_every_policy_writes_what_generate_writes(kind: str, policy: str):
    target = model_of(kind)
    pair = pair_of(target, relative(target, noise=0.05))
    rounds = list(speculate(pair, PROMPT, greedy(gamma=5, gamma_policy=policy)))
    assert emitted_ids(rounds) == generated(target, PROMPT, COUNT)


@pytest.mark.parametrize("ends", ["eos", "stop"])
@pytest.mark.parametrize("kind", ["qwen 3.5", "mamba"])
def test_a_text_that_ends_in_mid_round_leaves_true_caches(kind: str, ends: str):
    wanted = generated(model_of(kind), PROMPT, COUNT)
    # The end is the first or second draft of a round: each round writes five tokens.
    place = next(i for i in (6, 7, 11, 12) if wanted[i] not in wanted[:i])
    last = wanted[place]
    eos_id = last if ends == "eos" else None
    target = model_of(kind, eos_token_id=eos_id)
    stop = (f"w{last}",) if ends == "stop" else ()
    settings = greedy(ignore_eos=False, gamma=4, stop=stop)
    run = start_lane(pair_of(target, target), PROMPT, settings, "speculative")
    run.prefill()
    while run.ended is None:
        drafts = run.round().drafted
        for engine in (run.target_engine, run.drafter.engine):
            assert_close(next_logits(engine, run.ids), uncached(target, run.ids)[-1])
    assert run.ended == ends
    assert run.ids[: len(PROMPT) + place + 1] == [*PROMPT, *wanted[: place + 1]]
    accepted = place % 5 + 1
    assert [token.outcome[0] for token in drafts] == ["a"] * accepted + ["i"] * (4 - accepted)


def test_an_abandoned_run_leaves_nothing_to_the_next():
    target = model_of("qwen3-next")
    pair = pair_of(target, relative(target, noise=0.05))
    wanted = generated(target, PROMPT, COUNT)
    abandoned = speculate(pair, PROMPT[::-1], greedy())
    next(abandoned)
    rounds = speculate(pair, PROMPT, greedy())
    first = next(rounds)
    next(abandoned)
    abandoned.close()
    assert emitted_ids([first, *rounds]) == wanted


def states_pair(vocab: int, **config: Any) -> Pair:
    models = (build("mamba 2", seed=seed, vocab_size=vocab, **config) for seed in (1, 2))
    return pair_of(*models)


def test_a_sampled_text_follows_the_target():
    pair = states_pair(6, num_hidden_layers=1, max_position_embeddings=2000)
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=300, seed=3)
    with bare_rounds():
        rounds, _ = finish(pair, [1, 2], settings)
    counts = outcome_counts(rounds)
    assert counts["accepted"] > 60 and counts["rejected"] > 40
    assert text_p_value(pair.target, [1, 2], emitted_ids(rounds), settings, pair.draft) > 1e-3


def rows_of_passes(model: Any) -> list[int]:
    """A list to which each pass of the model appends its number of tokens."""
    rows: list[int] = []
    table = model.get_input_embeddings()
    table.register_forward_hook(lambda module, inputs, output: rows.append(inputs[0].shape[1]))
    return rows


def test_kept_tokens_are_read_again_in_no_further_pass_and_not_for_ever():
    target = model_of("mamba 2")
    draft = build("mamba 2", seed=5)  # always wrong
    make_engine(target, 40)  # its trial
    rows = rows_of_passes(target)
    rounds = list(speculate(pair_of(target, draft), PROMPT, greedy(gamma=2)))
    judged = outcome_counts(rounds)
    counts = [len(r.drafted) for r in rounds]
    assert not judged["accepted"] and judged["rejected"]
    prompt, *passes = rows
    assert prompt == len(PROMPT) - 1
    assert len(passes) == len(rounds)
    # Each round leaves one more token to read again, until reading again has cost as much as a
    # pass.
    assert extra_token_cost(target, "eager") == 0.14
    assert counts[:6] == [2, 2, 2, 2, 2, 0]
    assert passes[:12] == [3, 4, 5, 6, 7, 6] * 2


def test_a_target_that_is_read_one_by_one_reads_nothing_again():
    target = model_of("mamba")
    make_engine(target, 40)
    rows = rows_of_passes(target)
    rounds = list(speculate(pair_of(target, build("mamba", seed=5)), PROMPT, greedy(gamma=2)))
    prompt, *passes = rows
    assert prompt == len(PROMPT) - 1
    assert passes == [1] * (len(rounds) + sum(len(r.drafted) for r in rounds))


def test_a_model_whose_passes_over_several_tokens_are_wrong_says_so_once(sentences: Sentences):
    model = model_of("jamba")
    with sentences.warns(UserWarning, measured=True):
        assert running_states(model).one_by_one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_engine(model, 40)
        right = model_of("granite 4")
        assert not running_states(right).one_by_one
    assert running_states(model_of("lfm 2, convolutions")) is None
    assert type(make_engine(model_of("lfm 2, convolutions"), 40)) is EagerEngine


def test_costs_know_the_longer_passes():
    several = pair_of(model_of("granite 4"), model_of("mamba"))
    costs = costs_of(several)
    assert costs.reads_again and costs.extra_token == 0.14
    one_by_one = pair_of(model_of("mamba"), model_of("granite 4"))
    costs = costs_of(one_by_one)
    assert not costs.reads_again and costs.extra_token == 1.0


def costs_of(pair: Pair) -> DraftCosts:
    run = start_lane(pair, PROMPT, greedy(), "speculative")
    return draft_costs(run.drafter, run.target_engine, pair)


@pytest.mark.parametrize("kind", PAST_ELSEWHERE)
def test_a_past_that_nobody_can_put_back_is_refused(kind: str, sentences: Sentences):
    with sentences.raises(ModelError):
        make_engine(model_of(kind), 40)


def test_a_state_that_is_not_in_the_cache_is_found_out(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    """State outside the cache is not restored with the cache."""
    model = model_of("mamba 2")
    forward = model.forward
    calls: list[Tensor] = []

    def keeps_count(**options: Any) -> Any:
        output = forward(**options)
        calls.append(output.logits)
        output.logits = output.logits + len(calls)
        return output

    monkeypatch.setattr(model, "forward", wraps(forward)(keeps_count))
    with sentences.raises(ModelError):
        running_states(model)

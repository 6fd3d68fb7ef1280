"""What a benchmark compares, and that measuring does not change the models."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from toy_heads import random_head
from toy_models import generated, llama, pair_of, relative

from specviz import Pair, Settings
from specviz.core.eager import EagerEngine
from specviz.core.engines import eager_only, make_engine
from specviz.core.numpy_path import Distributions
from specviz.measure.bench.best import ASSISTED, BASELINE, GENERATE, PLAIN, SPECULATIVE, best_of
from specviz.measure.bench.hf_generate import generate_seconds
from specviz.measure.bench.measure import measured
from specviz.measure.bench.roofline import cache_bytes, floors
from specviz.measure.bench.round_time import RoundParts, round_parts, timed_passes
from specviz.sides.fast_cpu.engine import CompiledEngine

SETTINGS = Settings(max_new_tokens=12, gamma=3, ignore_eos=True)


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(24, hidden_size=32, num_hidden_layers=2)
    return pair_of(target, relative(target, noise=0.1))


def test_both_lanes_are_compared_with_generate_also_on_the_same_modules(pair: Pair) -> None:
    rows, best, header = measured(
        pair, ["w1 w2", "w3"], SETTINGS, 1, with_generate=True, threads=[1, 2]
    )
    assert [row.threads for row in rows] == [1, 2] and set(best.threads.values()) <= {1, 2}
    row, names = rows[0], {BASELINE, SPECULATIVE, GENERATE, ASSISTED, PLAIN}
    assert set(row.tokens_per_second) == set(best.tokens_per_second) == names
    assert header.target["form"] == "compiled"
    assert row.parts is not None and 0 < row.parts.outside < 1
    assert row.context == 1 + 6 and row.identical == 2


def test_each_variant_is_compared_at_its_best_number_of_threads() -> None:
    rates = {
        1: {BASELINE: [10.0, 10.0], SPECULATIVE: [30.0, 40.0]},
        2: {BASELINE: [20.0, 16.0], SPECULATIVE: [24.0, 24.0]},
    }
    best = best_of(0.0, rates)
    assert best.threads == {BASELINE: 2, SPECULATIVE: 1}
    assert best.tokens_per_second[SPECULATIVE].median == 35.0
    assert best.ratios[f"{SPECULATIVE} / {BASELINE}"].median == (1.5 + 2.5) / 2


def test_assisted_generation_needs_a_draft(pair: Pair) -> None:
    alone, none = pair_of(pair.target), Settings(max_new_tokens=8, drafter="none", ignore_eos=True)
    (row,), best, _ = measured(alone, ["w1"], none, 1, with_generate=True)
    assert list(best.ratios) == [f"{SPECULATIVE} / {BASELINE}", f"{BASELINE} / {GENERATE}"]
    assert set(row.tokens_per_second) == {BASELINE, SPECULATIVE, GENERATE}
    assert row.parts is None and row.draft_step_seconds is None


@pytest.mark.parametrize("assisted", [False, True])
def test_generate_does_not_change_the_models(pair: Pair, assisted: bool) -> None:
    models = (pair.target, pair.draft)
    pair.draft.generation_config.num_assistant_tokens = 17
    before = [copy.deepcopy(m.generation_config.to_dict()) for m in models]
    _, ids = generate_seconds(pair, [3, 1], SETTINGS, assisted=assisted)
    assert ids == generated(pair.target, [3, 1], 12)
    assert [m.generation_config.to_dict() for m in models] == before


def test_a_failing_generate_does_not_change_the_draft(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    own = pair.draft.generation_config
    monkeypatch.setattr(pair.target, "generate", fails)
    with pytest.raises(RuntimeError, match="no memory"):
        generate_seconds(pair, [3], SETTINGS, assisted=True)
    assert pair.draft.generation_config is own


def test_eager_only_runs_the_models_with_the_eager_engine(pair: Pair) -> None:
    with eager_only():
        assert make_engine(pair.target, pair.vocab).form == "eager"
    assert make_engine(pair.target, pair.vocab).form == "compiled"


def test_passes_are_timed_only_inside_the_block() -> None:
    plain = EagerEngine.forward, CompiledEngine.forward
    engine = EagerEngine(llama(8), 8)
    with pytest.raises(KeyboardInterrupt), timed_passes() as spent:
        engine.forward(torch.tensor([1]), 1)
        engine.forward(torch.tensor([1]), 1)
        assert len(spent) == 2 and min(spent) > 0
        raise KeyboardInterrupt
    assert (EagerEngine.forward, CompiledEngine.forward) == plain


def test_the_parts_of_a_round_are_separated(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that only passes, draws and computations of probabilities advance."""
    monkeypatch.setattr("specviz.sides.fast_cpu.path.suits", lambda *_: False)
    seconds = 0.0

    def moving(function: Any, step: float) -> Any:
        def moved(*args: Any, **options: Any) -> Any:
            nonlocal seconds
            seconds += step
            return function(*args, **options)

        return moved

    monkeypatch.setattr(CompiledEngine, "forward", moving(CompiledEngine.forward, 1.0))
    for look, step in (("draw", 0.125), ("write", 0.5)):
        monkeypatch.setattr(Distributions, look, moving(getattr(Distributions, look), step))
    monkeypatch.setattr("specviz.core.engine.time.perf_counter", lambda: seconds)
    parts = round_parts(pair, ["w1"], Settings(max_new_tokens=40, gamma=3, ignore_eos=True))
    assert parts == RoundParts(3.0, 0.375, 1.0, 0.5, 0.0, pytest.approx(0.875 / 4.875))


def test_the_passes_of_a_head_are_drafting(pair: Pair) -> None:
    with_head = replace(pair, head=random_head(pair.target))
    for drafter, drafts in (("head", True), ("ngram", False)):
        settings = Settings(max_new_tokens=12, gamma=3, ignore_eos=True, drafter=drafter)
        parts = round_parts(with_head, ["w1 w2 w1 w2 w1"], settings)
        assert parts is not None and (parts.draft_passes > 0) == drafts


def test_a_floor_counts_weights_and_cache(pair: Pair) -> None:
    config = pair.target.config
    a_token = 2 * 2 * config.num_key_value_heads * config.head_dim * 4
    assert cache_bytes(pair.target, "eager") == a_token
    head, table = (m.weight for m in (pair.target.lm_head, pair.target.model.embed_tokens))
    assert head is not table
    weights = sum(p.numel() for p in pair.target.parameters()) - table.numel()
    least = floors(pair, 100)
    assert least["target"].bytes == 4 * weights + 100 * a_token
    assert least["target"].seconds == least["target"].bytes / least["target"].bytes_per_second
    halved = llama(24, hidden_size=32, num_hidden_layers=2, initializer_range=0.1)
    for weight in halved.parameters():
        weight.data = weight.data.bfloat16()
    assert cache_bytes(halved, "eager") == a_token / 2
    assert set(floors(pair, 100, "ngram")) == {"target"}, "no draft step reads the draft model"
    head = random_head(pair.target)
    read = (*head.midlayer.parameters(), *head.norm.parameters(), *head.lm_head.parameters())
    kept = 100 * 2 * head.config.layer.num_key_value_heads * head.config.layer.head_dim
    step = floors(replace(pair, head=head), 100, "head")["draft"]
    assert step.bytes == 4 * (sum(p.numel() for p in read) + kept)
    least = floors(pair_of(halved), 100)
    assert set(least) == {"target"}
    assert least["target"].bytes == 2 * weights + 100 * a_token, "compiled passes cache fp32"

"""A benchmark compares the right things, and measuring does not change the models."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType
from toy_heads import random_head
from toy_models import generated, llama, pair_of, relative

from specviz import Pair, Settings
from specviz.core.engine_choice import eager_only, make_engine
from specviz.measure.bench.generate import ASSISTED, GENERATE, LOOKUP, PLAIN, generate_seconds
from specviz.measure.bench.kernels import count_kernels, kernels_by_role, one_pass
from specviz.measure.bench.lanes import BASELINE, SPECULATIVE, best_of, measured
from specviz.measure.bench.roofline import cache_bytes, floors
from specviz.measure.samples import SPECVIZ, Comparison, Variant

SETTINGS = Settings(max_new_tokens=12, gamma=3, ignore_eos=True)


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(24, hidden_size=32, num_hidden_layers=2)
    return pair_of(target, relative(target, noise=0.1))


def test_both_lanes_are_compared_with_generate_also_on_the_same_modules(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With two threads, passes of this size consist of waiting.
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    monkeypatch.setattr("specviz.measure.samples.use_threads", lambda _: nullcontext())
    short = replace(SETTINGS, max_new_tokens=4)
    rows, best, header = measured(pair, ["w1 w2"], short, 1, with_generate=True, threads=[1, 2])
    assert [row.threads for row in rows] == [1, 2] and set(best.threads.values()) <= {1, 2}
    row = rows[0]
    names = {BASELINE, SPECULATIVE, GENERATE, ASSISTED, PLAIN}
    assert set(row.tokens_per_second) == set(best.tokens_per_second) == names
    assert header.target["form"] == "compiled" and row.identical == 1
    assert set(row.host_seconds) == {BASELINE, SPECULATIVE}
    assert all(0 < seconds < 1 for seconds in row.host_seconds.values())


def test_each_variant_is_compared_at_its_best_number_of_threads() -> None:
    rates = {
        Variant(SPECVIZ, "baseline", 1): [10.0, 10.0],
        Variant(SPECVIZ, "speculative", 1): [30.0, 40.0],
        Variant(SPECVIZ, "baseline", 2): [20.0, 16.0],
        Variant(SPECVIZ, "speculative", 2): [24.0, 24.0],
    }
    best = best_of(0.0, Comparison(rates))
    assert best.threads == {BASELINE: 2, SPECULATIVE: 1}
    assert best.tokens_per_second[SPECULATIVE].median == 35.0
    assert best.ratios[f"{SPECULATIVE} / {BASELINE}"].median == (1.5 + 2.5) / 2


def test_assisted_generation_needs_a_draft(pair: Pair) -> None:
    alone = pair_of(pair.target)
    none = Settings(max_new_tokens=8, drafter="none", ignore_eos=True)
    (row,), best, _ = measured(alone, ["w1"], none, 1, with_generate=True)
    assert list(best.ratios) == [f"{SPECULATIVE} / {BASELINE}", f"{BASELINE} / {GENERATE}"]
    assert set(row.tokens_per_second) == {BASELINE, SPECULATIVE, GENERATE}
    assert row.draft_step_seconds is None


def test_drafts_from_the_text_are_compared_with_those_of_transformers(pair: Pair) -> None:
    copied = replace(SETTINGS, drafter="ngram", max_new_tokens=8)
    prompts = ["w1 w2", "w3"]
    (row,), best, _ = measured(pair_of(pair.target), prompts, copied, 1, with_generate=True)
    assert set(row.tokens_per_second) == {BASELINE, SPECULATIVE, GENERATE, LOOKUP}
    assert row.context == 1 + 4 and row.identical == 2
    assert f"{SPECULATIVE} / {LOOKUP}" in best.ratios


def test_generate_goes_on_after_an_end_of_text(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ids = generate_seconds(pair, [3, 1], SETTINGS)
    monkeypatch.setattr(pair.target.generation_config, "eos_token_id", ids[0])
    for name in (GENERATE, ASSISTED, LOOKUP):
        assert generate_seconds(pair, [3, 1], SETTINGS, name)[1] == ids
    assert len(ids) == SETTINGS.max_new_tokens


@pytest.mark.parametrize("name", [GENERATE, ASSISTED])
def test_generate_does_not_change_the_models(pair: Pair, name: str) -> None:
    models = (pair.target, pair.draft)
    pair.draft.generation_config.num_assistant_tokens = 17
    before = [copy.deepcopy(m.generation_config.to_dict()) for m in models]
    _, ids = generate_seconds(pair, [3, 1], SETTINGS, name)
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
        generate_seconds(pair, [3], SETTINGS, ASSISTED)
    assert pair.draft.generation_config is own


def test_eager_only_runs_the_models_with_the_eager_engine(pair: Pair) -> None:
    with eager_only():
        assert make_engine(pair.target, pair.vocab).name == "eager"
    assert make_engine(pair.target, pair.vocab).name == "compiled"


def test_kernels_are_counted_without_copies_and_the_host_s_own_events() -> None:
    events = [
        SimpleNamespace(device_type=device, name=name)
        for device, name in (
            (DeviceType.CUDA, "ampere_bf16_gemm"),
            (DeviceType.CUDA, "Memcpy DtoH (Device -> Pinned)"),
            (DeviceType.CUDA, "Memset (Device)"),
            (DeviceType.CPU, "cudaGraphLaunch"),
            (DeviceType.CUDA, "argmax"),
        )
    ]
    assert count_kernels(events) == 2


def test_the_pass_whose_kernels_are_counted_can_be_repeated(pair: Pair) -> None:
    for form in ("fastest", "static"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPECVIZ_FORM", form)
            settings = Settings(gamma=3)
            judging = one_pass(pair, pair.target, settings, "target")
            assert judging().verdict == judging().verdict
            drafting = one_pass(pair, pair.draft, settings, "draft")
            assert drafting().ids.tolist() == drafting().ids.tolist()
    assert kernels_by_role(pair, settings) == {}, "no GPU runs them"


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

"""Compiled passes give their model's own logits for every width, dtype and number of threads."""

from __future__ import annotations

import copy
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sentences import Sentences
from toy_models import llama
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config, Qwen3Config

from specviz import Settings
from specviz.core.draws import Distributions
from specviz.core.eager import EagerEngine
from specviz.core.engine_choice import make_engine
from specviz.sides.fast_cpu import engine as module
from specviz.sides.fast_cpu import support
from specviz.sides.fast_cpu.engine import CompiledEngine
from specviz.sides.fast_cpu.rows import Plan
from specviz.sides.fast_cpu.support import compiled_engine, suits

VOCAB = 75  # not a multiple of any block size of the passes
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def grouped(**config: Any) -> Any:
    """A Llama of two layers whose 16 heads share two key heads: more heads per group than a product
    has rows."""
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=2)
    defaults = {**sizes, "intermediate_size": 96, "head_dim": 32, "initializer_range": 0.1}
    return llama(VOCAB, **{**defaults, **config})


def family(kind: type[Any], **config: Any) -> Any:
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        initializer_range=0.1,
        **config,
    )
    model = AutoModelForCausalLM.from_config(kind(**sizes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weight.normal_(mean=float("norm" in name), std=0.3)
    return model


def numbers(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def own_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The logits of the model's modules in fp32, from the same weights."""
    return copy.deepcopy(model).float()(ids[None]).logits[0, :, :VOCAB]


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


MODELS = {
    "llama": lambda: grouped(),
    "llama, biases": lambda: family(
        type(grouped().config), attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "llama 3 rope": lambda: grouped(
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    ),
    "qwen 2": lambda: family(Qwen2Config),
    "qwen 3": lambda: family(Qwen3Config),
    "mistral": lambda: family(MistralConfig, sliding_window=None),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_passes_of_every_width_give_the_models_own_logits(kind: str, dtype: torch.dtype) -> None:
    model = MODELS[kind]().to(dtype)
    model.model.rotary_emb.float()  # as transformers keeps it when it loads such weights
    assert suits(model)
    engine = CompiledEngine(model, VOCAB)
    place = 0
    ours = []
    ids = numbers(288)
    for width in [*range(1, 18), 1, 1, 2, 33, 65, 1]:
        ours.append(engine.forward(ids[place : place + width], width))
        place += width
    close(torch.cat(ours), own_logits(model, ids[:place]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_logits_are_the_same_to_the_last_bit_whatever_the_width_and_the_threads(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then greedy texts of both lanes cannot differ, even at a tie."""
    model = grouped().to(dtype)
    ids = numbers(60)
    model.model.rotary_emb.float()
    runs = []
    for threads, widths in ((1, [1] * 60), (1, [6] * 10), (2, [60]), (3, [5, 7, 13] * 3)):
        monkeypatch.setattr(module, "threads_for", lambda *_, threads=threads: threads)
        engine = CompiledEngine(model, VOCAB)
        place = 0
        rows = []
        for width in widths:
            part = ids[place : place + width]
            if len(part):
                rows.append(engine.forward(part, len(part)))
            place += width
        runs.append(torch.cat(rows))
    assert all(torch.equal(run, runs[0]) for run in runs)


def test_threads_that_have_gone_to_sleep_take_part_in_the_next_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "threads_for", lambda *_: 3)
    model = grouped()
    ids = numbers(12)
    rows = []
    engine = CompiledEngine(model, VOCAB)
    for i, one in enumerate(ids.split(1)):
        rows.append(engine.forward(one, 1))
        if i % 3 == 0:
            time.sleep(0.05)
    close(torch.cat(rows), own_logits(model, ids))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("fed", [1, 2, 5])
def test_a_draft_run_is_its_steps(
    fed: int, temperature: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "threads_for", lambda *_: threads)
    model = grouped()
    ids = numbers(fed + 7)
    uniforms = np.random.default_rng(3).random(5)
    engines = [CompiledEngine(model, VOCAB) for _ in range(2)]
    for engine in engines:
        engine.forward(ids[:7], 1)
    distributions = Distributions(Settings(temperature=temperature), VOCAB)
    draft = engines[0].draft(ids[7:].numpy(), uniforms, distributions)
    assert draft.step_logits is not None
    feed = ids[7:]
    for step, token in enumerate(draft.ids.tolist()):
        row = engines[1].forward(feed, 1, temperature=temperature or 1.0)
        assert torch.equal(row, draft.step_logits[step])
        if temperature:
            close(draft.q[step], torch.softmax(row[0], -1))
            wanted_id = draft.q[step].double().cumsum(-1)
            assert token == int((wanted_id > uniforms[step] * wanted_id[-1]).to(int).argmax())
        else:
            assert token == int(row.argmax()) == int(draft.q[step].argmax())
        feed = torch.tensor([token])
    assert engines[0].length == engines[1].length


@pytest.mark.parametrize("length", [1, 63, 64, 65, 67, 128, 300])
@pytest.mark.parametrize("keep", [1, 3, 70, 300])
def test_a_long_prompt_is_fed_in_blocks(length: int, keep: int) -> None:
    model = grouped()
    keep = min(keep, length)
    ids = numbers(length, 1)
    close(CompiledEngine(model, VOCAB).forward(ids, keep), own_logits(model, ids)[-keep:])


@pytest.mark.parametrize("length", [1, 6, 70])
def test_logits_are_divided_by_the_temperature(length: int) -> None:
    model = grouped()
    ids = numbers(length)
    for engine in (CompiledEngine(model, VOCAB), EagerEngine(model, VOCAB)):
        wanted = engine.forward(ids, length) / 0.7
        engine.rollback(0)
        close(engine.forward(ids, length, temperature=0.7), wanted)


def test_logits_stay_when_the_engine_goes_on() -> None:
    """A drafter keeps the logits of all its steps."""
    engine = CompiledEngine(grouped(), VOCAB)
    first = engine.forward(torch.tensor([3]), 1)
    kept = first.clone()
    engine.forward(torch.tensor([4]), 1)
    assert torch.equal(first, kept)


def test_rolled_back_tokens_leave_no_trace() -> None:
    engine = CompiledEngine(grouped(), VOCAB)
    ids = torch.arange(20)
    engine.forward(ids, 1)
    wanted = engine.forward(torch.tensor([7, 8]), 2)
    for count in (3, 150):  # the second makes the cache grow
        engine.rollback(20)
        engine.forward(torch.arange(count) % VOCAB, 1)
    engine.rollback(20)
    assert torch.equal(engine.forward(torch.tensor([7, 8]), 2), wanted)


def test_a_pass_through_the_first_layers_is_the_model_cut_off() -> None:
    model = grouped(num_hidden_layers=3)
    ids = torch.arange(10)
    cut = copy.deepcopy(model)
    cut.model.layers = cut.model.layers[:2]
    cut.config.num_hidden_layers = 2
    engine = CompiledEngine(model, VOCAB)
    eager = EagerEngine(cut, VOCAB)
    close(engine.forward(ids, 4, layers=2), eager.forward(ids, 4))
    engine.rollback(0)
    close(engine.forward(ids, 4), EagerEngine(model, VOCAB).forward(ids, 4))


def test_what_is_not_finite_shows_in_the_logits() -> None:
    model = grouped()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = float("nan")
    assert not torch.isfinite(CompiledEngine(model, VOCAB).forward(numbers(3), 3)).any()


CHANGES = {
    "an operation in place": lambda m: m.model.norm.weight.data.mul_(2),
    "a copy": lambda m: m.lm_head.weight.data.copy_(torch.randn_like(m.lm_head.weight)),
    "a NumPy view": lambda m: m.model.layers[0].mlp.up_proj.weight.detach().numpy().fill(0.1),
    "an optimizer": lambda m: one_step(m),
    "another tensor": lambda m: setattr(
        m.model.norm, "weight", torch.nn.Parameter(torch.full((64,), 3.0))
    ),
    "the frequencies": lambda m: m.model.rotary_emb.inv_freq.mul_(0.5),
    "eps": lambda m: [
        setattr(norm, "variance_epsilon", 0.5) for norm in m.modules() if "Norm" in repr(type(norm))
    ],
}


def one_step(model: Any) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    model(numbers(8)[None], labels=numbers(8)[None]).loss.backward()
    optimizer.step()


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_the_model_is_seen_by_the_next_run(change: str) -> None:
    model = grouped()
    ids = numbers(9)
    before = make_engine(model, VOCAB).forward(ids, 9)
    CHANGES[change](model)
    engine = make_engine(model, VOCAB)
    after = engine.forward(ids, 9)
    assert engine.name == "compiled" and not torch.allclose(after, before, atol=1e-3)
    close(after, own_logits(model, ids))


def test_a_model_with_code_of_its_own_runs_as_it_is() -> None:
    def hooked(model: Any) -> None:
        model.model.layers[0].register_forward_hook(lambda *_: None)

    def wrapped(model: Any) -> None:
        forward = model.model.layers[1].mlp.forward
        model.model.layers[1].mlp.forward = lambda x: 2 * forward(x)

    def subclassed(model: Any) -> None:
        linear = model.lm_head
        model.lm_head = type("Mine", (torch.nn.Linear,), {})(64, VOCAB, bias=False)
        model.lm_head.load_state_dict(linear.state_dict())

    def uneven(model: Any) -> None:
        model.model.norm.variance_epsilon = 0.5

    for change in (hooked, wrapped, subclassed, uneven):
        model = grouped()
        assert make_engine(model, VOCAB).name == "compiled"
        change(model)
        assert make_engine(model, VOCAB).name == "eager", change.__name__


def test_a_model_made_in_inference_mode_runs_too() -> None:
    with torch.inference_mode():
        model = grouped()
    close(make_engine(model, VOCAB).forward(numbers(5), 5), own_logits(model, numbers(5)))


def test_a_pass_with_other_logits_is_not_used(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    run = module.run_with_workers

    def wrong(worker_slots: Any, address: int) -> None:
        Plan.from_address(address).score_factor *= 2
        run(worker_slots, address)

    monkeypatch.setattr(module, "run_with_workers", wrong)
    model = grouped()
    with sentences.warns(UserWarning):
        assert compiled_engine(model, VOCAB) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled_engine(model, VOCAB) is None, "one warning is enough"


def test_a_pass_in_fp32_may_not_be_off_by_a_hundredth(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error as large as that of rounded inputs is refused where nothing is rounded."""
    run = module.run_with_workers

    def scaled(worker_slots: Any, address: int) -> None:
        Plan.from_address(address).logit_factor *= 1.01
        run(worker_slots, address)

    monkeypatch.setattr(module, "run_with_workers", scaled)
    with pytest.warns(UserWarning, match="gave different logits"):
        assert compiled_engine(grouped(), VOCAB) is None


def test_without_numba_everything_runs_on_transformers_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(support, "has_numba", lambda: False)
    assert make_engine(grouped(), VOCAB).name == "eager"


@pytest.mark.parametrize("length", [0, 1, 5, 70])
def test_a_cache_that_is_taken_over_is_as_good_as_one_of_its_own(length: int):
    model = grouped()
    prompt = numbers(length)
    following = numbers(3, seed=1)
    first, second, alone = (CompiledEngine(model, VOCAB) for _ in range(3))
    for engine in (first, alone):
        engine.keep_states([1])
        if length:
            engine.forward(prompt, keep=1)
    second.keep_states([1])
    assert second.take_over(first) and second.length == length
    assert torch.equal(second.states, alone.states)
    wanted = alone.forward(following, keep=3)
    first.forward(numbers(9, seed=2), keep=1)  # passes of one engine do not affect the other
    assert torch.equal(second.forward(following, keep=3), wanted)


def test_a_cache_of_something_else_is_not_taken_over():
    model = grouped()
    first = CompiledEngine(model, VOCAB)
    first.forward(numbers(5), keep=1)
    reader = CompiledEngine(model, VOCAB)
    reader.keep_states([1])
    for other in (reader, CompiledEngine(grouped(), VOCAB), EagerEngine(model, VOCAB)):
        assert not other.take_over(first) and not first.take_over(other)
        assert other.length == 0

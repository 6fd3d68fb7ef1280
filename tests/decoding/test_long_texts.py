"""Effects of the length of a text change no token: neither passes nor drafts make lanes diverge.

Once a text is longer than a border, LongRoPE rotates all its tokens by other factors.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from bare_rounds import bare_rounds
from model_families import SIZES, build
from toy_models import emitted_ids, generated, pair_of, relative

from specviz import Settings, baseline, speculate
from specviz.core.eager import EagerEngine
from specviz.core.model_facts import before_border, rotation_borders

BORDER = 16
TEXT = 2 * BORDER
HALF = 8  # of a head's width
LONG_ROPE: dict[str, Any] = dict(
    rope_type="longrope",
    rope_theta=10_000.0,
    factor=32.0,
    short_factor=[1.0] * HALF,
    long_factor=[6.0] * HALF,
    original_max_position_embeddings=BORDER,
)


def phi(seed: int = 0, border: int = BORDER, **changes: Any) -> Any:
    """A Phi-3 with LongRoPE."""
    rope = {**LONG_ROPE, "original_max_position_embeddings": border}
    sizes = {"rope_parameters": rope, "original_max_position_embeddings": border}
    return build("phi 3", seed=seed, **{**sizes, **changes})


def text_model(name: str, **changes: Any) -> Any:
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **changes})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def moe_with_two_scales() -> Any:
    """A PhiMoE whose rotations have another magnitude after the border."""
    rope = {**LONG_ROPE, "short_mscale": 1.0, "long_mscale": 1.3}
    return text_model("Phimoe", rope_parameters=rope, num_local_experts=2)


def llama_4() -> Any:
    """A Llama 4 with a layer whose attention is scaled by position."""
    sizes = {**SIZES, "num_hidden_layers": 2, "intermediate_size_mlp": 48}
    tempered = dict(floor_scale=4, attn_scale=0.5, no_rope_layers=[1, 0], attention_chunk_size=8)
    return text_model("Llama4Text", **{**sizes, **tempered, "num_local_experts": 2})


def ministral() -> Any:
    """A Ministral, which also scales its attention by position."""
    rope = dict(rope_type="yarn", factor=4.0, rope_theta=10_000.0, llama_4_scaling_beta=0.5)
    rope["original_max_position_embeddings"] = 8
    return text_model("Ministral3", rope_parameters=rope)


MODELS = {
    "phi 3": phi,
    "phi 3, sliding": lambda: phi(sliding_window=6),
    "llama": lambda: build("llama", rope_parameters={**LONG_ROPE, **of_half(16)}),
    "moe": moe_with_two_scales,
    "llama 4": llama_4,
    "ministral": ministral,
}


def of_half(half: int) -> dict[str, Any]:
    """Rotary factors for heads of another width."""
    return {"short_factor": [1.0] * half, "long_factor": [6.0] * half}


def text(length: int, seed: int = 0) -> list[int]:
    return torch.randint(1, SIZES["vocab_size"], (length,), generator=seeded(seed)).tolist()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def whole_pass_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The logits after each token, fp32 [n, vocab], each from a separate pass over the whole
    prefix."""
    with torch.inference_mode():
        rows = [model(input_ids=ids[None, :end]).logits[0, -1] for end in range(1, len(ids) + 1)]
    return torch.stack(rows).float()


@pytest.mark.parametrize("name", MODELS)
def test_logits_after_n_tokens_do_not_depend_on_how_these_were_fed(name: str):
    """The tokens are fed one at a time, in chunks across the border, and with a part of every chunk
    rolled back."""
    model = MODELS[name]()
    ids = torch.tensor(text(TEXT))
    expected = whole_pass_logits(model, ids)
    for step, refused in ((1, 0), (5, 0), (7, 3), (TEXT, 0)):
        engine = EagerEngine(model, SIZES["vocab_size"])
        begin = 0
        while begin < TEXT:
            logits = engine.forward(ids[begin : begin + step], min(step, TEXT - begin))
            torch.testing.assert_close(
                logits, expected[begin : begin + len(logits)], atol=1e-3, rtol=1e-3
            )
            begin += len(logits)
            if begin < TEXT:
                begin -= refused
                engine.rollback(begin)


def test_a_cached_prompt_is_read_as_one_however_it_is_cut():
    """The engine returns only the last row of a chunk, as in a prefill."""
    model = phi()
    ids = torch.tensor(text(TEXT))
    expected = whole_pass_logits(model, ids)
    for cut in (1, BORDER - 1, BORDER, BORDER + 1, TEXT - 1):
        engine = EagerEngine(model, SIZES["vocab_size"])
        for end, chunk in ((cut, ids[:cut]), (TEXT, ids[cut:])):
            logits = engine.forward(chunk, 1)
            torch.testing.assert_close(logits[0], expected[end - 1], atol=1e-3, rtol=1e-3)
            engine.rollback(end)


def test_states_of_a_pass_across_the_border_are_those_of_its_tokens():
    model = phi()
    ids = torch.tensor(text(TEXT))
    engine = EagerEngine(model, SIZES["vocab_size"])
    engine.keep_states([1])
    engine.forward(ids[:10], 1)
    engine.forward(ids[10:24], 14)
    assert engine.states.shape == (14, SIZES["hidden_size"])
    with torch.inference_mode():
        for end in (BORDER, 24):
            output = model(input_ids=ids[None, :end], output_hidden_states=True)
            whole = output.hidden_states[1][0, -1]
            torch.testing.assert_close(engine.states[end - 11], whole, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("length", "seed"), [(5, 0), (BORDER - 1, 1), (BORDER, 0), (BORDER + 1, 1), (BORDER + 4, 0)]
)
def test_greedy_lanes_write_one_text_across_the_border(length: int, seed: int):
    """The border is after the end of the prompt, at it, or before it."""
    target = phi(seed)
    pair = pair_of(target, relative(target, noise=0.05))
    prompt = text(length, seed)
    settings = Settings(gamma=5, max_new_tokens=20, ignore_eos=True)
    written = generated(target, prompt, 20)
    with bare_rounds():
        assert emitted_ids(baseline(pair, prompt, settings)) == written
        for drafter in ("model", "early-exit", "ngram"):
            drafted = speculate(pair, prompt, settings, drafter=drafter)
            assert emitted_ids(drafted) == written, drafter


def test_rounds_stop_at_a_border_so_that_a_text_crosses_it_once(monkeypatch: pytest.MonkeyPatch):
    """Reading a text again takes as long as its prefill: a rejection must not cause this, neither
    for the target nor for a draft with its own border."""
    fed: dict[Any, list[int]] = {}
    forward_pass = EagerEngine._pass

    def counted(engine: EagerEngine, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        fed.setdefault(engine._borders, []).append(len(ids))
        return forward_pass(engine, ids, *rest)

    monkeypatch.setattr(EagerEngine, "_pass", counted)
    draft_border = BORDER + 6
    pair = pair_of(phi(), phi(seed=1, border=draft_border))
    settings = Settings(gamma=8, max_new_tokens=24, ignore_eos=True)
    with bare_rounds():
        emitted = emitted_ids(speculate(pair, text(4), settings))
    assert len(emitted) == 24
    for border in (BORDER, draft_border):
        assert sum(count > border for count in fed[border,]) == 1


def test_the_borders_of_a_model():
    assert rotation_borders(phi()) == (BORDER,)
    assert rotation_borders(moe_with_two_scales()) == (BORDER,)
    for name in ("llama", "llama, yarn", "llama, dynamic rope", "gemma 3, sliding"):
        assert rotation_borders(build(name)) == ()
    assert [before_border((8, 16), length, 5) for length in (2, 6, 8, 9, 12, 17)] == [
        5, 2, 0, 5, 4, 5,
    ]  # fmt: skip


def test_dynamic_scaling_begins_where_texts_end():
    """Otherwise it would rotate by the longest text that the module has seen in any lane."""
    target = build("llama, dynamic rope", max_position_embeddings=TEXT)
    pair = pair_of(target, relative(target, noise=0.05))
    settings = Settings(gamma=5, max_new_tokens=TEXT, ignore_eos=True)
    with bare_rounds():
        drafted = emitted_ids(speculate(pair, text(8), settings))
        plain = emitted_ids(baseline(pair, text(8), settings))
    assert drafted == plain and len(plain) == TEXT - 8 + 1
    assert target.model.rotary_emb.max_seq_len_cached == TEXT

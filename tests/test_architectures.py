"""Any attention-only language model of transformers can race; others are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from toys import emitted_ids, generated, mini, pair_of, relative

from specviz import Settings, baseline, race, speculate
from specviz.engine import make_engine
from specviz.errors import ModelError
from specviz.pair import context_length

VOCAB = 40
WINDOW = 8  # far shorter than the text
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]

SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=128,
    initializer_range=0.5,
    tie_word_embeddings=False,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
OLD_SIZES = dict(
    vocab_size=VOCAB,
    tie_word_embeddings=False,
    initializer_range=0.5,
    bos_token_id=None,
    eos_token_id=None,
)
SLIDING = dict(sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])

LLAMA_3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
DYNAMIC = dict(rope_type="dynamic", factor=2.0)

# name: (config class, what it takes)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", SIZES),
    "llama, scaled": ("Llama", {**SIZES, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama, biases": ("Llama", {**SIZES, "attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("Llama", {**SIZES, "head_dim": 24, "tie_word_embeddings": True}),
    "llama, llama 3 rope": ("Llama", {**SIZES, "rope_scaling": LLAMA_3}),
    "llama, yarn": ("Llama", {**SIZES, "rope_scaling": YARN}),
    "llama, dynamic rope": ("Llama", {**SIZES, "rope_scaling": DYNAMIC}),
    "mistral, sliding": ("Mistral", {**SIZES, "sliding_window": WINDOW}),
    "gemma": ("Gemma", SIZES),
    "gemma 2, sliding": ("Gemma2", {**SIZES, **SLIDING}),
    "gemma 3, sliding": ("Gemma3Text", {**SIZES, **SLIDING}),
    "qwen 2": ("Qwen2", SIZES),
    "qwen 2, sliding": ("Qwen2", {**SIZES, **SLIDING, "use_sliding_window": True}),
    "qwen 3": ("Qwen3", SIZES),
    "phi 3": ("Phi3", SIZES),
    "olmo 2": ("Olmo2", SIZES),
    "gpt neox": ("GPTNeoX", SIZES),
    "gpt 2": ("GPT2", {**OLD_SIZES, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128}),
    "opt": ("OPT", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.5}),
    "bloom": ("Bloom", {**OLD_SIZES, "hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "gpt j": ("GPTJ", {**OLD_SIZES, "n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 8}),
    "lfm 2, convolutions": ("Lfm2", {**SIZES, "layer_types": ["conv", "full_attention"]}),
    "mixtral": ("Mixtral", {**SIZES, "num_local_experts": 4}),
}  # fmt: skip


def build(kind: str, **changes: Any) -> Any:
    name, values = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(**{**values, **changes})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
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


def test_a_plain_llama_runs_packed_and_all_others_as_they_are():
    for kind in ("llama", "llama, biases", "llama, wide heads", "llama, yarn"):
        assert make_engine(build(kind), VOCAB).form == "packed", kind
    for kind in ("llama, dynamic rope", "mistral, sliding", "gpt 2", "qwen 2"):
        assert make_engine(build(kind), VOCAB).form == "eager", kind


def test_different_architectures_race_each_other():
    pair = pair_of(build("gpt 2"), build("mistral, sliding"))
    *_, end = race(pair, PROMPT, Settings(gamma=3, max_new_tokens=20))
    assert end.identical


def recurrent(kind: str) -> Any:
    name = {"mamba": "Mamba", "falcon-h1": "FalconH1", "qwen3-next": "Qwen3Next"}[kind]
    own: dict[str, Any] = {
        "mamba": dict(state_size=4, num_hidden_layers=1),
        "falcon-h1": dict(
            mamba_d_ssm=32, mamba_n_heads=2, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=8
        ),
        "qwen3-next": dict(
            layer_types=["linear_attention", "full_attention"],
            linear_num_value_heads=2,
            linear_num_key_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
        ),
    }[kind]
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **own})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("kind", ["mamba", "falcon-h1", "qwen3-next"])
@pytest.mark.parametrize("role", ["target", "draft"])
def test_models_with_a_running_state_are_refused(kind: str, role: str):
    """Their rejected drafts could not be undone."""
    models = [recurrent(kind), mini(VOCAB)]
    pair = pair_of(*(models if role == "target" else models[::-1]))
    with pytest.raises(ModelError, match="cannot be rolled back"):
        list(speculate(pair, PROMPT, Settings(gamma=2, max_new_tokens=5)))

"""Tiny models of transformers' architectures with random weights, also as folders.

The weights vary so much that greedy texts do not repeat one token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from toy_models import byte_level, llama, relative, words

WINDOW = 8  # of sliding attention: far shorter than any text of the tests

SIZES = dict(
    vocab_size=40,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=512,
    initializer_range=0.5,
    tie_word_embeddings=False,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
COMPILED = {**SIZES, "intermediate_size": 64, "head_dim": 32}  # what compiled passes take
OLD_SIZES = dict(
    vocab_size=40,
    tie_word_embeddings=False,
    initializer_range=0.5,
    bos_token_id=None,
    eos_token_id=None,
)
SLIDING = dict(sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])
VISION = dict(
    vision_config=dict(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        image_size=28,
        patch_size=14,
    ),
    mm_tokens_per_image=1,
    boi_token_index=37,
    eoi_token_index=38,
    image_token_id=39,
)

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
Kind = tuple[str, dict[str, Any]]

# The families that the table of pairs and the literature draw on.
FAMILIES: dict[str, Kind] = {
    "llama": ("Llama", COMPILED),
    "gemma": ("Gemma", SIZES),
    "gemma 2, sliding": ("Gemma2", {**SIZES, **SLIDING}),
    "gemma 3, sliding": ("Gemma3Text", {**SIZES, **SLIDING}),
    "mistral, sliding": ("Mistral", {**SIZES, "sliding_window": WINDOW}),
    "mixtral": ("Mixtral", {**SIZES, "num_local_experts": 4}),
    "qwen 2": ("Qwen2", COMPILED),
    "qwen 3": ("Qwen3", COMPILED),
    "gpt 2": ("GPT2", {**OLD_SIZES, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512}),
    "gpt neox": ("GPTNeoX", SIZES),
    "opt": ("OPT", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.5}),
    "phi": ("Phi", {**SIZES, "partial_rotary_factor": 0.5}),
    "phi 3, sliding": ("Phi3", {**SIZES, "sliding_window": WINDOW}),
}  # fmt: skip

# What else may stand in a config of theirs, and some more architectures.
VARIANTS: dict[str, Kind] = {
    "llama, scaled": (
        "Llama",
        {**COMPILED, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ),
    "llama, biases": ("Llama", {**COMPILED, "attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("Llama", {**SIZES, "head_dim": 24, "tie_word_embeddings": True}),
    "llama, llama 3 rope": ("Llama", {**COMPILED, "rope_scaling": LLAMA_3}),
    "llama, yarn": ("Llama", {**COMPILED, "rope_scaling": YARN}),
    "llama, dynamic rope": ("Llama", {**COMPILED, "rope_scaling": DYNAMIC}),
    "gemma 3 with vision": (
        "Gemma3",
        {"text_config": {**SIZES, **SLIDING}, **VISION, "tie_word_embeddings": False},
    ),
    "qwen 2, sliding": ("Qwen2", {**SIZES, **SLIDING, "use_sliding_window": True}),
    "phi 3": ("Phi3", SIZES),
    "olmo 2": ("Olmo2", SIZES),
    "bloom": ("Bloom", {**OLD_SIZES, "hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "gpt j": ("GPTJ", {**OLD_SIZES, "n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 8}),
    "lfm 2, convolutions": ("Lfm2", {**SIZES, "layer_types": ["conv", "full_attention"]}),
}  # fmt: skip

LINEAR = dict(
    layer_types=["linear_attention", "full_attention"],
    linear_num_value_heads=2,
    linear_num_key_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
)
EXPERTS = dict(
    num_experts=2,
    num_experts_per_tok=1,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
)
MAMBA_2 = dict(
    mamba_d_state=8,
    mamba_n_heads=4,
    mamba_d_head=16,
    mamba_n_groups=1,
    mamba_expand=2,
    mamba_chunk_size=8,
)
LATENT = dict(
    layer_types=["linear_attention", "full_attention"],
    mlp_layer_types=["dense", "dense"],
    linear_head_dim=8,
    linear_num_heads=2,
    num_key_value_heads=2,
    kv_lora_rank=16,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=16,
    num_experts=2,
    num_local_experts=2,
    num_experts_per_tok=1,
    moe_intermediate_size=16,
)

# Layers that keep one state for all the past: no part of it can be taken back.
RUNNING: dict[str, Kind] = {
    "mamba 2": (
        "Mamba2",
        {**SIZES, "state_size": 4, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
    ),
    "bamba": ("Bamba", {**SIZES, **MAMBA_2, "attn_layer_indices": [1]}),
    "granite 4": (
        "GraniteMoeHybrid",
        {
            **SIZES,
            **MAMBA_2,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "shared_intermediate_size": 32,
        },
    ),
    "falcon-h1": ("FalconH1", {**SIZES, **MAMBA_2, "mamba_d_ssm": 32, "mamba_n_heads": 2}),
    "qwen3-next": ("Qwen3Next", {**SIZES, **LINEAR, **EXPERTS}),
    "qwen 3.5": ("Qwen3_5Text", {**SIZES, **LINEAR}),
    "qwen 3.5 moe": ("Qwen3_5MoeText", {**SIZES, **LINEAR, **EXPERTS}),
    "olmo hybrid": ("OlmoHybrid", {**SIZES, **LINEAR}),
    "kimi linear": ("KimiLinear", {**SIZES, **LATENT}),
    "bailing hybrid": ("BailingHybrid", {**SIZES, **LATENT}),
    "zaya, sliding": (
        "Zaya",
        {**SIZES, "layer_types": ["hybrid_sliding", "hybrid"], "sliding_window": WINDOW},
    ),
}  # fmt: skip

# Of these transformers' passes over several tokens give other logits than passes over one.
ONE_BY_ONE: dict[str, Kind] = {
    "mamba": ("Mamba", {**SIZES, "state_size": 4}),
    "falcon mamba": ("FalconMamba", {**SIZES, "state_size": 4}),
    "jamba": (
        "Jamba",
        dict(
            **SIZES,
            mamba_d_state=4,
            mamba_dt_rank=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=2,
            num_experts_per_tok=1,
        ),
    ),
    "zamba": (
        "Zamba",
        {
            **SIZES,
            "num_hidden_layers": 4,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
            "n_mamba_heads": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "attention_head_dim": 32,
            "attention_hidden_size": 64,
        },
    ),
    "zamba 2": (
        "Zamba2",
        {
            **SIZES,
            "num_hidden_layers": 2,
            "layers_block_type": ["linear_attention", "hybrid"],
            "hybrid_layer_ids": [1],
            "num_mem_blocks": 1,
            "mamba_d_state": 8,
            "n_mamba_heads": 4,
            "mamba_headdim": 16,
            "mamba_ngroups": 1,
            "chunk_size": 8,
            "attention_head_dim": 32,
            "attention_hidden_size": 64,
        },
    ),
    "nemotron-h": (
        "NemotronH",
        {
            **SIZES,
            "num_hidden_layers": 3,
            "layers_block_type": ["mamba", "attention", "mlp"],
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "ssm_state_size": 8,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
}  # fmt: skip

# Their past is in modules, in other arguments, or in caches of their own.
PAST_ELSEWHERE: dict[str, Kind] = {
    "recurrent gemma": (
        "RecurrentGemma",
        {
            **SIZES,
            "lru_width": 32,
            "attention_window_size": WINDOW,
            "block_types": ["recurrent", "attention"],
        },
    ),
    "rwkv": ("Rwkv", {**SIZES, "attention_hidden_size": 32}),
    "minimax": (
        "MiniMax",
        {**SIZES, **LINEAR, "num_local_experts": 2, "num_experts_per_tok": 1, "block_size": 4},
    ),
    "deepseek 4": ("DeepseekV4", SIZES),
}

OWN_PASSES = [
    "llama",
    "qwen 2",
    "qwen 3",
    "llama, scaled",
    "llama, biases",
    "llama, wide heads",
    "llama, llama 3 rope",
    "llama, yarn",
]
"""Kinds that the GPU's own passes compute."""

KINDS = {**FAMILIES, **VARIANTS, **RUNNING, **ONE_BY_ONE, **PAST_ELSEWHERE}

# Id 0: the token for begin, end and padding, which a text may also contain. It has this name
# because transformers adds a token of this name to every Qwen 2 tokenizer without one.
SPECIAL = "<|endoftext|>"


def build(kind: str, *, seed: int = 0, **changes: Any) -> Any:
    """Make a model of this kind; `changes` go into its config."""
    name, values = KINDS[kind]
    values = {**values, **changes}
    config = getattr(transformers, f"{name}Config")(**values)
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def saved(folder: Path, model: Any, tokenizer: Any) -> Path:
    """Save the model and the tokenizer to `folder` in the hub's format; returns `folder`."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert (folder / "model.safetensors").is_file() and (folder / "config.json").is_file()
    return folder


def saved_llama(
    folder: Path, *, seed: int = 0, tokenizer: Any = None, vocab: int = 8, **config: Any
) -> Path:
    """Save a small Llama to `folder`, by default with a tokenizer of eight words."""
    return saved(folder, llama(vocab, seed=seed, **config), tokenizer or words(8))


def pickle_weights(folder: Path) -> None:
    """Replace a folder's safetensors file with a pickle."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def small_tokenizer() -> Any:
    """A byte-level BPE of 288 pieces, with one special token, `SPECIAL`."""
    tokenizer = byte_level(288, special=[SPECIAL])
    tokenizer.bos_token = tokenizer.eos_token = tokenizer.pad_token = SPECIAL
    return tokenizer


def saved_family(folder: Path, kind: str, *, noise: float, **changes: Any) -> tuple[Path, Path]:
    """Save a target of this kind and a draft that often agrees with it; returns their folders.

    noise: on the draft's weights, in standard deviations.
    """
    tokenizer = small_tokenizer()
    ends = dict(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    target = build(kind, **{"vocab_size": len(tokenizer), **ends, **changes})
    draft = relative(target, noise=noise)
    return saved(folder / "target", target, tokenizer), saved(folder / "draft", draft, tokenizer)

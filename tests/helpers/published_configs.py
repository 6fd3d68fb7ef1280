"""The published configs of the models in the table of pairs, reduced to sizes."""

from __future__ import annotations

from typing import Any

import transformers


def llama(
    hidden: int, inner: int, layers: int, heads: int, kv: int, vocab: int, context: int, **more: Any
) -> dict[str, Any]:
    return dict(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        vocab_size=vocab,
        max_position_embeddings=context,
        **more,
    )


def gemma3(vision: bool, *sizes: int, head: int, context: int) -> tuple[str, dict[str, Any]]:
    text = llama(*sizes, 262208 if vision else 262144, context, head_dim=head)
    if not vision:
        return "Gemma3Text", text
    sight = dict(
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        num_attention_heads=16,
        image_size=896,
        patch_size=14,
        vision_use_head=False,
    )
    return "Gemma3", {"text_config": text, "vision_config": sight}


LLAMA_8B = (4096, 14336, 32, 32, 8)
LLAMA_70B = (8192, 28672, 80, 64, 8)
TIED = {"tie_word_embeddings": True}
UNTIED = {"tie_word_embeddings": False}

# hub id: (config class, what its config says)
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "google/gemma-7b-it": ("Gemma", llama(3072, 24576, 28, 16, 16, 256000, 8192, head_dim=256)),
    "google/gemma-2b-it": ("Gemma", llama(2048, 16384, 18, 8, 1, 256000, 8192, head_dim=256)),
    "meta-llama/Meta-Llama-3-70B-Instruct": ("Llama", llama(*LLAMA_70B, 128256, 8192)),
    "meta-llama/Meta-Llama-3-8B-Instruct": ("Llama", llama(*LLAMA_8B, 128256, 8192)),
    "meta-llama/Llama-3.1-70B-Instruct": ("Llama", llama(*LLAMA_70B, 128256, 131072)),
    "meta-llama/Llama-3.1-8B-Instruct": ("Llama", llama(*LLAMA_8B, 128256, 131072)),
    "meta-llama/Llama-3.2-1B-Instruct": (
        "Llama",
        llama(2048, 8192, 16, 32, 8, 128256, 131072, head_dim=64, **TIED),
    ),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": ("Mixtral", llama(*LLAMA_8B, 32000, 32768, **UNTIED)),
    "mistralai/Mistral-7B-Instruct-v0.2": (
        "Mistral",
        llama(*LLAMA_8B, 32000, 32768, sliding_window=None, **UNTIED),
    ),
    "codellama/CodeLlama-34b-hf": ("Llama", llama(8192, 22016, 48, 64, 8, 32000, 16384)),
    "codellama/CodeLlama-7b-hf": ("Llama", llama(4096, 11008, 32, 32, 32, 32016, 16384)),
    "Qwen/Qwen2.5-7B-Instruct": ("Qwen2", llama(3584, 18944, 28, 28, 4, 152064, 32768, **UNTIED)),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": (
        "Qwen2",
        llama(1536, 8960, 28, 12, 2, 151936, 32768, **TIED),
    ),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": (
        "Qwen2",
        llama(896, 4864, 24, 14, 2, 151936, 32768, **TIED),
    ),
    "Qwen/Qwen2.5-0.5B-Instruct": ("Qwen2", llama(896, 4864, 24, 14, 2, 151936, 32768, **TIED)),
    "Qwen/Qwen3-32B": (
        "Qwen3",
        llama(5120, 25600, 64, 64, 8, 151936, 40960, head_dim=128, **UNTIED),
    ),
    "Qwen/Qwen3-8B": (
        "Qwen3",
        llama(4096, 12288, 36, 32, 8, 151936, 40960, head_dim=128, **UNTIED),
    ),
    "Qwen/Qwen3-4B": ("Qwen3", llama(2560, 9728, 36, 32, 8, 151936, 40960, head_dim=128, **TIED)),
    "Qwen/Qwen3-1.7B": ("Qwen3", llama(2048, 6144, 28, 16, 8, 151936, 40960, head_dim=128, **TIED)),
    "Qwen/Qwen3-0.6B": ("Qwen3", llama(1024, 3072, 28, 16, 8, 151936, 40960, head_dim=128, **TIED)),
    "google/gemma-3-27b-it": gemma3(True, 5376, 21504, 62, 32, 16, head=128, context=131072),
    "google/gemma-3-12b-it": gemma3(True, 3840, 15360, 48, 16, 8, head=256, context=131072),
    "google/gemma-3-1b-it": gemma3(False, 1152, 6912, 26, 4, 1, head=256, context=32768),
    "google/gemma-3-270m-it": gemma3(False, 640, 2048, 18, 4, 1, head=256, context=32768),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": (
        "Llama",
        llama(2048, 8192, 24, 32, 32, 49152, 8192, **TIED),
    ),
    "HuggingFaceTB/SmolLM2-135M-Instruct": (
        "Llama",
        llama(576, 1536, 30, 9, 3, 49152, 8192, **TIED),
    ),
    "EleutherAI/pythia-2.8b": ("GPTNeoX", llama(2560, 10240, 32, 32, 32, 50304, 2048, **UNTIED)),
    "EleutherAI/pythia-70m": ("GPTNeoX", llama(512, 2048, 6, 8, 8, 50304, 2048, **UNTIED)),
    "openai-community/gpt2-xl": ("GPT2", dict(n_embd=1600, n_layer=48, n_head=25)),
    "openai-community/gpt2": ("GPT2", dict(n_embd=768, n_layer=12, n_head=12)),
    "facebook/opt-6.7b": (
        "OPT",
        dict(hidden_size=4096, ffn_dim=16384, num_hidden_layers=32, num_attention_heads=32,
             word_embed_proj_dim=4096, vocab_size=50272, max_position_embeddings=2048),
    ),
    "facebook/opt-125m": (
        "OPT",
        dict(hidden_size=768, ffn_dim=3072, num_hidden_layers=12, num_attention_heads=12,
             word_embed_proj_dim=768, vocab_size=50272, max_position_embeddings=2048),
    ),
}  # fmt: skip

# Heads: their configs as far as they define sizes. The sizes that follow were compared with what
# others counted: the length of the file of yuhuili's (810 MiB in fp16), all numbers of the file of
# the 4 B head (218,429,056 with both maps of ids, 436,899,680 bytes), and those of the 1.7 B head
# (448,012,288 with the target's embeddings).
PUBLISHED_HEADS: dict[str, dict[str, Any]] = {
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": llama(
        4096, 14336, 1, 32, 8, 128256, 2048, draft_vocab_size=32000
    ),
    "AngelSlim/Qwen3-1.7B_eagle3": llama(
        2048, 6144, 1, 16, 8, 151936, 40960, head_dim=128, draft_vocab_size=32000
    ),
    "AngelSlim/Qwen3-4B_eagle3": llama(
        2560, 9728, 1, 32, 8, 151936, 40960, head_dim=128, draft_vocab_size=32000
    ),
}


def published_config(name: str) -> Any:
    """Make the config of a model in the table."""
    kind, values = PUBLISHED[name]
    return getattr(transformers, f"{kind}Config")(**values)

"""A tiny Gemma 4 with an assistant, and the drafts that are expected of it.

The reference reads the whole text again for each draft, without a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from model_families import SIZES, saved
from torch import Tensor
from toy_models import words
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    Gemma4AssistantConfig,
    Gemma4TextConfig,
)

from specviz.core.model_facts import cache_argument
from specviz.sides.heads.assistant import Assistant, buildable

WINDOW = 6
SLIDING = "sliding_attention"
FULL = "full_attention"


KINDS = (SLIDING, FULL, SLIDING, FULL)  # of the target's layers


def _text(vocab: int, kinds: Sequence[str], width: int, **changes: Any) -> Gemma4TextConfig:
    sizes = {**SIZES, "vocab_size": vocab, "hidden_size": width, "max_position_embeddings": 4096}
    return Gemma4TextConfig(
        **{**sizes, "num_hidden_layers": len(kinds), "initializer_range": 0.3, **changes},
        layer_types=list(kinds),
        sliding_window=WINDOW,
        global_head_dim=16,
    )


def gemma(vocab: int, *, shared: int = 2, kinds: Sequence[str] = KINDS) -> Any:
    """Make a random target. shared: how many of its last layers use the keys of others."""
    torch.manual_seed(0)
    layer_inputs = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": vocab}
    config = _text(vocab, kinds, 32, num_kv_shared_layers=shared, **layer_inputs)
    return AutoModelForCausalLM.from_config(config).eval()


def gemma_chain(vocab: int, *, shared: int = 0) -> Any:
    """Make a target without attention, whose text is a Markov chain, with the fewest layers that
    have keys of both kinds.
    """
    model = gemma(vocab, shared=shared, kinds=KINDS[: 2 + shared])
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    return model


def assistant_config(vocab: int, **changes: Any) -> Gemma4AssistantConfig:
    none = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    text = _text(vocab, (SLIDING, FULL), 16, **none)
    return Gemma4AssistantConfig(**{"text_config": text, "backbone_hidden_size": 32, **changes})


def assistant_model(vocab: int, **changes: Any) -> Any:
    torch.manual_seed(1)
    config = buildable(assistant_config(vocab, **changes))
    return AutoModelForCausalLM.from_config(config).eval()


def assistant(target: Any, **changes: Any) -> Assistant:
    return Assistant(assistant_model(target.config.vocab_size, **changes), target)


def drafted_logits(head: Assistant, target: Any, ids: Sequence[int], chain: int) -> Tensor:
    """Compute the logits [vocab] after the text `ids`, whose last `chain` tokens are drafts."""
    text = torch.tensor([list(ids)])
    known = len(ids) - chain
    last = len(KINDS) - target.config.num_kv_shared_layers  # of the layers that keep keys
    with torch.no_grad():
        cache = DynamicCache()  # without windows
        seen = target(
            input_ids=text[:, : known - 1],
            output_hidden_states=True,
            **{cache_argument(target): cache},
        )
        near = {}
        for kind, layer in ((SLIDING, cache.layers[last - 2]), (FULL, cache.layers[last - 1])):
            most = WINDOW - 1 if kind == SLIDING else known
            near[kind] = layer.keys[:, :, -most:], layer.values[:, :, -most:]
        state = seen.hidden_states[-1][:, -1:]
        for step in range(chain + 1):
            token = target.get_input_embeddings()(text[:, known - 1 + step][None])
            found = head.model(
                inputs_embeds=torch.cat([token, state], -1),
                position_ids=torch.tensor([[known - 1]]),
                shared_kv_states=near,
            )
            state = found.last_hidden_state
        return found.logits[0, -1]


def saved_pair(folder: Path) -> tuple[Path, Path]:
    """Save a target and its assistant; returns their folders."""
    target = gemma(8)
    model = assistant_model(8)
    model.save_pretrained(folder / "helper")
    return saved(folder / "target", target, words(8)), folder / "helper"

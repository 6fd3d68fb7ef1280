"""Tiny targets with multi-token prediction layers, and their expected drafts.

The reference keeps nothing between steps: it reads the whole text again with an empty cache.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from model_families import SIZES, saved
from safetensors.torch import load_file, save_file
from torch import Tensor
from toy_models import words
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from specviz.sides.heads.mtp import MtpHead, own_parameters

WINDOW = 6
MIXTURE = dict(n_routed_experts=4, n_group=1, topk_group=1, n_shared_experts=1)
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=16)
LATENT = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    # Three layers, latent attention, mixtures of experts.
    "deepseek": (
        "DeepseekV3",
        {**MIXTURE, **EXPERTS, **LATENT, "v_head_dim": 16, "num_key_value_heads": 2}
        | {"num_mtp_layers": 3, "first_k_dense_replace": 1, "head_dim": 8},
    ),
    # One layer, with a sliding window.
    "mellum": (
        "Mellum",
        {**EXPERTS, "num_experts": 4, "num_mtp_layers": 1, "sliding_window": WINDOW}
        | {"layer_types": ["sliding_attention", "full_attention"]},
    ),
}


def with_layers(kind: str, vocab: int, *, spread: float = 0.3) -> tuple[Any, Any]:
    """Make a random target of this kind, and its layers as transformers' `MtpModel`."""
    name, values = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(
        **{**SIZES, "vocab_size": vocab, "initializer_range": spread, **values}
    )
    torch.manual_seed(0)
    target = transformers.AutoModelForCausalLM.from_config(config).eval()
    layers = MtpModel(target, config.num_mtp_layers).eval()
    with torch.no_grad():
        for weight in own_parameters(layers):
            weight.copy_(torch.randn(weight.shape) * spread if weight.dim() > 1 else 1.0)
    return target, layers


def head_of(kind: str, vocab: int, *, spread: float = 0.3) -> MtpHead:
    target, layers = with_layers(kind, vocab, spread=spread)
    return MtpHead(layers, target)


def drafted_logits(target: Any, layers: Any, ids: Sequence[int], chain: int) -> Tensor:
    """Compute the logits [vocab] after the text `ids`, whose last `chain` tokens are drafts."""
    text = torch.tensor([list(ids)])
    known = len(ids) - chain
    depth = len(layers.layers)
    cache = MtpCache(config=layers.config)
    with torch.no_grad():
        seen = target(input_ids=text[:, : known - 1], output_hidden_states=True)
        states = seen.hidden_states[-1]
        for step in range(chain + 1):
            layer = min(step, depth - 1)
            first = 1 + step
            if step >= depth:  # beyond the last layer: its own output, one place further
                states = states[:, -1:]
                first = known - 1 + step
            places = torch.arange(first, known + step)[None]
            states = layers.forward_layer(
                layer, states, places, cache, input_ids=text[:, first : known + step]
            )
        return layers._project_to_logits(states)[0, -1]


def saved_mellum(folder: Path) -> tuple[Any, Any]:
    """Save a folder as published, with the layer beside the target; returns both."""
    target, layers = with_layers("mellum", 8)
    saved(folder, target, words(8))
    weights = load_file(folder / "model.safetensors")
    mine = {name: tensor.clone() for name, tensor in layers.layers[0].state_dict().items()}
    outer = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden"}
    for name, tensor in mine.items():
        part, _, rest = name.partition(".")
        if part == "mtp_block":
            weights.update(_published(f"mtp.layers.0.{rest}", tensor))
        else:
            weights[f"mtp.{outer.get(part, 'norm')}.{rest}"] = tensor
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert json.loads((folder / "config.json").read_text())["num_nextn_predict_layers"] == 1
    return target, layers


def _published(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Rename a weight as in checkpoints: a tensor for each expert, gate and up apart."""
    base, _, fused = name.rpartition(".")
    if not base.endswith(".experts"):
        return {name: tensor}
    if fused == "down_proj":
        return {f"{base}.{i}.down_proj.weight": one.clone() for i, one in enumerate(tensor)}
    parts = [
        (f"{base}.{i}.{part}.weight", half.clone())
        for i, one in enumerate(tensor)
        for part, half in zip(("gate_proj", "up_proj"), one.chunk(2), strict=True)
    ]
    return dict(parts)

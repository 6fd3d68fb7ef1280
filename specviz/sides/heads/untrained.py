"""A head on a target before its training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from ...core.llama_layer import TYPES, layer_modules
from ...core.model_facts import text_config
from .eagle import Head, HeadConfig
from .eagle_files import LAYER_FIELDS

SAVED_FIELDS = tuple(name for name in LAYER_FIELDS if not name.startswith(("rope_", "mlp_")))
"""Fields of a layer's config that a head's config has under the same names."""


def new_head(target: Any, layers: tuple[int, ...], targets: Tensor) -> Head:
    """A head for `target` that begins with the weights of the target's last layer and output layer
    if its layers are Llama's; otherwise it is random.

    layers: numbers of the target's layers after which its states are read. targets: int64
    [draft_vocab], ascending, the tokens that it can draft. At first the last of the states passes
    through `fc` unchanged.
    """
    config = text_config(target)
    layer = _layer_config(config)
    width = layer.hidden_size
    head = Head(HeadConfig(layer, width, layers, len(targets)))
    embedding = target.get_input_embeddings().weight.detach()
    head.embedding = embedding.float()
    head.d2t.copy_(targets - torch.arange(len(targets)))
    output_weight = target.get_output_embeddings().weight
    with torch.no_grad():
        head.fc.weight.zero_()
        head.fc.weight[:, -width:] = torch.eye(width)
        head.norm.weight.copy_(target.model.norm.weight)
        head.lm_head.weight.copy_(output_weight[targets])
        if config.model_type in TYPES:
            _inherit_layer(head, target.model.layers[-1])
    return head


def _layer_config(config: Any) -> LlamaConfig:
    """The config of a head's layer on a target with this config."""
    fields = {}
    for name in SAVED_FIELDS:
        if hasattr(config, name):
            fields[name] = getattr(config, name)
    fields["rope_parameters"] = config.rope_parameters
    fields["num_hidden_layers"] = 1
    fields["attention_bias"] = False
    fields["hidden_act"] = "silu"
    return LlamaConfig(**fields, dtype="float32")


def _inherit_layer(head: Head, last: Any) -> None:
    """Copy the weights of a target's layer; the weights for the next token's embedding begin
    small."""
    width = head.config.layer.hidden_size
    modules = layer_modules(head.midlayer)
    targets = layer_modules(last)
    for name in ("query", "key", "value"):
        weight = modules[name].weight
        weight[:, :width].mul_(0.1)
        weight[:, width:] = targets[name].weight
    for name in ("out", "gate", "up", "down", "middle_norm"):
        modules[name].weight.copy_(targets[name].weight)
    head.midlayer.hidden_norm.weight.copy_(targets["input_norm"].weight)

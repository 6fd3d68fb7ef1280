"""Recognise models of the Llama family, which some engines run without the model's own modules."""

from __future__ import annotations

from typing import Any

import torch

from .llama_layer import LINEARS, TYPES, layer_modules
from .model_facts import context_length

STATIC_ROPE = ("default", "linear", "llama3", "yarn")


def is_llama_family(model: Any) -> bool:
    """Whether a pass of `model` is one of the Llama family, as published: RMS norms, rotated
    queries and keys, gated SiLU, and no window that slides; no subclass, hook or replaced method,
    which an engine of its own would not run. The model may be on the `meta` device.
    """
    return (
        model.config.model_type in TYPES
        and _is_as_published(model)
        and has_known_layers(model.config, model.model.rotary_emb)
        and not _has_sliding_window(model)
    )


def has_known_layers(config: Any, rotary: Any) -> bool:
    """Whether the config's layers compute the same as those of the family."""
    return config.hidden_act == "silu" and getattr(rotary, "rope_type", "default") in STATIC_ROPE


def _is_as_published(model: Any) -> bool:
    if not all(map(_is_plain, model.modules())):
        return False
    for layer in model.model.layers:
        modules = layer_modules(layer)
        for linear in LINEARS:
            module = modules[linear.name]
            if type(module) is not torch.nn.Linear and not hasattr(module, "packed_as"):
                return False
    return True


def _is_plain(module: Any) -> bool:
    """Whether a call of the module runs its library's code and nothing else."""
    library = type(module).__module__.startswith(("transformers.", "torch.nn."))
    return (
        (library or hasattr(module, "packed_as"))
        and "forward" not in vars(module)
        and not module._forward_hooks
        and not module._forward_pre_hooks
    )


def _has_sliding_window(model: Any) -> bool:
    window = getattr(model.config, "sliding_window", None)
    if not window or not getattr(model.config, "use_sliding_window", True):
        return False
    limit = context_length(model)
    return limit is None or bool(window < limit)

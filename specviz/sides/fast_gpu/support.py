"""Which models can run over a cache that stays in place, and why others cannot."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import StaticCache
from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

from ...pairs.pair import context_length
from ...variables import COMPILE

MOVING_ROPE = ("dynamic", "longrope")  # frequencies that depend on the length
ATTENTION = ("sdpa", "eager")  # those that take a mask as a tensor
PROBE = 1 << 20  # a length for models without a stated limit


def compile_wanted() -> bool:
    """Whether SPECVIZ_COMPILE asks for layers to be compiled before they are captured. Raises
    `SettingsError`."""
    return COMPILE.read()


def refusal(model: Any) -> str | None:
    """Why the architecture of `model` cannot run over a static cache; None if it may.

    A trial run decides in the end: see `specviz.sides.fast_gpu.engine`.
    """
    for reason in (_calls, _places, _layers, _rope):
        if why := reason(model):
            return why
    return None


def _calls(model: Any) -> str | None:
    parameters = inspect.signature(model.forward).parameters
    if "position_ids" not in parameters or "past_key_values" not in parameters:
        return "it takes no positions"
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in ATTENTION:
        return f"its attention ({attention}) takes no mask of this kind"
    if any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()):
        return "hooks on its modules would not run in a captured pass"
    return None


def _places(model: Any) -> str | None:
    tensors = [*model.parameters(), *model.buffers()]
    if len({t.device for t in tensors}) > 1 or any(hasattr(m, "_hf_hook") for m in model.modules()):
        return "it is spread over several devices"
    return None


def _layers(model: Any) -> str | None:
    limit = context_length(model) or PROBE
    try:
        layers = StaticCache(config=model.config, max_cache_len=limit).layers
    except (AttributeError, KeyError, TypeError, ValueError):
        return "transformers knows no static cache for it"
    for layer in layers:
        if type(layer) is StaticSlidingWindowLayer:
            # A window as long as the context never slides.
            if layer.max_cache_len < limit:
                return f"its window of {layer.max_cache_len} tokens slides"
        elif type(layer) is not StaticLayer:
            return "some of its layers keep a running state"
    return None


def _rope(model: Any) -> str | None:
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        named = kinds.values() if isinstance(kinds, dict) else [kinds]
        if any(kind in MOVING_ROPE for kind in named):
            return "its rotary frequencies follow the length"
    return None


def trial_ids(model: Any, vocab: int) -> torch.Tensor:
    """A few ids to try a model on, int64 [n], on its device."""
    count = min(8, context_length(model) or 8)
    return (torch.arange(count, device=model.device) * 7 + 1) % vocab

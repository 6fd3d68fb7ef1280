"""The models that can run over a static cache."""

from __future__ import annotations

import inspect
from typing import Any

from transformers import StaticCache
from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

from ...core.model_facts import cache_argument, context_length

MOVING_ROPE = ("dynamic", "longrope")  # frequencies that depend on the length
ATTENTION = ("sdpa", "eager")  # attention functions that take a mask as a tensor
UNLIMITED = 1 << 20  # context for models without a stated limit


def static_refusal(model: Any) -> str | None:
    """The reason why `model`'s architecture cannot run over a static cache; None if it may. A trial
    run decides in the end.
    """
    parameters = inspect.signature(model.forward).parameters
    if not {"position_ids", cache_argument(model)} <= parameters.keys():
        return "it accepts no position ids"
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in ATTENTION:
        return f"its attention ({attention}) does not accept a mask of this kind"
    modules = list(model.modules())
    if any(m._forward_hooks or m._forward_pre_hooks for m in modules):
        return "hooks on its modules would not run in a captured pass"
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(devices) > 1 or any(hasattr(m, "_hf_hook") for m in modules):
        return "it is spread over several devices"
    for module in modules:
        if any(kind in MOVING_ROPE for kind in _rope_types(module)):
            return "its rotary frequencies depend on the length"
    return _layers_refusal(model)


def _rope_types(module: Any) -> list[Any]:
    kinds = getattr(module, "rope_type", None)
    if isinstance(kinds, dict):  # by the type of layer
        return list(kinds.values())
    return [kinds]


def _layers_refusal(model: Any) -> str | None:
    """The reason why a layer of the model's cache cannot be static; None if all can."""
    limit = context_length(model) or UNLIMITED
    try:
        layers = StaticCache(config=model.config, max_cache_len=limit).layers
    except (AttributeError, KeyError, TypeError, ValueError):
        return "transformers has no static cache for it"
    for layer in layers:
        if type(layer) is StaticSlidingWindowLayer:
            # A window as long as the context never slides.
            if layer.max_cache_len < limit:
                return f"it has a sliding window of {layer.max_cache_len} tokens"
        elif type(layer) is not StaticLayer:
            return "some of its layers keep a running state"
    return None

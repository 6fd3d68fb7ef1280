"""Which models can run over a cache that stays in place, and why others cannot."""

from __future__ import annotations

import inspect
from typing import Any

from transformers import StaticCache
from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

from ...pairs.pair import context_length

MOVING_ROPE = ("dynamic", "longrope")  # frequencies that depend on the length
ATTENTION = ("sdpa", "eager")  # those that take a mask as a tensor
UNLIMITED = 1 << 20  # a length for models without a stated limit


def refusal(model: Any) -> str | None:
    """Why the architecture of `model` cannot run over a static cache; None if it may.

    A trial run decides in the end: see `specviz.sides.fast_gpu.engine`.
    """
    if (
        not {"position_ids", "past_key_values"}
        <= inspect.signature(model.forward).parameters.keys()
    ):
        return "it takes no positions"
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in ATTENTION:
        return f"its attention ({attention}) takes no mask of this kind"
    modules = list(model.modules())
    if any(m._forward_hooks or m._forward_pre_hooks for m in modules):
        return "hooks on its modules would not run in a captured pass"
    devices = {t.device for t in (*model.parameters(), *model.buffers())}
    if len(devices) > 1 or any(hasattr(m, "_hf_hook") for m in modules):
        return "it is spread over several devices"
    if any(kind in MOVING_ROPE for m in modules for kind in _rope_types(m)):
        return "its rotary frequencies follow the length"
    return _layers(model)


def _rope_types(module: Any) -> list[Any]:
    kinds = getattr(module, "rope_type", None)
    return list(kinds.values()) if isinstance(kinds, dict) else [kinds]


def _layers(model: Any) -> str | None:
    limit = context_length(model) or UNLIMITED
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

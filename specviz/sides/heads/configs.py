"""Recognition of heads by their names or configs. This module imports no torch."""

from __future__ import annotations

from typing import Any

OWN_LAYERS = "mtp"
"""The draft's name in a pair that drafts with the target's own layers: "TARGET+mtp"."""

ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
"""Types of models that read the last state and the cache of a Gemma 4."""


def is_head_config(values: dict[str, Any]) -> bool:
    """Whether this is the config of a head, and not of a model."""
    return is_eagle(values) or values.get("model_type") in ASSISTANTS


def is_eagle(values: dict[str, Any]) -> bool:
    """Whether this is the config of an EAGLE-3 head."""
    if "draft_vocab_size" in values and values.get("num_hidden_layers") == 1:
        return True
    architectures = values.get("architectures") or []
    names = [values.get("speculators_model_type"), *architectures]
    return any("eagle3" in str(name).lower() for name in names)

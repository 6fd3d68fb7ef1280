"""What stands beside a target in a pair's name: a draft model or a head, as far as that is known
without a network. This module imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .spec import OWN_LAYERS, local_file, local_path
from .table import facts

ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
"""The types of models that read the last state and the cache of a Gemma 4."""

Part: TypeAlias = Literal["draft", "head"]


def known_part(name: str) -> Part | None:
    """What the second name of a pair stands for; None if that is not known here yet."""
    if name == OWN_LAYERS or name in facts("heads"):
        return "head"
    if local_file(name) is not None or name in facts("models"):
        return "draft"
    folder = local_path(name)
    values = _config(folder / "config.json" if folder is not None else _cached(name))
    if not values:
        return None
    return "head" if is_head_config(values) else "draft"


def is_head_config(values: dict[str, Any]) -> bool:
    """Whether this is the config of a head, and not of a model."""
    return is_eagle(values) or values.get("model_type") in ASSISTANTS


def is_eagle(values: dict[str, Any]) -> bool:
    """Whether this is the config of an EAGLE-3 head."""
    names = [values.get("speculators_model_type"), *(values.get("architectures") or [])]
    has_one_layer = "draft_vocab_size" in values and values.get("num_hidden_layers") == 1
    return has_one_layer or any("eagle3" in str(name).lower() for name in names)


def _cached(name: str) -> Path | None:
    """The config of a model of the hub, if it was fetched before."""
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except ValueError:  # this is no name that the hub could have
        return None
    return Path(cached) if isinstance(cached, str) else None


def _config(path: Path | None) -> dict[str, Any]:
    """What a config holds; nothing if it cannot be read."""
    if path is None:
        return {}
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}

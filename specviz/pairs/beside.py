"""The second part of a pair's name: a draft model or a head, as far as that is known offline. This
module imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..files.local_paths import local_file, local_path
from ..sides.heads.configs import OWN_LAYERS, is_head_config
from .table import facts

Part: TypeAlias = Literal["draft", "head"]


def known_part(name: str) -> Part | None:
    """The kind of model that a pair's second name is; None if that is not known offline."""
    if name == OWN_LAYERS or name in facts("heads"):
        return "head"
    if local_file(name) is not None or name in facts("models"):
        return "draft"
    folder = local_path(name)
    values = _config(folder / "config.json" if folder is not None else _cached(name))
    if not values:
        return None
    return "head" if is_head_config(values) else "draft"


def _cached(name: str) -> Path | None:
    """The cached config of a model of the hub, if there is one."""
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except ValueError:  # this is no name that the hub could have
        return None
    return Path(cached) if isinstance(cached, str) else None


def _config(path: Path | None) -> dict[str, Any]:
    """Read a config; empty if it cannot be read."""
    if path is None:
        return {}
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}

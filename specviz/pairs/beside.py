"""The second part of a pair's name: a draft model or a head, with the facts that are known offline.
This module imports no torch."""

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
    if folder is None:
        path = _cached_config(name)
    else:
        path = folder / "config.json"
    config = _read_config(path)
    if not config:
        return None
    if is_head_config(config):
        return "head"
    return "draft"


def _cached_config(name: str) -> Path | None:
    """The cached config of a model of the hub, if there is one."""
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(name, "config.json")
    except ValueError:  # this is no name that the hub could have
        return None
    if not isinstance(path, str):
        return None
    return Path(path)


def _read_config(path: Path | None) -> dict[str, Any]:
    """Read a config; empty if it cannot be read."""
    if path is None:
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    return config

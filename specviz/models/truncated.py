"""A model that consists of another model's first layers and shares its weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from ..errors import PairError
from .pair import text_config


def layer_count(model: Any) -> int:
    """The number of the model's blocks. Raises `PairError` if they cannot be found."""
    path = _path(model)
    return len(model.get_submodule(path))


def truncated_model(model: Any, layers: int) -> Any:
    """`model` with only its first `layers` blocks, its final norm and its head.

    The weights are shared. `model` itself does not change, so other threads may run it meanwhile.
    Raises `PairError` if the blocks cannot be found.
    """
    *parents, last = _path(model).split(".")
    root = inner = _shallow_copy(model)
    for name in parents:
        child = _shallow_copy(inner._modules[name])
        inner._modules[name] = child
        inner = child
    inner._modules[last] = nn.ModuleList(list(inner._modules[last])[:layers])
    return root


def _shallow_copy(module: Any) -> Any:
    """A copy of a module whose children can be replaced without a change to the original."""
    twin = copy.copy(module)
    twin.__dict__["_modules"] = dict(module._modules)
    # The hook of a device map is a method of the original module, and would run all its blocks.
    twin.__dict__.pop("forward", None)
    return twin


def _path(model: Any) -> str:
    """The dotted name of the list that holds the model's blocks."""
    config = text_config(model)
    found: list[str] = []
    for name, module in model.named_modules():
        # A list of experts inside a block may be as long as the list of blocks.
        inside = any(name.startswith(f"{other}.") for other in found)
        blocks = isinstance(module, nn.ModuleList) and not inside
        if blocks and len(module) == getattr(config, "num_hidden_layers", None):
            found.append(name)
    if len(found) != 1:
        raise PairError(
            f"the layers of a {config.model_type or 'served'} model cannot be told apart, so it "
            "cannot draft for itself: choose the drafter 'model' or 'ngram'."
        )
    return found[0]

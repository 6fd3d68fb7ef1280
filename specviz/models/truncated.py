"""The first layers of a model as a model of their own, over the same weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from ..errors import PairError
from .pair import text_config


def layer_count(model: Any) -> int:
    """How many blocks `shallow_model` can choose from. Raises `PairError` if none are found."""
    return len(model.get_submodule(_path(model)))


def shallow_model(model: Any, layers: int) -> Any:
    """`model` with only its first `layers` blocks, its final norm and its head.

    Weights are shared and `model` itself is left alone, so that other threads may be running it.
    Raises `PairError` where the blocks cannot be found.
    """
    *parents, last = _path(model).split(".")
    root = inner = _opened(model)
    for name in parents:
        child = _opened(inner._modules[name])
        inner._modules[name] = child
        inner = child
    inner._modules[last] = nn.ModuleList(list(inner._modules[last])[:layers])
    return root


def _opened(module: Any) -> Any:
    """A copy of a module whose children can be exchanged without the original noticing."""
    twin = copy.copy(module)
    twin.__dict__["_modules"] = dict(module._modules)
    # A device map's hook is a method bound to the original, which would run all of its blocks.
    twin.__dict__.pop("forward", None)
    return twin


def _path(model: Any) -> str:
    """The dotted name of the list that holds the model's blocks."""
    config = text_config(model)
    found: list[str] = []
    for name, module in model.named_modules():
        # Experts are lists inside a block; they may well be as many as the blocks.
        inside = any(name.startswith(f"{other}.") for other in found)
        blocks = isinstance(module, nn.ModuleList) and not inside
        if blocks and len(module) == getattr(config, "num_hidden_layers", None):
            found.append(name)
    if len(found) != 1:
        raise PairError(
            f"the layers of a {config.model_type} model cannot be told apart, so it cannot draft "
            "for itself: choose the drafter 'model' or 'ngram'."
        )
    return found[0]

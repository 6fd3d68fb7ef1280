"""A model's layers: their number, the first of them as a model of its own, and their outputs."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from ..base.errors import PairError

FINAL = -1
"""The number for the final norm's states, which the target's own head reads."""


def layer_count(model: Any) -> int:
    """Count the model's blocks. Raises `PairError` if they cannot be found."""
    return len(_blocks(model))


def blocks_path(model: Any) -> str:
    """Find the dotted name of the list that holds the model's blocks."""
    config = model.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", None)
    paths: list[str] = []
    for name, module in model.named_modules():
        # A list of experts inside a block may be as long as the list of blocks.
        is_inside = any(name.startswith(f"{path}.") for path in paths)
        if isinstance(module, nn.ModuleList) and not is_inside and len(module) == layers:
            paths.append(name)
    if len(paths) != 1:
        raise PairError(
            f"the layers of a {config.model_type or 'served'} model cannot be told apart, so "
            "neither the first layers nor a head can draft: choose the drafter 'model' or "
            "'ngram'."
        )
    return paths[0]


def first_layers(model: Any, count: int) -> Any:
    """Copy `model` with only its first `count` layers, its final norm and its head.

    The weights are shared. `model` itself does not change, so other threads may run it meanwhile.
    Raises `PairError` if the blocks cannot be found.
    """
    return _with_blocks(model, _blocks(model)[:count])


def watched_model(model: Any, layers: Sequence[int], keep: Callable[[int, Tensor], None]) -> Any:
    """`model` that calls `keep(n, states)` in every pass after its first n layers have run, for
    each n of `layers`, with their output [batch, tokens, width]; n may be `FINAL`.

    The weights are shared. `model` itself does not change, so that nothing is added to its passes.
    Raises `PairError` if the blocks cannot be found.
    """
    blocks = _blocks(model)
    for n in layers:
        if n != FINAL:
            blocks[n - 1] = copy.copy(blocks[n - 1])
            _watch(blocks[n - 1], keep, n)
    root = _with_blocks(model, blocks)
    if FINAL in layers:
        parent, _, _ = blocks_path(model).rpartition(".")
        _watch(root.get_submodule(parent), keep, FINAL)
    return root


def _watch(twin: Any, keep: Callable[[int, Tensor], None], n: int) -> None:
    """Let a copy of a module call `keep` with its output."""

    def hook(module: Any, inputs: Any, output: Any) -> None:
        states = output if isinstance(output, Tensor) else output[0]
        keep(n, states)

    # The hooks of the original are kept, and it gets no new ones.
    twin._forward_hooks = OrderedDict(twin._forward_hooks)
    twin.register_forward_hook(hook)


def _blocks(model: Any) -> list[Any]:
    path = blocks_path(model)  # it says so if the model has none, such as one on a server
    return list(model.get_submodule(path))


def _with_blocks(model: Any, blocks: list[Any]) -> Any:
    """Copy `model` with other blocks."""
    *parents, last = blocks_path(model).split(".")
    root = inner = _shallow_copy(model)
    for name in parents:
        child = _shallow_copy(inner._modules[name])
        inner._modules[name] = child
        inner = child
    inner._modules[last] = nn.ModuleList(blocks)
    return root


def _shallow_copy(module: Any) -> Any:
    """Copy a module, so that its children can be replaced without changing the original."""
    twin = copy.copy(module)
    twin.__dict__["_modules"] = dict(module._modules)
    # The hook of a device map is a method of the original module, and would run all its blocks.
    twin.__dict__.pop("forward", None)
    return twin

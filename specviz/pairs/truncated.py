"""Models that share another model's weights: its first layers alone, or all of them, watched."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from .pair import blocks_path

FINAL = -1
"""The states that the final norm gives, which the target's own head reads."""


def truncated_model(model: Any, layers: int) -> Any:
    """`model` with only its first `layers` blocks, its final norm and its head.

    The weights are shared. `model` itself does not change, so other threads may run it meanwhile.
    Raises `PairError` if the blocks cannot be found.
    """
    return _with_blocks(model, lambda blocks: blocks[:layers])


def watched_model(model: Any, layers: Sequence[int], see: Callable[[int, Tensor], None]) -> Any:
    """`model` that calls `see(n, states)` in every pass after its first n layers have run, for each
    n of `layers`, with their output [batch, tokens, width]; n may be `FINAL`.

    The weights are shared. `model` itself does not change, so that nothing is added to its passes.
    Raises `PairError` if the blocks cannot be found.
    """

    def watched(blocks: list[Any]) -> list[Any]:
        for n in layers:
            if n != FINAL:
                twin = copy.copy(blocks[n - 1])
                _watch(twin, see, n)
                blocks[n - 1] = twin
        return blocks

    root = _with_blocks(model, watched)
    if FINAL in layers:
        _watch(root.get_submodule(blocks_path(model).rpartition(".")[0]), see, FINAL)
    return root


def _watch(twin: Any, see: Callable[[int, Tensor], None], n: int) -> None:
    """Let a copy of a module call `see` with its output."""

    def hook(module: Any, inputs: Any, output: Any) -> None:
        see(n, output if isinstance(output, Tensor) else output[0])

    # The hooks of the original are kept, and it gets no new ones.
    twin._forward_hooks = OrderedDict(twin._forward_hooks)
    twin.register_forward_hook(hook)


def _with_blocks(model: Any, changed: Callable[[list[Any]], list[Any]]) -> Any:
    """A copy of `model` whose list of blocks is what `changed` makes of them."""
    *parents, last = blocks_path(model).split(".")
    root = inner = _shallow_copy(model)
    for name in parents:
        child = _shallow_copy(inner._modules[name])
        inner._modules[name] = child
        inner = child
    inner._modules[last] = nn.ModuleList(changed(list(inner._modules[last])))
    return root


def _shallow_copy(module: Any) -> Any:
    """A copy of a module whose children can be replaced without a change to the original."""
    twin = copy.copy(module)
    twin.__dict__["_modules"] = dict(module._modules)
    # The hook of a device map is a method of the original module, and would run all its blocks.
    twin.__dict__.pop("forward", None)
    return twin

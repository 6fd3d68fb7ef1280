"""Save and restore the running states of models whose layers keep one.

A layer of linear attention or of a state space model keeps no keys of single tokens, so that no
token can be removed from it. It can only be restored as it was before a pass. transformers keeps
these states in its cache: this module looks at the layers of that cache, and at no model's name.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import DynamicCache, cache_utils

from ..base.errors import ModelError, is_memory_error
from .model_facts import cache_argument, context_length, logit_width, text_config

# Of one round: a target makes one, and a draft one before each of its passes.
MAX_CHECKPOINTS = 8
TRIAL = 8  # tokens: half of them are read first, and then the others three times, in two ways
STATE_ELSEWHERE = "keep a running state outside of transformers' cache"
# The share of the largest logit by which two ways of reading the same tokens may differ.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
HALF_TOLERANCE = 0.05  # bf16 and fp16


@dataclass(frozen=True)
class RunningStates:
    """The way to read a model with running states.

    one_by_one: whether a pass reads one token, once the states hold any. transformers' passes over
    several tokens give other logits for some models: they begin from an empty state, or bound
    the time steps in another way.
    """

    one_by_one: bool


@dataclass(frozen=True)
class LayerState:
    """The saved state of a cache's layer: its running states, and the keys and values of a window.

    The running states are copies, since passes write to them. Keys and values are the layer's own
    tensors: passes replace them.
    """

    convolutions: dict[int, Tensor | None]
    recurrent: dict[int, Tensor | None]
    has_previous: dict[int, bool]
    window: tuple[Tensor | None, Tensor | None, int] | None


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of a cache with `length` tokens."""

    length: int
    layers: list[LayerState]


_by_model: WeakKeyDictionary[Any, RunningStates | None] = WeakKeyDictionary()


def running_states(model: Any) -> RunningStates | None:
    """Find out how to read a model with running states; None if it has none.

    A model with some is tried on a few tokens once. Raises `ModelError` if it keeps its past
    elsewhere than in known layers of transformers' cache.
    """
    if model not in _by_model:
        _by_model[model] = _examined(model)
    return _by_model[model]


def has_running_states(cache: Any) -> bool:
    """Whether a cache has layers for convolution states or recurrent states."""
    return any(_is_linear(layer) for layer in cache.layers)


def unknown_past(model: Any, cache: Any) -> str | None:
    """The reason why the model's past cannot be restored; None if it perhaps can.

    cache: for the model, before or after a pass.
    """
    for layer in cache.layers:
        if type(layer).__module__ != cache_utils.__name__:
            return f"use their own kind of cache ({type(layer).__name__})"
    keeps_state = getattr(type(model), "_is_stateful", False)
    if keeps_state and not has_running_states(cache):
        return STATE_ELSEWHERE
    return None


def state_bytes(cache: Any) -> int:
    """Bytes of a cache's running states after its last pass."""
    tensors = []
    for layer in cache.layers:
        if _is_linear(layer):
            tensors += [*layer.conv_states.values(), *layer.recurrent_states.values()]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def pass_reads_states(model: Any, cache: Any, ids: Tensor, begin: int) -> bool:
    """Whether a pass over `ids` [n], after the `begin` tokens of the cache, reads the recurrent
    states that it finds there: some models then start again.

    The graph of autograd shows it, so the model may be on torch's `meta` device.
    """
    leaves = []
    for layer in filter(_is_linear, cache.layers):
        for index, state in layer.recurrent_states.items():
            if state is not None:
                leaves.append(state.detach().requires_grad_())
                layer.recurrent_states[index] = leaves[-1] * 1  # passes write to it
    with torch.enable_grad():
        logits = _pass(model, cache, ids, begin)
    nodes = _nodes_below(logits.grad_fn)
    variables = {id(getattr(node, "variable", None)) for node in nodes}
    return all(id(leaf) in variables for leaf in leaves)


def _nodes_below(root: Any) -> set[Any]:
    """All nodes of autograd's graph that `root` was computed from, `root` among them."""
    nodes = set()
    unvisited = [root]
    while unvisited:
        node = unvisited.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            unvisited += [parent for parent, _ in node.next_functions]
    return nodes


def refusal_sentence(model: Any, reason: str) -> str:
    """The error sentence for a model that cannot race. reason: as `unknown_past` gives it."""
    return (
        f"models of type {text_config(model).model_type} {reason}, so rejected drafts cannot be "
        "rolled back: choose another model."
    )


def positions_from(model: Any, begin: int, count: int) -> dict[str, Tensor]:
    """The argument with the positions of a pass over `count` tokens, if the model takes one.

    Some models count from 0 in every pass without it.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return {}
    positions = torch.arange(begin, begin + count, device=model.device)
    return {"position_ids": positions.unsqueeze(0)}


def save(cache: Any, length: int) -> Checkpoint:
    """Save the cache with its `length` tokens."""
    return Checkpoint(length, [_saved(layer) for layer in cache.layers])


def put_back(cache: Any, checkpoint: Checkpoint) -> None:
    """Restore the cache. The checkpoint's tensors become the cache's own."""
    for layer, state in zip(cache.layers, checkpoint.layers, strict=True):
        if _is_linear(layer):
            layer.conv_states.update(state.convolutions)
            layer.recurrent_states.update(state.recurrent)
            layer.has_previous_state.update(state.has_previous)
        if state.window is not None:
            layer.keys, layer.values, layer.cumulative_length = state.window
        elif isinstance(layer, cache_utils.DynamicLayer) and layer.is_initialized:
            surplus = layer.get_seq_length() - checkpoint.length
            if surplus > 0:
                # The other half of a layer of two kinds would refuse it.
                crop = cache_utils.DynamicLayer.crop if _is_linear(layer) else type(layer).crop
                crop(layer, -surplus)


def _is_linear(layer: Any) -> bool:
    return isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin)


def _saved(layer: Any) -> LayerState:
    window = None
    if isinstance(layer, cache_utils.DynamicSlidingWindowLayer):
        window = layer.keys, layer.values, layer.cumulative_length
    if not _is_linear(layer):
        return LayerState({}, {}, {}, window)
    return LayerState(
        convolutions=_copied(layer.conv_states),
        recurrent=_copied(layer.recurrent_states),
        has_previous=dict(layer.has_previous_state),
        window=window,
    )


def _copied(states: dict[int, Tensor | None]) -> dict[int, Tensor | None]:
    copies: dict[int, Tensor | None] = {}
    for index, state in states.items():
        copies[index] = None if state is None else state.clone()
    return copies


@torch.inference_mode()
def _examined(model: Any) -> RunningStates | None:
    cache = DynamicCache(config=model.config)
    if reason := unknown_past(model, cache):
        raise ModelError(refusal_sentence(model, reason))
    if not has_running_states(cache):
        return None
    count = min(TRIAL, context_length(model) or TRIAL)
    half = count // 2
    ids = (torch.arange(count, device=model.device) * 7 + 1) % logit_width(model)
    try:
        _pass(model, cache, ids[:half], 0)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        if is_memory_error(error):
            raise
        reason = "do not use transformers' own cache"
        raise ModelError(refusal_sentence(model, reason)) from error
    if cache.is_croppable:
        return None  # convolutions alone, whose inputs can be kept
    if state_bytes(cache) == 0:
        raise ModelError(refusal_sentence(model, STATE_ELSEWHERE))
    unread = ids[half:]
    together = _read_and_put_back(model, cache, [unread], half)
    again = _read_and_put_back(model, cache, [unread], half)
    singly = _read_and_put_back(model, cache, unread.split(1), half)
    tolerance = TOLERANCE.get(model.dtype, HALF_TOLERANCE) * together.abs().max().clamp(min=1.0)
    if not (together - again).abs().max() <= tolerance:
        raise ModelError(refusal_sentence(model, STATE_ELSEWHERE))
    apart = (together - singly).abs().max()
    one_by_one = not bool(apart <= tolerance)
    if one_by_one:
        warnings.warn(
            f"for {text_config(model).model_type} models, transformers' passes over several "
            "tokens give other logits than passes over one token (they differ by up to "
            f"{apart:.2g}, and rounding explains {tolerance:.2g}), so each token is read in a "
            "pass of its own: drafts cannot make such a target faster.",
            stacklevel=4,
        )
    return RunningStates(one_by_one)


def _read_and_put_back(model: Any, cache: Any, pieces: Sequence[Tensor], begin: int) -> Tensor:
    """Read `pieces` one after another and return the logits [n, vocab] after each token. The cache
    is restored to its `begin` tokens."""
    checkpoint = save(cache, begin)
    logits = []
    for piece in pieces:
        logits.append(_pass(model, cache, piece, begin))
        begin += len(piece)
    put_back(cache, checkpoint)
    return torch.cat(logits)


def _pass(model: Any, cache: Any, ids: Tensor, begin: int) -> Tensor:
    """Append `ids` [n] to the cache; return the logits [n, vocab] after each of them."""
    options = positions_from(model, begin, len(ids)) | {cache_argument(model): cache}
    logits: Tensor = model(input_ids=ids.unsqueeze(0), use_cache=True, **options).logits[0]
    return logits.float()

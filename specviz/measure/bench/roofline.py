"""The floor of a pass: the least time that it can take at this machine's memory bandwidth.

A pass over one token reads every weight once and does little arithmetic with it, so its time is
bounded by memory bandwidth (Williams et al. 2009, "Roofline").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...core.clock import now
from ...core.engine_choice import make_engine, make_state_engine
from ...core.layers import first_layers
from ...core.model_facts import parameter_bytes, pass_bytes, text_config
from ...core.pair import Pair
from ...core.registry import drafter_kind
from ...core.states import EAGLE, make_head_engine
from ...files.metadata import configured_caches
from ...sides.early_exit.drafter import best_exit

REPEATS = 12
WARMUP = 2  # repeats that are not counted


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time of one pass of a model, for any number of tokens.

    seconds: bytes / bytes_per_second. bytes: of all weights that a pass reads, and of the keys and
    values of `cached` tokens. bytes_per_second: the bandwidth, measured by summing a buffer of that
    size repeatedly; it is that of the processor's cache if the model fits into it.
    """

    seconds: float
    bytes: int
    cached: int
    bytes_per_second: float


def floors(pair: Pair, cached: int, drafter: str = "model") -> dict[str, Floor]:
    """Measure the floor of a pass of the "target" after `cached` tokens and, if the drafter makes
    passes, of a step of the "draft"."""
    engine = make_engine(pair.target, pair.vocab).name
    floors_by_role = {"target": floor(pair.target, cached, engine, pair.device)}
    needs = drafter_kind(drafter).needs
    if needs == "draft" and pair.draft is not None:
        draft_engine = make_engine(pair.draft, pair.vocab).name
        floors_by_role["draft"] = floor(pair.draft, cached, draft_engine, pair.device)
    elif needs == "layers":
        early_exit = best_exit(pair.target, pair.vocab)
        shallow = first_layers(pair.target, early_exit.layers)
        floors_by_role["draft"] = floor(shallow, cached, engine, pair.device)
    elif needs == "head" and pair.head is not None:
        floors_by_role["draft"] = _head_floor(pair, pair.head, cached)
    return floors_by_role


def _head_floor(pair: Pair, head: Any, cached: int) -> Floor:
    """Measure the floor of a step of a draft head after `cached` tokens."""
    size = sum(map(parameter_bytes, head.step_parts))
    if head.kind == EAGLE:  # other heads read varying parts of the cache: they count as 0
        target_engine = make_state_engine(pair.target, pair.vocab)
        engine = make_head_engine(head, pair.vocab, target_engine)
        weight_dtype = next(head.parameters()).dtype
        number_bytes = _cache_width(engine.name, weight_dtype)
        size += cached * int(head.config.sizes.cached * number_bytes)
    return _measured(size, cached, pair.device)


def cache_bytes(model: Any, engine: str) -> int:
    """Count the bytes of keys and values that one token adds to the caches. engine: its name."""
    layers = configured_caches(text_config(model)).layers
    numbers = sum(layer.numbers for layer in layers)
    return int(numbers * _cache_width(engine, model.dtype))


def _cache_width(engine: str, weight_dtype: torch.dtype) -> int:
    """Bytes of a number in the cache of an engine. "compiled" caches fp32, whatever the weights."""
    if engine == "compiled":
        return 4
    return weight_dtype.itemsize


def floor(model: Any, cached: int, engine: str, device: torch.device) -> Floor:
    """Measure the floor of a pass of this model after `cached` tokens. engine: its name."""
    size = pass_bytes(model) + cached * cache_bytes(model, engine)
    return _measured(size, cached, device)


@torch.inference_mode()
def _measured(size: int, cached: int, device: torch.device) -> Floor:
    buffer = torch.ones(max(1, size // 4), device=device)
    seconds = []
    for _ in range(REPEATS):
        start = now(device)
        buffer.sum()
        seconds.append(now(device) - start)
    rate = size / min(seconds[WARMUP:])
    return Floor(seconds=size / rate, bytes=size, cached=cached, bytes_per_second=rate)

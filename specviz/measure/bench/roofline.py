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
from ...core.model_facts import parameter_bytes, pass_bytes, text_config
from ...core.pair import Pair
from ...core.registry import drafter_kind
from ...core.states import EAGLE, make_head_engine
from ...core.truncated import truncated_model
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
        first_layers = truncated_model(pair.target, best_exit(pair.target, pair.vocab).layers)
        floors_by_role["draft"] = floor(first_layers, cached, engine, pair.device)
    elif needs == "head" and pair.head is not None:
        weights = sum(map(parameter_bytes, pair.head.step_parts))
        size = weights + cached * _head_cache_bytes(pair)
        floors_by_role["draft"] = _measured(size, cached, pair.device)
    return floors_by_role


def _head_cache_bytes(pair: Pair) -> int:
    """As `cache_bytes`; 0 for other heads than EAGLE, whose reads of the cache vary."""
    head = pair.head
    if head is None or head.kind != EAGLE:
        return 0
    engine = make_head_engine(head, pair.vocab, make_state_engine(pair.target, pair.vocab))
    width = 4 if engine.name == "compiled" else next(head.parameters()).dtype.itemsize
    layer = head.config.layer
    return 2 * int(layer.num_key_value_heads * layer.head_dim * width)  # keys and values


def cache_bytes(model: Any, engine: str) -> int:
    """Count the bytes of keys and values that one token adds to the caches.

    engine: its name. "compiled" caches fp32, whatever the weights.
    """
    width = 4 if engine == "compiled" else model.dtype.itemsize
    layers = configured_caches(text_config(model)).layers
    return int(sum(layer.numbers for layer in layers) * width)


def floor(model: Any, cached: int, engine: str, device: torch.device) -> Floor:
    """Measure the floor of a pass of this model after `cached` tokens. engine: its name."""
    return _measured(pass_bytes(model) + cached * cache_bytes(model, engine), cached, device)


@torch.inference_mode()
def _measured(size: int, cached: int, device: torch.device) -> Floor:
    buffer = torch.ones(max(1, size // 4), device=device)
    seconds = []
    for _ in range(REPEATS):
        start = now(device)
        buffer.sum()
        seconds.append(now(device) - start)
    rate = size / min(seconds[WARMUP:])
    return Floor(size / rate, size, cached, rate)

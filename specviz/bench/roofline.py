"""The least time that passes could take: what they read over how fast this machine reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..engines.base import now
from ..models.metadata import configured_caches
from ..models.pair import Pair, text_config
from ..models.sizes import pass_bytes

REPEATS = 12
WARM = 2  # of them, not counted


@dataclass(frozen=True, slots=True)
class Floor:
    """The least seconds of one pass of a model, however few tokens it takes.

    bytes: of weights, an untied embedding table left out, and of `cached` tokens' keys and
    values. bytes_per_second: of a sum over a buffer of that size, read again and again as weights
    are: a model that fits into the processor's cache is held to that cache's bandwidth, any other
    to the memory's.
    """

    bytes: int
    cached: int
    bytes_per_second: float

    @property
    def seconds(self) -> float:
        return self.bytes / self.bytes_per_second


def floors(pair: Pair, cached: int) -> dict[str, Floor]:
    """The floors of a "target" pass and of a "draft" step over so many cached tokens."""
    models = {"target": pair.target, "draft": pair.draft}
    return {
        role: _floor(pass_bytes(model) + cached * cache_bytes(model), cached, pair.device)
        for role, model in models.items()
        if model is not None
    }


def cache_bytes(model: Any) -> int:
    """Bytes of keys and values that one token adds to the caches."""
    layers = configured_caches(text_config(model)).layers
    return int(sum(layer.numbers for layer in layers) * model.dtype.itemsize)


@torch.inference_mode()
def _floor(size: int, cached: int, device: torch.device) -> Floor:
    buffer = torch.ones(max(1, size // 4), device=device)
    seconds = []
    for _ in range(REPEATS):
        start = now(device)
        buffer.sum()
        seconds.append(now(device) - start)
    return Floor(size, cached, size / min(seconds[WARM:]))

"""transformers' static cache, written where a pass says, and passes over it whose shapes are fixed.

A place of the cache is an index. Writing to a place replaces what was there, and what lies past
a token is masked, so a rollback only lowers a number.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache, StaticCache
from transformers.cache_utils import StaticLayer

from ...pairs.pair import context_length
from ...pairs.truncated import truncated_model
from ...variables import COMPILE
from .programs import Program

SMALLEST = 256  # places of the shortest buffers


def capacity_for(length: int) -> int:
    """How many places the buffers for `length` tokens have: few sizes, so that runs share them."""
    return max(SMALLEST, 1 << (length - 1).bit_length())


class Written:
    """The places that a pass writes, int64 [n]; all layers of a cache read them here."""

    places: Tensor


class PlacedLayer(StaticLayer):
    """A layer of transformers' static cache that writes to given places.

    Its own count would have to be set back in every layer after each round, and takes three small
    kernels more per layer and pass.
    """

    keys: Tensor  # [1, heads, capacity, head_dim], as are the values
    values: Tensor

    def __init__(self, written: Written, capacity: int) -> None:
        super().__init__(max_cache_len=capacity)
        self._written = written

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # transformers' own marks the buffers for its compiler, whose import takes seconds.
        self.keys, self.values = (
            states.new_zeros(*states.shape[:2], self.max_cache_len, states.shape[-1])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys.index_copy_(2, self._written.places, key_states)
        self.values.index_copy_(2, self._written.places, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> Any:
        return self._written.places[0]


class InPlaceCache:
    """A model's cache, the passes over it, and the programs that were captured over its buffers.

    It does not keep the model alive.
    """

    def __init__(self, model: Any, vocab: int, capacity: int) -> None:
        self.capacity = capacity
        self.programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._model, self._vocab = weakref.ref(model), vocab
        self._shallow: dict[int, Any] = {}  # layers: the model cut off there
        self._written = Written()
        count = len(StaticCache(config=model.config, max_cache_len=1).layers)
        self.layers = [PlacedLayer(self._written, capacity) for _ in range(count)]
        self._cache = Cache(layers=list(self.layers))
        if COMPILE.read():
            # Else there would be one compiled form per layer, for the sake of its index.
            self._cache.update = torch.compiler.disable(self._cache.update)  # type: ignore[method-assign]
        self._last_place = (context_length(model) or sys.maxsize) - 1
        self._additive = model.config._attn_implementation == "eager"
        self._trims = "logits_to_keep" in inspect.signature(model.forward).parameters

    def logits(self, ids: Tensor, places: Tensor, keep: int, layers: int | None = None) -> Tensor:
        """Write int64 `ids` [n] to `places` [n]; fp32 logits of the last `keep`: [keep, vocab].

        Each token sees the places up to its own. layers: how many first layers run; None is all.
        """
        model = self._cut_off(layers)
        self._written.places = places
        seen = torch.arange(self.capacity, device=ids.device) <= places.unsqueeze(-1)
        mask = seen  # [n, capacity]
        if self._additive:
            lowest = torch.finfo(model.dtype).min
            mask = torch.where(seen, 0.0, lowest).to(model.dtype)
        output = model(
            input_ids=ids.unsqueeze(0),
            attention_mask=mask[None, None],
            # What a capture runs over may lie past the table of learned positions.
            position_ids=places.clamp(max=self._last_place).unsqueeze(0),
            past_key_values=self._cache,
            use_cache=True,
            **({"logits_to_keep": keep} if self._trims else {}),
        )
        rows: Tensor = output.logits[0, -keep:, : self._vocab].float()
        return rows

    def _cut_off(self, layers: int | None) -> Any:
        model = self._model()
        assert model is not None, "the engine that asks for a pass holds the model"
        if layers is None:
            return model
        if layers not in self._shallow:
            self._shallow[layers] = truncated_model(model, layers)
        return self._shallow[layers]

    @torch.inference_mode()
    def grow(self, capacity: int) -> None:
        """Longer buffers with the same content."""
        self.programs.clear()  # which know their buffers by address
        more, self.capacity = capacity - self.capacity, capacity
        for layer in self.layers:
            layer.max_cache_len = capacity
            if layer.is_initialized:
                layer.keys, layer.values = (
                    pad(states, (0, 0, 0, more)) for states in (layer.keys, layer.values)
                )

    @torch.inference_mode()
    def clear(self) -> None:
        """Zeros everywhere: masked places have weight 0, but 0 times NaN is NaN."""
        self._cache.reset()

"""A cache that stays in place, and passes over it whose shapes are fixed.

A place of the cache is an index. Writing to a place replaces what was there, and what lies past
the length is masked, so a rollback only reduces the length. Buffers are as long as a run needs;
attention reads their first `window` places, a power of two, so that a short text does not pay
for a long buffer.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, StaticCache
from transformers.cache_utils import StaticLayer

from ...pairs.pair import context_length
from ...pairs.truncated import truncated_model
from .support import compile_wanted

SMALLEST = 256  # places: the least that attention reads


def window_for(length: int) -> int:
    """How many places attention reads for `length` tokens."""
    return max(SMALLEST, 1 << (length - 1).bit_length())


class PassPositions:
    """The places that a pass writes, and how many it reads; shared by all layers of a cache."""

    def __init__(self) -> None:
        self.places = torch.zeros(1, dtype=torch.long)  # int64 [n]
        self.window = SMALLEST


class InPlaceLayer(StaticLayer):
    """A layer's keys and values, written where its `PassPositions` say instead of after a count.

    The count of transformers' own layer costs three small kernels more per layer and pass.
    """

    keys: Tensor  # [1, heads, capacity, head_dim], as are the values
    values: Tensor

    def __init__(self, positions: PassPositions, capacity: int) -> None:
        super().__init__(max_cache_len=capacity)
        self._positions = positions

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.keys, self.values = (self._longer(x) for x in (key_states, value_states))
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
        places, window = self._positions.places, self._positions.window
        self.keys.index_copy_(2, places, key_states)
        self.values.index_copy_(2, places, value_states)
        return self.keys[:, :, :window], self.values[:, :, :window]

    def get_seq_length(self) -> Any:
        return self._positions.places[0]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._positions.window, 0

    def grow(self, capacity: int, length: int) -> None:
        """Longer buffers with the first `length` places of the present ones."""
        self.max_cache_len = capacity
        for name in ("keys", "values") if self.is_initialized else ():
            old = getattr(self, name)
            setattr(self, name, self._longer(old))
            getattr(self, name)[:, :, :length] = old[:, :, :length]

    def clear(self) -> None:
        """Zeros everywhere: masked places have weight 0, but 0 times NaN is NaN."""
        for buffer in (self.keys, self.values) if self.is_initialized else ():
            buffer.zero_()

    def _longer(self, states: Tensor) -> Tensor:
        # Not an inference tensor, so that any thread may write to it.
        with torch.inference_mode(False):
            batch, heads, _, dim = states.shape
            return states.new_zeros((batch, heads, self.max_cache_len, dim))


class InPlaceCache:
    """A model's cache and the passes over it. It does not keep the model alive."""

    def __init__(self, model: Any, vocab: int, capacity: int) -> None:
        self.capacity = capacity
        self._model, self._vocab = weakref.ref(model), vocab
        self._shallow: dict[int, Any] = {}  # layers: the model cut off there
        self._positions = PassPositions()
        count = len(StaticCache(config=model.config, max_cache_len=1).layers)
        self._layers = [InPlaceLayer(self._positions, capacity) for _ in range(count)]
        self._cache = Cache(layers=list(self._layers))
        if compile_wanted():
            # Else there would be one compiled form per layer, for the sake of its index.
            self._cache.update = torch.compiler.disable(self._cache.update)  # type: ignore[method-assign]
        self._last_place = (context_length(model) or capacity) - 1
        self._additive = model.config._attn_implementation == "eager"
        self._trims = "logits_to_keep" in inspect.signature(model.forward).parameters

    def logits(
        self, ids: Tensor, places: Tensor, window: int, keep: int, layers: int | None = None
    ) -> Tensor:
        """Write int64 `ids` [n] to `places` [n]; fp32 logits of the last `keep`: [keep, vocab].

        Each token sees the places up to its own. window: number of places read, `places` all
        below it. layers: how many first layers run; None is all.
        """
        model = self._cut_off(layers)
        self._positions.places, self._positions.window = places, window
        seen = torch.arange(window, device=ids.device) <= places.unsqueeze(-1)  # [n, window]
        mask = seen
        if self._additive:
            lowest = torch.finfo(model.dtype).min
            mask = torch.where(seen, 0.0, lowest).to(model.dtype)
        output = model(
            input_ids=ids.unsqueeze(0),
            attention_mask=mask[None, None],
            # Drafts that only fill a fixed width may lie past the table of learned positions.
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

    def grow(self, capacity: int, length: int) -> None:
        """Longer buffers with the first `length` places of the present ones."""
        self.capacity = capacity
        for layer in self._layers:
            layer.grow(capacity, length)

    def clear(self) -> None:
        """As new."""
        for layer in self._layers:
            layer.clear()

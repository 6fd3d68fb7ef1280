"""Run any model of transformers unchanged, with transformers' own cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ..base.errors import ModelError, is_memory_error
from .engine import BaseEngine
from .layers import first_layers, watched_model
from .model_facts import cache_argument, rotation_borders, text_config

NO_MEMORY = "the device ran out of memory: use a shorter prompt or a smaller pair."


@contextmanager
def memory_limited() -> Iterator[None]:
    """Context manager: turn an out-of-memory error of any device into a `ModelError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if is_memory_error(error):
            raise ModelError(NO_MEMORY) from error
        raise


class EagerEngine(BaseEngine):
    """Any causal language model of transformers, run unchanged.

    The logits after n tokens are those that the model gives in one pass over these n tokens. Where
    a model rotates the tokens of a longer text by other factors (`rotation_borders`), a pass does
    not return rows from both sides of the border, and the cache is read again when a text crosses
    it, as transformers' own `generate` does for Phi-3.
    """

    name = "eager"

    def __init__(self, model: Any, vocab: int) -> None:
        self.device = torch.device(model.device)
        self.length = 0
        self._model = model
        self._vocab = vocab
        self._cache: Any = _empty_cache(model)
        self._borders = rotation_borders(model)
        # Only where there are borders: the ids in the cache, and how many borders their text had
        # crossed when they were read.
        self._ids = torch.empty(0, dtype=torch.int64, device=self.device)
        self._crossed = 0
        self._checked = False
        self._shallow_models: dict[int, Any] = {}  # number of layers -> the model of these
        # Tokens that only the first layers have cached, and the number of these layers.
        self._shallow_tokens = 0
        self._shallow_layers = 0
        self._cache_argument = cache_argument(model)
        self._trims_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._states: dict[int, Tensor] = {}  # number of layers -> their states in the last pass

    def keep_states(self, layers: Sequence[int]) -> None:
        self._states = dict.fromkeys(layers, torch.empty(0))
        self._model = watched_model(self._model, layers, self._states.__setitem__)

    @property
    def states(self) -> Tensor:
        return torch.cat([states[0].to(self.device) for states in self._states.values()], -1)

    def shared_keys(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Keys and values by kind of attention, from the last layer of that kind that keeps any,
        [1, kv_heads, tokens, head_dim] each; a sliding window has only its own tokens. Valid until
        the next pass."""
        shared = {}
        kinds = text_config(self._model).layer_types
        # With shared caches the last layers have none, and in some versions no entry either.
        for kind, layer in zip(kinds, self._cache.layers, strict=False):
            if getattr(layer, "keys", None) is not None:
                shared[kind] = (layer.keys, layer.values)
        return shared

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        with memory_limited():
            logits = self._logits(ids.to(self.device), keep, layers)
        if temperature != 1.0:
            return logits.float() / temperature
        # A copy: the caller may write to it, and the model may return its own buffer.
        return logits.to(torch.float32, copy=True)

    def _logits(self, ids: Tensor, keep: int, layers: int | None) -> Tensor:
        """Append `ids` to the cache; return the logits after the last `keep` of them."""
        if not self._borders:
            return self._pass(ids, keep, layers)
        end = self.length + len(ids)
        first = end - keep + 1  # tokens of the text for which the first row is kept
        stops = [border for border in self._borders if first <= border < end]
        logits = []
        states: list[dict[int, Tensor]] = []
        for stop in [*stops, end]:
            count = stop - self.length
            rows = min(count, stop - first + 1)
            logits.append(self._pass_on_side(ids[:count], rows, layers))
            states.append(dict(self._states))
            ids = ids[count:]
        for n in self._states:
            self._states[n] = torch.cat([piece[n] for piece in states], 1)
        return torch.cat(logits)

    def _pass_on_side(self, ids: Tensor, keep: int, layers: int | None) -> Tensor:
        """Run a pass over `ids` whose kept rows are on one side of every border.

        If the cached tokens were read on another side, read them again first.
        """
        self._ids = torch.cat([self._ids[: self.length], ids])
        crossed = sum(border < len(self._ids) for border in self._borders)
        if crossed != self._crossed and self.length:
            whole = self.length - self._shallow_tokens  # tokens that all layers have read
            self._clear()
            # The last token decides the pass's rotation factors, so it is read with the rest.
            self._pass(self._ids, 1, None)
            self.rollback(whole)
            ids = self._ids[whole:]
        self._crossed = crossed
        return self._pass(ids, keep, layers)

    def _clear(self) -> None:
        """Replace the cache by an empty one."""
        self._cache = _empty_cache(self._model)
        self.length = 0
        self._shallow_tokens = 0

    def _pass(self, ids: Tensor, keep: int, layers: int | None) -> Tensor:
        logits = self._call(ids, keep, layers)
        if layers is not None:
            self._shallow_layers = layers
            self._shallow_tokens += len(ids)
        self.length += len(ids)
        return logits

    def _call(self, ids: Tensor, keep: int, layers: int | None, **options: Any) -> Tensor:
        """Call the model, or its first `layers`: `_pass` without its bookkeeping of the cache."""
        model = self._model if layers is None else self._shallow_model(layers)
        options[self._cache_argument] = self._cache
        if self._trims_logits:
            options["logits_to_keep"] = self._logits_to_keep(len(ids), keep)
        output = model(input_ids=ids.unsqueeze(0), use_cache=True, **options)
        logits: Tensor = output.logits[0, -keep:, : self._vocab]
        return logits

    def _logits_to_keep(self, tokens: int, keep: int) -> int | Tensor:
        # If it gets a number, a model whose last layers share keys skips the other tokens there,
        # and with them their states.
        if not self._states:
            return keep
        if not getattr(text_config(self._model), "num_kv_shared_layers", 0):
            return keep
        return torch.arange(tokens - keep, tokens, device=self.device)

    def rollback(self, length: int) -> None:
        if not self._checked:
            check_rollback(self._model, self._cache, self.length)
            self._checked = True
        if self._shallow_tokens:
            for layer in self._cache.layers[: self._shallow_layers]:
                layer.crop(-self._shallow_tokens)
            self.length -= self._shallow_tokens
            self._shallow_tokens = 0
            if length == self.length:
                return
        # A crop by 0 still trims sliding windows, so it is not skipped.
        self._cache.crop(length - self.length)
        self.length = length

    def _shallow_model(self, layers: int) -> Any:
        if layers not in self._shallow_models:
            self._shallow_models[layers] = first_layers(self._model, layers)
        return self._shallow_models[layers]


def _empty_cache(model: Any) -> Any:
    """Make a cache for one text that supports rollback."""
    cache = DynamicCache(config=model.config)
    # Sliding-window layers otherwise forget what a rollback needs.
    cache.activate_past_recording()
    return cache


def check_rollback(model: Any, cache: Any, length: int) -> None:
    """Raise `ModelError` unless tokens can be removed from a cache that holds `length` of them."""
    if not cache.is_croppable or cache.get_seq_length() != length:
        name = text_config(model).model_type
        raise ModelError(
            f"models of type {name} keep a running state that cannot be rolled back, so "
            "rejected drafts could not be undone: choose an attention-only model."
        )

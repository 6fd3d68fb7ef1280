"""Any model of transformers as it is, over transformers' own cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ..errors import ModelError, is_memory_error
from .engine import OwnEngine
from .model_facts import text_config
from .truncated import truncated_model, watched_model

NO_MEMORY = "the device ran out of memory: use a shorter prompt or a smaller pair."


@contextmanager
def memory_limited() -> Iterator[None]:
    """Within it, an error that means that memory ran out, on any device, becomes a `ModelError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if is_memory_error(error):
            raise ModelError(NO_MEMORY) from error
        raise


class EagerEngine(OwnEngine):
    """Any causal language model of transformers, run as it is."""

    form = "eager"

    def __init__(self, model: Any, vocab: int) -> None:
        self.device = torch.device(model.device)
        self.length = 0
        self._model = model
        self._vocab = vocab
        self._cache: Any = DynamicCache(config=model.config)
        # Sliding-window layers otherwise forget what a rollback needs.
        self._cache.activate_past_recording()
        self._checked = False
        self._shallow: dict[int, Any] = {}  # layers: the model cut off there
        self._tentative = (0, 0)  # layers, and tokens that only their caches hold
        parameters = inspect.signature(model.forward).parameters
        self._trims_logits = "logits_to_keep" in parameters
        self._kept: dict[int, Tensor] = {}  # by number of layers: their states in the last pass

    def keep_states(self, layers: Sequence[int]) -> None:
        self._kept = dict.fromkeys(layers, torch.empty(0))
        self._model = watched_model(self._model, layers, self._kept.__setitem__)

    @property
    def states(self) -> Tensor:
        return torch.cat([kept[0].to(self.device) for kept in self._kept.values()], -1)

    def shared_keys(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By kind of attention, the keys and values of the last layer of that kind that keeps any,
        [1, kv_heads, tokens, head_dim] each; a sliding window has only its own tokens. Valid until
        the next pass."""
        kinds = text_config(self._model).layer_types
        # With shared caches the last layers have none, and in some versions no entry either.
        kept = zip(kinds, self._cache.layers, strict=False)
        found = ((kind, getattr(one, "keys", None), one) for kind, one in kept)
        return {kind: (keys, one.values) for kind, keys, one in found if keys is not None}

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        model = self._model if layers is None else self._cut_off(layers, ids.shape[0])
        trimmed = self._trims_logits
        options = {"logits_to_keep": self._kept_logits(len(ids), keep)} if trimmed else {}
        with memory_limited():
            output = model(
                input_ids=ids.to(self.device).unsqueeze(0),
                past_key_values=self._cache,
                use_cache=True,
                **options,
            )
        self.length += ids.shape[0]
        logits: Tensor = output.logits[0, -keep:, : self._vocab]
        if temperature != 1.0:
            return logits.float() / temperature
        # A copy: the caller may write to it, and the model may return a buffer of its own.
        return logits.to(torch.float32, copy=True)

    def _kept_logits(self, tokens: int, keep: int) -> int | Tensor:
        # If it gets a number, a model whose last layers share keys skips the other tokens there,
        # and with them their states.
        shared = getattr(text_config(self._model), "num_kv_shared_layers", 0)
        if self._kept and shared:
            return torch.arange(tokens - keep, tokens, device=self.device)
        return keep

    def rollback(self, length: int) -> None:
        if not self._checked:
            check_rollback(self._model, self._cache, self.length)
            self._checked = True
        layers, tokens = self._tentative
        if tokens:
            for layer in self._cache.layers[:layers]:
                layer.crop(-tokens)
            self._tentative, self.length = (0, 0), self.length - tokens
            if length == self.length:
                return
        # A crop by 0 still trims sliding windows, so it is not skipped.
        self._cache.crop(length - self.length)
        self.length = length

    def _cut_off(self, layers: int, tokens: int) -> Any:
        """The model's first `layers`, which are about to be fed `tokens` tokens."""
        if layers not in self._shallow:
            self._shallow[layers] = truncated_model(self._model, layers)
        self._tentative = layers, self._tentative[1] + tokens
        return self._shallow[layers]


def check_rollback(model: Any, cache: Any, length: int) -> None:
    """Raise `ModelError` unless tokens can be removed from a cache that holds `length` of them."""
    if not cache.is_croppable or cache.get_seq_length() != length:
        name = text_config(model).model_type
        raise ModelError(
            f"models of type {name} keep a running state that cannot be rolled back, so "
            "rejected drafts could not be undone: choose an attention-only model."
        )

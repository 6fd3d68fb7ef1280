"""Passes over several texts at once, to measure what a batch costs. The lanes decode one text."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ...core.eager import check_rollback
from ...errors import ModelError, ran_out_of_memory


class BatchedPasses:
    """Transformers' own modules of a model, after texts of one length.

    ids: int64 [rows, length], with which the cache is filled. Raises `ModelError` if the cache does
    not fit into memory, or cannot be rolled back.
    """

    def __init__(self, model: Any, ids: Tensor) -> None:
        self._model = model
        self._cache: Any = DynamicCache(config=model.config)
        self._cache.activate_past_recording()
        trims = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._run(ids, {"logits_to_keep": 1} if trims else {})
        check_rollback(model, self._cache, ids.shape[1])

    def forward(self, ids: Tensor) -> Tensor:
        """Append int64 `ids` [rows, width] to every text; returns the logits [rows, width, vocab]
        in the model's dtype."""
        logits: Tensor = self._run(ids, {}).logits
        return logits

    def rollback(self, width: int) -> None:
        """Remove the last `width` tokens of every text."""
        self._cache.crop(-width)

    @torch.inference_mode()
    def _run(self, ids: Tensor, options: dict[str, int]) -> Any:
        try:
            return self._model(
                input_ids=ids, past_key_values=self._cache, use_cache=True, **options
            )
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            raise ModelError(
                f"{len(ids)} texts of {ids.shape[1]} tokens do not fit into the memory of this "
                "device: measure smaller batches."
            ) from error

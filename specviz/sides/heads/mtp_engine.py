"""The multi-token prediction layers of a target as an engine: transformers' modules, our cache.

Layer d (counted from 0) reads at place i the state that layer d - 1 gave there, or the target's
own of token i, and token i + d + 1; it predicts token i + d + 2. So each draft of a chain comes
from the next layer, at the same place. Once all layers have drafted, the last one goes on with its
own output, one place further for each draft.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import MtpCache

from ...core.eager import memory_limited
from ...core.states import StateReader
from ...pairs.heads.mtp import MtpHead


class MtpEngine(StateReader):
    """The layers, and for each the places that its cache holds.

    What a layer read at the last places rests on drafts, so after a verdict every layer reads these
    few places again, with the tokens that were kept.
    """

    def __init__(self, head: MtpHead, vocab: int) -> None:
        super().__init__(head.device, vocab)
        self._model, self._layers = head.model, head.count
        self._cache: Any = MtpCache(config=head.model.config)
        self._cache.activate_past_recording()
        none = torch.empty(0, head.width, device=head.device, dtype=head.dtype)
        self._unread = self._output = none
        self._ids = torch.empty(0, dtype=torch.long, device=head.device)  # tokens read, from 1 on
        # By layer: what it has to read from the place on at which its cache ends after a verdict.
        self._waiting = [none] * self._layers
        self._begin = [0] * self._layers
        self._step = 0  # of the chain

    @property
    def length(self) -> int:
        return len(self._ids) + 1

    @torch.inference_mode()
    def prefill(self, ids: Tensor, states: Tensor) -> None:
        super().prefill(ids, states)
        for layer in range(1, self._layers):
            sure = max(0, len(self._ids) - layer)
            known, self._waiting[layer] = self._waiting[layer].tensor_split([sure])
            self._begin[layer] = len(known)
            if len(known):
                self._pass_on(layer, self._read(layer, known))

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        self._ids = torch.cat([self._ids, ids.to(self.device)])
        with memory_limited():
            outputs = self._chained()
            self._output = outputs[-1:]
            logits: Tensor = self._model._project_to_logits(outputs[None, -keep:])
        return logits[0, :, : self._vocab].float() / temperature

    def rollback(self, length: int) -> None:
        known = length - 1  # tokens from 1 on that stay, so layer d is sure of known - d places
        for layer, cached in enumerate(self._cache.layers):
            sure = min(max(0, known - layer), cached.get_seq_length())
            if cached.is_initialized:
                cached.crop(sure - cached.get_seq_length())  # by 0, too: it trims windows
            given = max(0, known - layer + 1) if layer else sure
            begin = self._begin[layer]
            self._waiting[layer] = self._waiting[layer][sure - begin : given - begin]
            self._begin[layer] = sure
        self._ids = self._ids[:known]

    def _chained(self) -> Tensor:
        """The outputs [n, width] of the pass that reads the tokens which `_ids` has just got."""
        if len(self._unread):
            self._step = 0
            states, self._unread = self._unread, self._unread[:0]
        else:
            self._step += 1
            past_all = self._step >= self._layers
            states = self._output if past_all else self._waiting[self._step]
        layer = min(self._step, self._layers - 1)
        outputs = self._read(layer, states)
        if layer == self._step:
            self._pass_on(layer, outputs)
        return outputs

    def _pass_on(self, layer: int, outputs: Tensor) -> None:
        if layer + 1 < self._layers:
            self._waiting[layer + 1] = torch.cat([self._waiting[layer + 1], outputs])

    def _read(self, layer: int, states: Tensor) -> Tensor:
        begin, n = self._cache.layers[layer].get_seq_length(), len(states)
        places = torch.arange(begin + layer, begin + layer + n, device=self.device)
        outputs: Tensor = self._model.forward_layer(
            layer,
            states[None],
            position_ids=places[None] + 1,
            mtp_cache=self._cache,
            input_ids=self._ids[places][None],
        )
        return outputs[0]

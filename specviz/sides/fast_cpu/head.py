"""A head on the target over compiled passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.states import StateReader
from . import forward as f
from .engine import PassPlan, Places, addresses_of, layer_addresses, sizes_of
from .head_pass import FUSE, HEAD_PLAN, run_fuse, run_head, run_logits


class CompiledHeadEngine(StateReader):
    """A head on a processor; see `support.compiled_head`."""

    form = "compiled"

    def __init__(self, head: Any, vocab: int) -> None:
        super().__init__(head.device, vocab)
        config, rotary = head.config.layer, head.rotary
        self._sizes = sizes_of(
            config, head.dtype, config.head_dim, head.config.draft_vocab, depth=1
        )
        self._layers = np.array([layer_addresses(head.midlayer)], np.int64)
        self._plan = np.zeros(HEAD_PLAN, np.int64)
        self._plan[: len(self._sizes)] = self._sizes
        self._plan[f.LAYERS] = self._layers.ctypes.data
        self._plan[f.FREQUENCIES] = rotary.inv_freq.data_ptr()
        self._plan[f.EMBEDDING] = head.embedding.data_ptr()
        self._plan[f.FINAL_NORM : f.HEAD + 1] = addresses_of([head.norm, head.lm_head])
        own = [head.fc, head.input_norm, head.midlayer.hidden_norm]
        self._plan[FUSE:] = [*addresses_of(own), head.config.norm_before_residual]
        numbers = config.rms_norm_eps, rotary.attention_scaling, config.head_dim**-0.5, 1.0
        self._numbers = np.array(numbers, np.float32)
        self._own_targets = torch.where(head.targets < vocab, head.targets, -1).numpy()
        self._read = 0  # places
        self._unread = torch.empty(0, head.fc.in_features)
        self._output = torch.empty(0, head.fc.out_features)
        self._places = Places(self._sizes)

    @property
    def length(self) -> int:
        return self._read + 1

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        places, n = ids.numpy(), len(ids)
        self._places.reserve(self._read + n, self._read)
        held = PassPlan(self._sizes, self._plan, self._numbers, n)
        plan, numbers = held.entries, held.numbers
        self._places.enter(plan)
        plan[f.START], plan[f.IDS] = self._read, places.ctypes.data
        numbers[f.LOGIT_FACTOR] = 1 / temperature
        hidden = self._output.numpy()
        if len(self._unread):
            hidden = np.empty((n, self._sizes.width), np.float32)
            run_fuse(plan, numbers, self._unread.numpy(), hidden)
            self._unread = self._unread[:0]
        out = np.empty((n, self._sizes.width), np.float32)
        run_head(plan, numbers, hidden, out)
        self._read += n
        self._output = torch.from_numpy(out[-1:])
        logits = np.full((keep, self._vocab), -np.inf, np.float32)
        run_logits(plan, numbers, out[-keep:], self._own_targets, logits)
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self._read = length - 1

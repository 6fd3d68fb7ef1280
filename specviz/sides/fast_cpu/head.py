"""A head on the target over compiled passes: passes of one layer, which reads an embedding and a
state side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.states import StateReader
from . import forward as f
from .crew import crew, lead
from .engine import PassPlan, Places, addresses_of, layer_addresses, sizes_of, threads_for


class CompiledHeadEngine(StateReader):
    """A head on a processor; see `support.compiled_head`."""

    form = "compiled"

    def __init__(self, head: Any, vocab: int) -> None:
        super().__init__(head.device, vocab)
        config, rotary = head.config.layer, head.rotary
        shape = config.head_dim, head.config.draft_vocab, 1, threads_for(head)
        self._sizes = sizes_of(config, head.dtype, *shape)
        self._layers = np.array([layer_addresses(head.midlayer)], np.int64)
        self._plan = np.zeros(f.PLAN, np.int64)
        self._plan[: len(self._sizes)] = self._sizes
        self._plan[f.LAYERS] = self._layers.ctypes.data
        self._plan[f.FREQUENCIES] = rotary.inv_freq.data_ptr()
        self._plan[f.EMBEDDING] = head.embedding.data_ptr()
        self._plan[f.FINAL_NORM : f.HEAD + 1] = addresses_of([head.norm, head.lm_head])
        self._plan[f.UNREAD_WIDTH] = head.fc.in_features
        own = [head.fc, head.input_norm, head.midlayer.hidden_norm]
        self._plan[f.FUSE : f.STATE_NORM + 1] = addresses_of(own)
        self._plan[f.NORMED_RESIDUAL] = head.config.norm_before_residual
        numbers = config.rms_norm_eps, rotary.attention_scaling, config.head_dim**-0.5, 1.0
        self._numbers = np.array(numbers, np.float32)
        targets = head.targets.numpy()
        self._own = np.flatnonzero((targets >= 0) & (targets < vocab))  # tokens that may be drafted
        self._targets = targets[self._own]
        self._read = 0  # places
        self._unread = torch.empty(0, head.fc.in_features)
        self._output = torch.empty(0, head.fc.out_features)
        self._places = Places(self._sizes)
        self._next = PassPlan(self._sizes, self._plan, self._numbers, 1)  # for passes of one token

    @property
    def length(self) -> int:
        return self._read + 1

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        places, n, states = ids.numpy(), len(ids), self._unread.numpy()
        self._places.reserve(self._read + n, self._read)
        plan = self._next if n == 1 else PassPlan(self._sizes, self._plan, self._numbers, n)
        hidden = self._output.numpy()  # this chain's, unless states of the target have come
        if len(states):
            hidden = np.empty((n, self._sizes.width), np.float32)
        own = np.empty((keep, self._sizes.vocab), np.float32)
        self._places.enter(plan.entries)
        plan.entries[f.UNREAD] = states.ctypes.data if len(states) else 0
        plan.entries[f.HIDDEN], plan.entries[f.LOGITS] = hidden.ctypes.data, own.ctypes.data
        plan.entries[f.START], plan.entries[f.KEEP] = self._read, keep
        plan.entries[f.IDS] = places.ctypes.data
        plan.numbers[f.LOGIT_FACTOR] = 1 / temperature
        with crew().gathered(self._sizes.threads, plan.entries) as boxes:
            lead(boxes, plan.entries, plan.numbers)
        self._read += n
        self._unread = self._unread[:0]
        self._output = torch.from_numpy(plan.shared[0][-1:].copy())
        logits = np.full((keep, self._vocab), -np.inf, np.float32)
        logits[:, self._targets] = own if len(self._own) == own.shape[1] else own[:, self._own]
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self._read = length - 1

"""A head on the target over compiled passes: passes of one layer, which reads an embedding and a
state side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.states import StateReader
from . import forward as f
from .engine import Passes, addresses_of


class CompiledHeadEngine(StateReader):
    """A head on a processor."""

    form = "compiled"

    def __init__(self, head: Any, vocab: int) -> None:
        super().__init__(head.device, vocab)
        config = head.config
        self._passes = Passes(head, config.layer, [head.midlayer], head.rotary, config.draft_vocab)
        plan = self._passes.plan
        plan[f.EMBEDDING] = head.embedding.data_ptr()
        plan[f.FINAL_NORM : f.HEAD + 1] = addresses_of([head.norm, head.lm_head])
        plan[f.UNREAD_WIDTH] = head.fc.in_features
        plan[f.NORMED_RESIDUAL] = config.norm_before_residual
        fusing = (head.fc, head.input_norm, head.midlayer.hidden_norm)
        plan[f.FUSE : f.STATE_NORM + 1] = addresses_of(fusing)
        targets = head.targets.numpy()
        self._own = np.flatnonzero((targets >= 0) & (targets < vocab))  # tokens that may be drafted
        self._targets = targets[self._own]
        self._read = 0  # places
        self._unread = torch.empty(0, head.fc.in_features)
        self._output = torch.empty(0, head.fc.out_features)

    @property
    def length(self) -> int:
        return self._read + 1

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        n, passes, states = len(ids), self._passes, self._unread.numpy()
        passes.reserve(self._read + n, self._read)
        hidden = self._output.numpy()  # this chain's, unless states of the target have come
        if len(states):
            hidden = np.empty((n, passes.sizes.width), np.float32)
        own = np.empty((keep, passes.sizes.vocab), np.float32)
        plan = passes.planned(ids.numpy(), self._read, keep, temperature)
        plan[f.UNREAD] = states.ctypes.data if len(states) else 0
        plan[f.HIDDEN], plan[f.LOGITS] = hidden.ctypes.data, own.ctypes.data
        passes.run(plan)
        self._read += n
        self._unread = self._unread[:0]
        self._output = torch.from_numpy(passes.shared[0][n - 1 : n].copy())
        logits = np.full((keep, self._vocab), -np.inf, np.float32)
        logits[:, self._targets] = own if len(self._own) == own.shape[1] else own[:, self._own]
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self._read = length - 1

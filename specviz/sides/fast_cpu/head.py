"""A head on the target over compiled passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.states import StateReader
from . import head_pass as f
from .engine import ALIGNED, FIRST_PLACES, addresses_of, sizes_of


class CompiledHeadEngine(StateReader):
    """A head on a processor; see `support.compiled_head`."""

    form = "compiled"

    def __init__(self, head: Any, vocab: int) -> None:
        super().__init__(head.device, vocab)
        layer, attention = head.config.layer, head.midlayer.self_attn
        self._sizes = sizes_of(layer, head.dtype, layer.head_dim, head.config.draft_vocab, depth=1)
        self._table = _table(head)
        scale = attention.head_dim**-0.5
        numbers = (layer.rms_norm_eps, head.rotary.attention_scaling, scale)
        self._numbers = np.array(numbers, np.float32)
        self._frequencies = head.rotary.inv_freq.numpy()
        self._own_targets = torch.where(head.targets < vocab, head.targets, -1).numpy()
        self._places = 0
        self._unread = torch.empty(0, head.fc.in_features)
        self._output = torch.empty(0, head.fc.out_features)
        self._capacity = 0
        self._keys = self._values = np.empty((layer.num_key_value_heads, 0, 0), np.float32)

    @property
    def length(self) -> int:
        return self._places + 1

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        sizes, table, numbers = self._sizes, self._table, self._numbers
        self._reserve(self._places + len(ids))
        hidden = self._output.numpy()
        if len(self._unread):
            hidden = np.empty((len(ids), sizes.width), np.float32)
            f.run_fuse(sizes, table, numbers, self._unread.numpy(), hidden)
            self._unread = self._unread[:0]
        out = np.empty((len(ids), sizes.width), np.float32)
        cache = self._keys, self._values
        places = self._frequencies, self._places, ids.numpy()
        f.run_head(sizes, table, numbers, *places, hidden, *cache, out)
        self._places += len(ids)
        self._output = torch.from_numpy(out[-1:])
        logits = np.full((keep, self._vocab), -np.inf, np.float32)
        factor = np.float32(1 / temperature)
        f.run_logits(sizes, table, numbers, out[-keep:], factor, self._own_targets, logits)
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self._places = length - 1

    def _reserve(self, places: int) -> None:
        if places <= self._capacity:
            return
        capacity = -(-max(2 * self._capacity, places, FIRST_PLACES) // ALIGNED) * ALIGNED
        heads, width, used = self._sizes.kv_heads, self._sizes.head_dim, self._places
        keys = np.zeros((heads, width, capacity), np.float32)
        values = np.zeros((heads, capacity, width), np.float32)
        if used:
            keys[..., :used], values[:, :used] = self._keys[..., :used], self._values[:, :used]
        self._keys, self._values, self._capacity = keys, values, capacity


def _table(head: Any) -> np.ndarray:
    """The addresses of a head's weights, by the names of `head_pass`."""
    layer, attention, mlp = head.midlayer, head.midlayer.self_attn, head.midlayer.mlp
    linears: list[Any] = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    table = np.zeros(f.TABLE, np.int64)
    assert head.embedding is not None
    table[f.EMBEDDING] = head.embedding.data_ptr()
    table[f.FUSE : f.STATE_NORM + 1] = addresses_of(
        [head.fc, head.input_norm, layer.input_layernorm, layer.hidden_norm]
    )
    products = [*linears, mlp.gate_proj, mlp.up_proj, mlp.down_proj, head.lm_head]
    table[f.QUERY : f.LOGITS + 1] = addresses_of(products)
    norms = [attention.q_norm, attention.k_norm, layer.post_attention_layernorm, head.norm]
    table[f.QUERY_NORM : f.FINAL_NORM + 1] = addresses_of(norms)
    table[f.QUERY_BIAS : f.OUT_BIAS + 1] = addresses_of(linears, "bias")
    table[f.NORMED_RESIDUAL] = head.config.norm_before_residual
    return table

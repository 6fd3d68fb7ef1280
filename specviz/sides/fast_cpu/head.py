"""A head on the target over compiled passes, each one call of compiled code in a single thread.

Its layer is a layer of `forward`, whose attention reads an embedding and a state side by side, so
the outputs of a place do not depend on how many are read at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from ...core.states import StateReader
from . import forward as f
from .engine import PassPlan, Places, addresses_of, layer_addresses, sizes_of
from .ir import float_pointer, int_pointer
from .rows import ZERO, angles_of, arranged_rows, embed, norm, product

# A head's plan is that of a pass of one layer, then the addresses of what only a head has (0 where
# it has no such tensor), and whether the residual is the normed state.
FUSE, FUSE_NORM, STATE_NORM, NORMED_RESIDUAL = range(f.PLAN, f.PLAN + 4)
HEAD_PLAN = f.PLAN + 4


@njit(nogil=True, cache=True)
def run_fuse(plan, numbers, states, hidden):
    """hidden [n, width] = fuse(states), fp32 [n, states * target_width]."""
    sizes, x = f.sizes_in(plan), states
    if plan[FUSE_NORM] != 0:
        x = np.empty(states.shape, np.float32)
        norm(sizes.kind, states, plan[FUSE_NORM], numbers[f.EPS], np.float32(1.0), x)
    product(sizes, arranged_rows(sizes.kind, x), plan[FUSE], ZERO, ZERO, sizes.width, hidden)


@njit(nogil=True, cache=True)
def run_head(plan, numbers, hidden, out):
    """Read the tokens of a plan with the states `hidden`, fp32 [n, width]: `out` is what the layer
    gives, fp32 [n, width]."""
    sizes, n, one = f.sizes_in(plan), plan[f.TOKENS], np.float32(1.0)
    kind, width, eps = sizes.kind, sizes.width, numbers[f.EPS]
    layer = carray(int_pointer(plan[f.LAYERS]), (1, f.COLUMNS))[0]
    frequencies = carray(float_pointer(plan[f.FREQUENCIES]), sizes.head_dim // 2)
    embedded, normed = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    embed(sizes, plan[f.EMBEDDING], carray(int_pointer(plan[f.IDS]), n), ZERO, embedded)
    norm(kind, embedded, layer[f.INPUT_NORM], eps, one, embedded)
    norm(kind, hidden, plan[STATE_NORM], eps, one, normed)
    out[:] = normed if plan[NORMED_RESIDUAL] != 0 else hidden
    both = np.empty((n, 2 * width), np.float32)
    both[:, :width], both[:, width:] = embedded, normed
    angles = angles_of(frequencies, numbers[f.ROTARY_FACTOR], plan[f.START], n)
    keys, values = f.cached_places(sizes, plan, ZERO)
    both = arranged_rows(kind, both)
    f.attention_block(sizes, layer, ZERO, ZERO, plan, numbers, angles, both, out, keys, values)
    f.mlp_block(sizes, layer, ZERO, ZERO, plan, numbers, out, normed)


@njit(nogil=True, cache=True)
def run_logits(plan, numbers, out, targets, logits):
    """Write the logits of outputs [n, width] to logits fp32 [n, vocab of the target], which hold
    -inf: those of the head's token i to `targets` [i], int64, unless it is negative."""
    sizes, n = f.sizes_in(plan), len(out)
    normed = np.empty(out.shape, np.float32)
    norm(sizes.kind, out, plan[f.FINAL_NORM], numbers[f.EPS], numbers[f.LOGIT_FACTOR], normed)
    own = np.empty((n, sizes.vocab), np.float32)
    product(sizes, arranged_rows(sizes.kind, normed), plan[f.HEAD], ZERO, ZERO, sizes.vocab, own)
    for r in range(n):
        for i in range(sizes.vocab):
            if targets[i] >= 0:
                logits[r, targets[i]] = own[r, i]


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

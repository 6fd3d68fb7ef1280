"""Compiled passes over the weights of a model, and the `Engine` that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...core.draws import TIE, Distributions, softmax_only
from ...core.engine import OwnEngine, one_torch_thread, used_threads
from ...core.numpy_path import NumpyPath
from ...core.types import Doubles, Draft, Floats, RunContext
from ...pairs.pair import context_length
from ...settings import Settings
from . import forward as f
from .crew import MOST_THREADS, Integers, gathered, lead, run_draft
from .rows import Sizes
from .support import forget_stale_code
from .vector import BYTES, KINDS

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

FED = 64  # tokens of a long prompt that are fed at a time
KEPT_WIDTH = 17  # passes of up to so many tokens use the same memory
FIRST_PLACES = 128  # of a cache; it doubles when they are used up
ALIGNED = 64  # places: a cache holds a multiple of them
# Bytes of weights for which a further thread pays for waking it and waiting for it.
BYTES_PER_THREAD = 4_000_000

DEPTH, CAPACITY = Sizes._fields.index("depth"), Sizes._fields.index("capacity")

forget_stale_code()


class Passes:
    """Passes over layers whose weights are read in place, so that whatever changes them is seen by
    the next pass; the cache that they fill, which grows; and the memory that their threads share.

    module: what has all weights. config: of its layers. vocab: logits of a token. limit: of the
    context, None if there is none. plan: as `forward.run_pass` takes it, without what belongs to a
    single pass. shared: memory of the last pass.
    """

    def __init__(
        self,
        module: Any,
        config: Any,
        layers: Sequence[Any],
        rotary: Any,
        vocab: int,
        limit: int | None = None,
    ) -> None:
        kind = KINDS[str(module.dtype).removeprefix("torch.")]
        head_dim: int = layers[0].self_attn.head_dim
        self.sizes = Sizes(
            kind=kind,
            size=BYTES[kind],
            width=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            vocab=vocab,
            depth=len(layers),
            capacity=0,
            threads=threads_for(module),
        )
        self._limit, self._capacity = limit, 0
        self._keys: Floats = np.empty(0, np.float32)
        self._values = self._keys
        self._layers = np.array([layer_addresses(layer) for layer in layers], np.int64)
        self.plan = np.zeros(f.PLAN, np.int64)
        self.plan[: len(self.sizes)] = self.sizes
        self.plan[f.LAYERS] = self._layers.ctypes.data
        self.plan[f.FREQUENCIES] = rotary.inv_freq.data_ptr()
        eps = layers[0].input_layernorm.variance_epsilon
        numbers = eps, rotary.attention_scaling, head_dim**-0.5, 1.0
        self.numbers = np.array(numbers, np.float32)
        self.shared = self._kept = self._share(self.plan, KEPT_WIDTH)

    def planned(
        self, ids: Integers, start: int, keep: int, temperature: float, layers: int | None = None
    ) -> Integers:
        """The plan of a pass over `ids` at the places from `start` on, without its logits; valid
        until the next one."""
        plan: Integers = self.plan.copy()
        plan[f.TOKENS], plan[f.IDS] = len(ids), ids.ctypes.data
        plan[f.START], plan[f.KEEP] = start, keep
        if layers is not None:
            plan[DEPTH] = layers
        self.shared = self._kept if len(ids) <= KEPT_WIDTH else self._share(plan, len(ids))
        self.numbers[f.LOGIT_FACTOR] = 1 / temperature
        return plan

    def run(self, plan: Integers) -> None:
        """One pass."""
        with gathered(self.sizes.threads, plan) as boxes:
            lead(boxes, plan, self.numbers)

    def reserve(self, length: int, used: int) -> None:
        """Make room for `length` places, of which the first `used` hold something."""
        if length <= self._capacity:
            return
        s = self.sizes
        places = max(2 * self._capacity, length, FIRST_PLACES)
        if self._limit is not None:
            # Only a prompt is fed past the context, and nothing comes after it.
            places = min(places, max(self._limit, length))
        capacity = -(-places // ALIGNED) * ALIGNED
        # One memory for all, which the system backs with huge pages.
        memory = np.zeros((2, s.depth, s.kv_heads, s.head_dim * capacity), np.float32)
        keys = memory[0].reshape(s.depth, s.kv_heads, s.head_dim, capacity)
        values = memory[1].reshape(s.depth, s.kv_heads, capacity, s.head_dim)
        if self._capacity:
            keys[..., :used] = self._keys[..., :used]
            values[:, :, :used] = self._values[:, :, :used]
        self._keys, self._values, self._capacity = keys, values, capacity
        self.plan[CAPACITY] = capacity
        self.plan[f.KEYS], self.plan[f.VALUES] = keys.ctypes.data, values.ctypes.data

    def _share(self, plan: Integers, n: int) -> list[Floats]:
        """Memory for the states of n tokens, written to a plan."""
        s = self.sizes
        q, k = s.heads * s.head_dim, s.kv_heads * s.head_dim
        widths = (s.width, q, k, k, q, s.width, s.inner, s.inner)
        shared = [np.empty((n, width), np.float32) for width in widths]
        plan[f.SHARED : f.SHARED + len(widths)] = [x.ctypes.data for x in shared]
        return shared


def layer_addresses(layer: Any) -> list[int]:
    """The addresses of a layer's tensors, in the order of the columns of `forward`."""
    attention, mlp = layer.self_attn, layer.mlp
    linears = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    return addresses_of(linears + norms) + addresses_of(linears, "bias")


def addresses_of(modules: Sequence[Any], name: str = "weight") -> list[int]:
    """Where the tensors of this name of the modules lie; 0 for a module that has none."""
    tensors = [getattr(module, name, None) for module in modules]
    return [0 if tensor is None else int(tensor.data_ptr()) for tensor in tensors]


def threads_for(model: Any) -> int:
    """How many threads share a pass: as many as may be used, but none with too little to do."""
    bytes_read: int = sum(p.numel() * p.element_size() for p in model.parameters())
    return max(1, min(used_threads(), bytes_read // BYTES_PER_THREAD, MOST_THREADS))


class CompiledEngine(OwnEngine):
    """One model of the Llama family on a processor."""

    form = "compiled"

    def __init__(self, model: Any, vocab: int) -> None:
        self.device = torch.device("cpu")
        self.length = 0
        self.vocab = vocab
        self._model, inner = model, model.model  # held, since its weights are read by address
        limit = context_length(model)
        self._passes = Passes(model, model.config, inner.layers, inner.rotary_emb, vocab, limit)
        rest = (inner.embed_tokens, inner.norm, model.get_output_embeddings())
        self._passes.plan[f.EMBEDDING : f.HEAD + 1] = addresses_of(rest)
        self._slots = np.full(len(inner.layers), -1, np.int64)  # of the kept states
        self._states = np.empty((0, 0), np.float32)

    def path(self, run: RunContext) -> DecodingPath:
        if run.device.type != "cpu":  # a target elsewhere judges, with other draws
            return super().path(run)
        return NumpyPath(self, run, self.draft if drafts_at_once(run.settings) else None)

    def around(self) -> AbstractContextManager[None]:
        # Around compiled passes torch has only rows to work on, and its other threads would go on
        # waiting for more on the processors of the pass.
        return one_torch_thread()

    def keep_states(self, layers: Sequence[int]) -> None:
        self._slots[np.array(layers) - 1] = np.arange(len(layers))

    @property
    def states(self) -> Tensor:
        return torch.from_numpy(self._states)

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        places, passes = ids.numpy(), self._passes
        passes.reserve(self.length + len(places), self.length)
        logits = np.empty((keep, self.vocab), np.float32)
        skipped = len(places) - keep  # tokens before the first whose logits are asked for
        slots = int(self._slots.max()) + 1
        self._states = np.empty((len(places), slots * passes.sizes.width), np.float32)
        for begin in range(0, len(places), FED):
            block = places[begin : begin + FED]
            first = max(0, begin - skipped)
            wanted = logits[first : max(first, begin + len(block) - skipped)]
            plan = passes.planned(block, self.length, len(wanted), temperature, layers)
            plan[f.LOGITS] = wanted.ctypes.data
            if slots:
                plan[f.STATES], plan[f.KEPT_STATES] = self._states[begin:].ctypes.data, slots
                plan[f.SLOTS] = self._slots.ctypes.data
            passes.run(plan)
            self.length += len(block)
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self.length = length

    @property
    def threads(self) -> int:
        """How many share a pass."""
        return self._passes.sizes.threads

    def draft(
        self, ids: Integers, uniforms: Doubles, rows: Distributions, layers: int | None = None
    ) -> Draft:
        """Append `ids` [m] to the cache and draft a token with each of `uniforms` [n] after them;
        all but the last are appended too. rows: written."""
        n, end, passes = len(uniforms), self.length + len(ids), self._passes
        passes.reserve(end + n - 1, self.length)
        drafted, logits = np.empty(n, np.int64), np.empty((n, self.vocab), np.float32)
        following = passes.planned(drafted[:1], end, 1, rows.temperature, layers)
        first = passes.planned(ids, self.length, 1, rows.temperature, layers)
        how = passes.numbers, rows.greedy, np.float32(TIE), uniforms
        with gathered(self.threads, first, following) as boxes:
            run_draft(boxes, first, following, *how, drafted, logits, rows.rows(n))
        self.length = end + n - 1
        rows.take(drafted)
        return Draft(rows.ids[n], rows.p[n], torch.from_numpy(logits).split(1))


def drafts_at_once(settings: Settings) -> bool:
    """Whether drafts are greedy or drawn from a softmax without top-k or top-p, which is what the
    compiled code can do."""
    return settings.greedy or softmax_only(settings)

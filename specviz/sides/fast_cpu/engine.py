"""The `Engine` over compiled passes: the table of a model's weights, a cache, and threads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.draws import TIE, Distributions, softmax_only
from ...core.engine import OwnEngine, one_torch_thread, used_threads
from ...core.numpy_path import NumpyPath
from ...core.types import Doubles, Draft, Floats, RunContext
from ...pairs.pair import context_length
from ...settings import Settings
from . import forward as f
from .crew import MOST_THREADS, crew, lead, run_draft
from .rows import Sizes
from .support import forget_stale_code
from .vector import BYTES, KINDS

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

FED = 64  # tokens of a long prompt that are fed at a time
KEPT_WIDTHS = 17  # passes of up to so many tokens use their memory again
FIRST_PLACES = 128  # of a cache; it doubles when they are used up
ALIGNED = 64  # places: a cache holds a multiple of them
# Bytes of weights for which a further thread pays for waking it and waiting for it.
BYTES_PER_THREAD = 4_000_000

DEPTH, CAPACITY = Sizes._fields.index("depth"), Sizes._fields.index("capacity")

forget_stale_code()


class WeightTable:
    """Where a model's weights lie, and what else a pass must know of it.

    Weights are read in place, so whatever changes them is seen by the next pass. plan, numbers: as
    `forward.run_pass` takes them, without what belongs to a single pass. limit: of the context.
    """

    def __init__(self, model: Any, vocab: int, threads: int) -> None:
        inner, layers = model.model, model.model.layers
        first, rotary = layers[0].self_attn, inner.rotary_emb
        shape = first.head_dim, vocab, len(layers), threads
        self.sizes = sizes_of(model.config, model.dtype, *shape)
        self._layers = np.array([layer_addresses(layer) for layer in layers], np.int64)
        self.plan = np.zeros(f.PLAN, np.int64)
        self.plan[: len(self.sizes)] = self.sizes
        self.plan[f.LAYERS] = self._layers.ctypes.data
        self.plan[f.FREQUENCIES] = rotary.inv_freq.data_ptr()
        rest = (inner.embed_tokens, inner.norm, model.get_output_embeddings())
        self.plan[f.EMBEDDING : f.HEAD + 1] = addresses_of(rest)
        eps = inner.norm.variance_epsilon
        self.numbers = np.array([eps, rotary.attention_scaling, first.scaling, 1.0], np.float32)
        self.limit = context_length(model)


def sizes_of(
    config: Any, dtype: torch.dtype, head_dim: int, vocab: int, depth: int, threads: int = 1
) -> Sizes:
    """The sizes of layers with this config, for a cache that has no places yet."""
    kind = KINDS[str(dtype).removeprefix("torch.")]
    return Sizes(
        kind=kind,
        size=BYTES[kind],
        width=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        vocab=vocab,
        depth=depth,
        capacity=0,
        threads=threads,
    )


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
        self._model = model  # its weights are read by address
        self.vocab = vocab
        self._table = WeightTable(model, vocab, threads_for(model))
        self._crew = crew()
        self._places = Places(self._table.sizes, self._table.limit)
        self._plans: dict[int, PassPlan] = {}  # by tokens of a pass
        self._slots = np.full(self._table.sizes.depth, -1, np.int64)  # of the kept states
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

    @property
    def _kept(self) -> int:
        """How many states of a token are kept."""
        return int(self._slots.max()) + 1

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        places = ids.numpy()
        self._places.reserve(self.length + len(places), self.length)
        logits = np.empty((keep, self.vocab), np.float32)
        kept = len(places) - keep  # tokens before the first whose logits are asked for
        self._states = np.empty((len(places), self._kept * self._table.sizes.width), np.float32)
        for begin in range(0, len(places), FED):
            block = places[begin : begin + FED]
            first = max(0, begin - kept)
            wanted = logits[first : max(first, begin + len(block) - kept)]
            self._pass(block, layers, temperature, wanted, self._states[begin:])
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self.length = length

    @property
    def threads(self) -> int:
        """How many share a pass."""
        return int(self._table.sizes.threads)

    def draft(
        self,
        ids: NDArray[np.int64],
        uniforms: Doubles,
        rows: Distributions,
        layers: int | None = None,
    ) -> Draft:
        """Append `ids` [m] to the cache and draft a token with each of `uniforms` [n] after them;
        all but the last are appended too. rows: written."""
        n, fed = len(uniforms), len(ids)
        self._places.reserve(self.length + fed + n - 1, self.length)
        drafted, logits = np.empty(n, np.int64), np.empty((n, self.vocab), np.float32)
        first = self._planned(fed, layers, rows.temperature, 1)
        first.entries[f.IDS] = ids.ctypes.data
        entries = self._planned(1, layers, rows.temperature, 1).entries
        if fed == 1:
            entries = entries.copy()
        entries[f.START] = self.length + fed
        how = first.numbers, rows.greedy, np.float32(TIE), uniforms
        with self._crew.gathered(self.threads, first.entries, entries) as boxes:
            run_draft(boxes, first.entries, entries, *how, drafted, logits, rows.rows(n))
        self.length += fed + n - 1
        rows.take(drafted)
        return Draft(rows.ids[n], rows.p[n], torch.from_numpy(logits).split(1))

    def _pass(
        self,
        ids: NDArray[np.int64],
        layers: int | None,
        temperature: float,
        logits: Floats,
        states: Floats,
    ) -> None:
        plan = self._planned(len(ids), layers, temperature, len(logits))
        plan.entries[f.IDS], plan.entries[f.LOGITS] = ids.ctypes.data, logits.ctypes.data
        if states.shape[1]:
            plan.entries[f.STATES], plan.entries[f.KEPT_STATES] = states.ctypes.data, self._kept
            plan.entries[f.SLOTS] = self._slots.ctypes.data
        with self._crew.gathered(self.threads, plan.entries) as boxes:
            lead(boxes, plan.entries, plan.numbers)
        self.length += len(ids)

    def _planned(self, n: int, layers: int | None, temperature: float, keep: int) -> PassPlan:
        """The plan of a pass of n tokens that begins here, without ids and logits."""
        table = self._table
        plan = self._plans.get(n) or PassPlan(table.sizes, table.plan, table.numbers, n)
        if n <= KEPT_WIDTHS:
            self._plans[n] = plan
        entries = plan.entries
        entries[DEPTH] = table.sizes.depth if layers is None else layers
        entries[f.START], entries[f.KEEP] = self.length, keep
        self._places.enter(entries)
        entries[f.STATES] = 0
        plan.numbers[f.LOGIT_FACTOR] = 1 / temperature
        return plan


class Places:
    """The keys and values of a cache, which grows. limit: of the context, None if there is none."""

    def __init__(self, sizes: Sizes, limit: int | None = None) -> None:
        self._sizes, self._limit = sizes, limit
        self._capacity = 0
        self._keys: Floats = np.empty(0, np.float32)
        self._values = self._keys

    def reserve(self, length: int, used: int) -> None:
        """Make room for `length` places, of which the first `used` hold something."""
        if length <= self._capacity:
            return
        s = self._sizes
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

    def enter(self, entries: NDArray[np.int64]) -> None:
        """Write to a plan where they lie."""
        entries[CAPACITY] = self._capacity
        entries[f.KEYS], entries[f.VALUES] = self._keys.ctypes.data, self._values.ctypes.data


class PassPlan:
    """A plan of passes of n tokens, with the memory that their threads share. plan, numbers: what
    they have in common."""

    def __init__(self, sizes: Sizes, plan: NDArray[np.int64], numbers: Floats, n: int) -> None:
        s = sizes
        q, k = s.heads * s.head_dim, s.kv_heads * s.head_dim
        widths = (s.width, q, k, k, q, s.width, s.inner, s.inner)
        self.shared = [np.empty((n, width), np.float32) for width in widths]
        self.entries, self.numbers = plan.copy(), numbers.copy()
        self.entries[f.TOKENS] = n
        self.entries[f.SHARED : f.SHARED + len(widths)] = [x.ctypes.data for x in self.shared]


def drafts_at_once(settings: Settings) -> bool:
    """Whether drafts are greedy or drawn from a softmax without top-k or top-p, which is what the
    compiled code can do."""
    return settings.greedy or softmax_only(settings)

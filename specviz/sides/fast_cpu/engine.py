"""Compiled passes over the weights of a model or a head, and the engines built on them.

CompiledEngine.forward -> Passes.plan_pass -> a `Plan`: the parameters of one pass
                       -> Passes.run -> thread_pool.run_with_workers -> forward.run_pass
CompiledEngine.draft   -> two plans, for the first pass and all others
                       -> thread_pool.run_draft: passes and draws in one call
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from ctypes import addressof
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...core.draws import Distributions, softmax_only
from ...core.engine import BaseEngine
from ...core.llama_layer import LINEARS, NORMS, LlamaSizes, layer_modules, llama_sizes
from ...core.model_facts import context_length
from ...core.numpy_path import NumpyPath
from ...core.settings import RANGES, Settings
from ...core.states import StateReader
from ...core.stopping import check_stop
from ...core.tensor_draws import TIE
from ...core.threads import one_torch_thread, thread_limit
from ...core.types import Doubles, Draft, Floats, RunContext
from ...files import few_bits
from ...files.few_bits.blocks import KINDS, STEP
from ...files.few_bits.products import product_code
from ...files.few_bits.stale_code import forget_stale_code
from ...files.few_bits.tiles import TILES_IN_STEP, tile_bytes
from ...files.few_bits.unpacking import DTYPE_KINDS
from ...files.few_bits.vector import CACHE_LINE
from .forward import compiled_pass
from .integer_products import integer_product_code
from .rows import Layer, Plan, Weight
from .thread_pool import MAX_THREADS, Integers, awake_workers, barrier, run_draft, run_with_workers

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, Engine

HERE = Path(__file__).resolve().parent
PREFILL_CHUNK = 64  # tokens of a long prompt per pass
# All passes over at most so many tokens use the same memory for their activations: the longest
# draft, and the token before it.
MAX_KEPT_TOKENS = 1 + int(RANGES["gamma"][1])
FIRST_CAPACITY = 128  # positions of a new cache; it doubles when they are used up
CAPACITY_STEP = 64  # positions: the capacity of a cache is a multiple of it
# Bytes of weights for which a further thread is worth waking and waiting for.
BYTES_PER_THREAD = 4_000_000

forget_stale_code(HERE, few_bits.HERE)


class Passes:
    """Passes over layers whose weights are read in place, so that the next pass sees every change
    of them; with the growing cache that they fill, and the memory for their activations.

    module: has all weights. sizes: of its layers. rotary: its module of the rotary embedding.
    vocab: the number of logits of a token. limit: the most positions of the context, None if there
    is no limit. plan: without the fields of a single pass. activations: of the last pass, by their
    names in the plan, fp32 [tokens, ...].
    """

    def __init__(
        self,
        module: Any,
        sizes: LlamaSizes,
        layers: Sequence[Any],
        rotary: Any,
        vocab: int,
        limit: int | None = None,
    ) -> None:
        self._sizes = sizes
        self._limit = limit
        self._rotary = rotary  # kept alive, since its frequencies are read by address
        # The cache: [layers, kv_heads, head_dim, capacity] and [layers, kv_heads, capacity,
        # head_dim].
        self._keys: Floats = np.empty(0, np.float32)
        self._values = self._keys
        modules_by_layer = [layer_modules(layer) for layer in layers]
        records = [Layer(*layer_weights(modules)) for modules in modules_by_layer]
        self._layers = (Layer * len(layers))(*records)
        weights = list(module.parameters())
        self._weight_bytes = sum(p.numel() * p.element_size() for p in weights)
        self.plan = Plan(
            code=compiled_pass().address,
            needs_reordered=has_bfloat16(module, weights),
            width=sizes.width,
            inner=sizes.inner,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            vocab=vocab,
            depth=len(layers),
            threads=threads_for(self._weight_bytes, thread_limit()),
            barrier=barrier.ctypes.data,
            layers=addressof(self._layers),
            frequencies=rotary.inv_freq.data_ptr(),
            eps=modules_by_layer[0]["input_norm"].variance_epsilon,
            rotary_factor=rotary.attention_scaling,
            score_factor=sizes.score_factor,
        )
        self._kept_activations = self._allocate_activations(self.plan, MAX_KEPT_TOKENS)
        self.activations = self._kept_activations

    def plan_pass(
        self, ids: Integers, start: int, keep: int, temperature: float, layers: int | None = None
    ) -> Plan:
        """Plan a pass over `ids` [n] at the positions from `start` on. The caller enters the
        address of the logits of the last `keep` tokens.

        Call `reserve` first: the plan copies the addresses of the cache.

        A plan of more than `MAX_KEPT_TOKENS` tokens is valid until the next one, which frees the
        memory for its activations.
        """
        plan = Plan.from_buffer_copy(self.plan)
        plan.tokens = len(ids)
        plan.ids = ids.ctypes.data
        plan.start = start
        plan.keep = keep
        plan.logit_factor = 1 / temperature
        if layers is not None:
            plan.depth = layers
        self.activations = self._kept_activations
        if len(ids) > MAX_KEPT_TOKENS:
            self.activations = self._allocate_activations(plan, len(ids))
        return plan

    def limit_threads(self, threads: int) -> None:
        """Let at most `threads` threads share a pass."""
        self.plan.threads = threads_for(self._weight_bytes, threads)

    def run(self, plan: Plan) -> None:
        """Run one pass."""
        with awake_workers(plan.threads) as worker_slots:
            run_with_workers(worker_slots, addressof(plan))

    def reserve(self, length: int, used: int) -> None:
        """Make room for `length` positions in the cache, and keep the first `used`."""
        plan = self.plan
        if length <= plan.capacity:
            return
        positions = max(2 * plan.capacity, length, FIRST_CAPACITY)
        if self._limit is not None:
            # Only a prompt is fed past the context, and nothing comes after it.
            positions = min(positions, max(self._limit, length))
        capacity = -(-positions // CAPACITY_STEP) * CAPACITY_STEP
        # One piece of memory, so that the system can back it with huge pages.
        depth = plan.depth
        heads = plan.kv_heads
        head_dim = plan.head_dim
        memory = aligned_zeros((2, depth, heads, head_dim * capacity))
        keys = memory[0].reshape(depth, heads, head_dim, capacity)
        values = memory[1].reshape(depth, heads, capacity, head_dim)
        if plan.capacity:
            keys[..., :used] = self._keys[..., :used]
            values[:, :, :used] = self._values[:, :, :used]
        self._keys = keys
        self._values = values
        plan.capacity = capacity
        plan.keys = keys.ctypes.data
        plan.values = values.ctypes.data

    def copy_cache(self, other: Passes, length: int) -> None:
        """Copy the first `length` positions of another cache of the same layers."""
        if length:
            self.reserve(length, 0)
            self._keys[..., :length] = other._keys[..., :length]
            self._values[:, :, :length] = other._values[:, :, :length]

    def _allocate_activations(self, plan: Plan, n: int) -> dict[str, Floats]:
        """Allocate memory for the activations of n tokens, and enter its addresses in a plan."""
        sizes = self._sizes
        widths = {
            "x": sizes.width,
            "q": sizes.queries,
            "k": sizes.keys,
            "v": sizes.keys,
            "attended": sizes.queries,
            "added": sizes.width,
            "gate": sizes.inner,
            "up": sizes.inner,
        }
        activations = {name: aligned_zeros((n, width)) for name, width in widths.items()}
        for name, memory in activations.items():
            setattr(plan, name, memory.ctypes.data)
        return activations


def aligned_zeros(shape: tuple[int, ...]) -> Floats:
    """fp32 zeros that begin at a line of the processor's cache. NumPy's arrays begin inside one, so
    that half of all vectors would cross two."""
    count = math.prod(shape)
    memory = np.zeros(count + CACHE_LINE // 4, np.float32)
    begin = -memory.ctypes.data % CACHE_LINE // 4  # numbers up to the next line
    return memory[begin : begin + count].reshape(shape)


def layer_weights(modules: Mapping[str, Any]) -> list[Weight]:
    """The tensors of a layer, in the order of `Layer`'s fields. modules: from `layer_modules`."""
    weights = [weight_of(modules[part.name]) for part in (*LINEARS, *NORMS)]
    biases = [bias_of(modules[linear.name]) for linear in LINEARS]
    return weights + biases


def weight_of(module: Any) -> Weight:
    """The weight of a module; an empty `Weight` if the module is None or has none."""
    return _weight(getattr(module, "weight", None), module)


def packed_kind(module: Any) -> str | None:
    """The kind of blocks in which a module packs its weights, or None."""
    # torch's modules take microseconds to find that an attribute is missing, and each run checks
    # all modules.
    if module is None:
        return None
    kind: str | None = vars(module).get("packed_as")
    return kind


def has_bfloat16(module: Any, weights: Iterable[Tensor]) -> bool:
    """Whether some weights of a module, or some blocks in it, are bf16."""
    dtypes = {weight.dtype for weight in weights}
    if torch.bfloat16 in dtypes:
        return True
    if torch.uint8 not in dtypes:
        return False
    return any(packed_kind(part) == "BF16" for part in module.modules())


def bias_of(module: Any) -> Weight:
    """The bias of a module; an empty `Weight` if it has none."""
    return _weight(getattr(module, "bias", None))


def _table(tensor: Tensor, module: Any = None) -> Weight:
    """An embedding table: a pass reads single rows, so there is no code of products. module: its
    owner."""
    return Weight(tensor.data_ptr(), _kind(tensor, module))


def _kind(tensor: Tensor, module: Any) -> int:
    """The kind of a tensor's weights, as in `blocks.KINDS`. module: its owner."""
    return KINDS[packed_kind(module) or DTYPE_KINDS[tensor.dtype]]


def _weight(tensor: Tensor | None, module: Any = None) -> Weight:
    """The address of a tensor, and the code of products with it. module: its owner."""
    if tensor is None:
        return Weight()
    kind = _kind(tensor, module)
    address = tensor.data_ptr()
    if tensor.dim() == 1:
        return Weight(address, kind)
    if packed_kind(module) is not None and module.is_tiled:
        step_bytes = TILES_IN_STEP * tile_bytes(kind, module.in_features)
        return Weight(address, kind, integer_product_code(kind), step_bytes)
    row_bytes = tensor.shape[1] * tensor.element_size()
    return Weight(address, kind, product_code(kind), STEP * row_bytes)


def threads_for(weight_bytes: int, limit: int) -> int:
    """The number of threads that share a pass: at most `limit`, and fewer if a thread would have
    less than `BYTES_PER_THREAD` of weights to read."""
    return max(1, min(limit, weight_bytes // BYTES_PER_THREAD, MAX_THREADS))


class CompiledEngine(BaseEngine):
    """One model of the Llama family on a processor."""

    name = "compiled"

    def __init__(self, model: Any, vocab: int) -> None:
        self.device = torch.device("cpu")
        self.length = 0
        self.vocab = vocab
        self._model = model  # kept alive, since its weights are read by address
        inner = model.model
        limit = context_length(model)
        self._passes = Passes(
            model,
            llama_sizes(model.config),
            layers=inner.layers,
            rotary=inner.rotary_emb,
            vocab=vocab,
            limit=limit,
        )
        plan = self._passes.plan
        plan.embedding = _table(inner.embed_tokens.weight, inner.embed_tokens)
        plan.final_norm = weight_of(inner.norm)
        plan.output_layer = weight_of(model.get_output_embeddings())
        # Each layer's slot in the kept states, below 0 if its states are not kept.
        self._state_slots = np.full(len(inner.layers), -1, np.int64)
        self._states = np.empty((0, 0), np.float32)  # [tokens of the last pass, slots * width]

    def path(self, run: RunContext) -> DecodingPath:
        if run.device.type != "cpu":  # the target is on another device, with other draws
            return super().path(run)
        if not drafts_at_once(run.settings):
            return NumpyPath(self, run)
        return NumpyPath(self, run, self.draft)

    def limit_threads(self, threads: int) -> None:
        self._passes.limit_threads(threads)

    def round_context(self) -> AbstractContextManager[None]:
        # Outside compiled passes torch works on single rows only, and its other threads would spin
        # on the processors of the pass.
        return one_torch_thread()

    def keep_states(self, layers: Sequence[int]) -> None:
        # The states after n layers are those that layer n - 1, counted from 0, writes.
        self._state_slots[np.array(layers) - 1] = np.arange(len(layers))

    @property
    def states(self) -> Tensor:
        return torch.from_numpy(self._states)

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        fed_ids = ids.numpy()
        passes = self._passes
        passes.reserve(self.length + len(fed_ids), self.length)
        logits = np.empty((keep, self.vocab), np.float32)
        skipped = len(fed_ids) - keep  # tokens before the first one with wanted logits
        slot_count = int(self._state_slots.max()) + 1
        self._states = np.empty((len(fed_ids), slot_count * passes.plan.width), np.float32)
        for begin in range(0, len(fed_ids), PREFILL_CHUNK):
            if begin:  # a long prompt
                check_stop()
            chunk = fed_ids[begin : begin + PREFILL_CHUNK]
            # The chunk's rows of the logits: none before the first token with wanted logits.
            first = max(0, begin - skipped)
            end = max(first, begin + len(chunk) - skipped)
            chunk_logits = logits[first:end]
            plan = passes.plan_pass(chunk, self.length, len(chunk_logits), temperature, layers)
            plan.logits = chunk_logits.ctypes.data
            if slot_count:
                plan.states = self._states[begin:].ctypes.data
                plan.slot_count = slot_count
                plan.state_slots = self._state_slots.ctypes.data
            passes.run(plan)
            self.length += len(chunk)
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self.length = length

    def take_over(self, other: Engine) -> bool:
        if not isinstance(other, CompiledEngine) or other._model is not self._model:
            return False
        if not np.array_equal(other._state_slots, self._state_slots):
            return False
        self._passes.copy_cache(other._passes, other.length)
        self._states = other._states
        self.length = other.length
        return True

    @property
    def threads(self) -> int:
        """The number of threads that share a pass."""
        threads: int = self._passes.plan.threads
        return threads

    def draft(
        self,
        ids: Integers,
        uniforms: Doubles,
        distributions: Distributions,
        layers: int | None = None,
        min_confidence: float = 0.0,
    ) -> Draft:
        """Append `ids` [m] to the cache and draft a token with each of `uniforms` [n] after them,
        or fewer by `min_confidence`; all but the last are appended too. distributions: are
        written."""
        n = len(uniforms)
        end = self.length + len(ids)
        passes = self._passes
        passes.reserve(end + n - 1, self.length)
        drafted = np.empty(n, np.int64)
        logits = np.empty((n, self.vocab), np.float32)
        confidences = np.empty(n if min_confidence else 0)
        distributions.reserve(n)
        temperature = distributions.temperature
        following = passes.plan_pass(drafted[:1], end, 1, temperature, layers)
        # `first` comes last: a plan of many tokens is valid until the next one.
        first = passes.plan_pass(ids, self.length, 1, temperature, layers)
        with awake_workers(self.threads) as worker_slots:
            count = run_draft(
                worker_slots,
                addressof(first),
                addressof(following),
                distributions.greedy,
                np.float32(TIE),
                min_confidence,
                uniforms,
                drafted,
                logits,
                distributions.array(n),
                confidences,
            )
        self.length = end + count - 1
        distributions.store(drafted[:count])
        step_logits = torch.from_numpy(logits[:count]).split(1)
        return Draft(
            distributions.ids(count),
            distributions.rows(count),
            step_logits,
            confidences=confidences[:count].tolist(),
        )


def drafts_at_once(settings: Settings) -> bool:
    """Whether compiled code can make the drafts: greedy ones, and those drawn from a softmax
    without top-k or top-p."""
    return settings.greedy or softmax_only(settings)


class CompiledHeadEngine(StateReader):
    """An EAGLE-3 head: passes of one layer, which reads an embedding and a state side by side.

    At each position it reads the target's state of a token together with the next token. So it
    never reads the first token of a text, and its cache has one position less than the text.
    """

    name = "compiled"

    def __init__(self, head: Any, vocab: int) -> None:
        super().__init__(head.device, vocab)
        config = head.config
        self._passes = Passes(
            head,
            config.sizes,
            layers=[head.midlayer],
            rotary=head.rotary,
            vocab=config.draft_vocab,
        )
        plan = self._passes.plan
        plan.embedding = _table(head.embedding)
        plan.unfused_width = head.fc.in_features
        plan.normed_residual = config.norm_before_residual
        plan.final_norm = weight_of(head.norm)
        plan.output_layer = weight_of(head.lm_head)
        plan.fuse = weight_of(head.fc)
        plan.fuse_norm = weight_of(head.input_norm)
        plan.state_norm = weight_of(head.midlayer.hidden_norm)
        targets = head.targets.numpy()
        # The head's own ids of draftable tokens, and the target's ids of the same tokens.
        self._draftable = np.flatnonzero((targets >= 0) & (targets < vocab))
        self._targets = targets[self._draftable]
        self._cached = 0  # positions in the cache
        self._unread_states = torch.empty(0, head.fc.in_features)
        self._output = torch.empty(0, head.fc.out_features)  # of the last position

    @property
    def length(self) -> int:
        return self._cached + 1

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        n = len(ids)
        passes = self._passes
        states = self._unread_states.numpy()
        passes.reserve(self._cached + n, self._cached)
        hidden = self._output.numpy()  # for one token; new states of the target replace it
        if len(states):
            hidden = np.empty((n, passes.plan.width), np.float32)
        head_logits = np.empty((keep, passes.plan.vocab), np.float32)
        plan = passes.plan_pass(ids.numpy(), self._cached, keep, temperature)
        plan.unfused_states = 0
        if len(states):
            plan.unfused_states = states.ctypes.data
        plan.hidden = hidden.ctypes.data
        plan.logits = head_logits.ctypes.data
        passes.run(plan)
        self._cached += n
        self._unread_states = self._unread_states[:0]
        self._output = torch.from_numpy(passes.activations["x"][n - 1 : n].copy())
        logits = np.full((keep, self._vocab), -np.inf, np.float32)
        if len(self._draftable) < head_logits.shape[1]:
            head_logits = head_logits[:, self._draftable]
        logits[:, self._targets] = head_logits
        return torch.from_numpy(logits)

    def rollback(self, length: int) -> None:
        self._cached = length - 1

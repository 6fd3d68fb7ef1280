"""The engine of one model over a static cache, for captured passes. Caches and their programs
belong to the model: a run takes a cache from a pool and gives it back.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import StaticCache
from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

from ...core.eager import memory_limited
from ...core.engine import OwnEngine
from ...core.model_facts import cache_argument, complete, context_length
from ...core.types import RunContext
from .cache import Function, InPlaceCache, Program, capacity_for
from .llama_pass import LlamaPass, llama_pass
from .path import GraphPath
from .rounds import whole_rounds
from .triton_support import KernelCompilation, first_line

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.protocols import DecodingPath, WholeRounds
    from .triton_pass import TritonPass

MAX_IDLE = 3  # caches kept per model: two lanes, and a draft that is the target itself
MAX_PROGRAMS = 96  # most programs captured for one cache
TIMED_PASSES = 20
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest logit
HALF_TOLERANCE = 0.05  # bf16 and fp16
MOVING_ROPE = ("dynamic", "longrope")  # frequencies that depend on the length
ATTENTION = ("sdpa", "eager")  # attention functions that take a mask as a tensor
UNLIMITED = 1 << 20  # context for models without a stated limit


class CachePool:
    """The idle caches of one model between runs, with their programs. reason: why the model runs in
    another form, or None. kernels: Triton's pass, if it computes short passes. has_whole_rounds:
    whether a round may be one program; false after a failure. seconds: spent on making programs.
    """

    def __init__(
        self, model: Any, vocab: int, reason: str | None, kernels: TritonPass | None = None
    ) -> None:
        self.seconds = 0.0
        self.reason = reason
        self.has_whole_rounds = True
        self.kernels = kernels
        self.compilation: KernelCompilation | None = None
        self._engines: weakref.WeakSet[StaticEngine] = weakref.WeakSet()
        self._choosing = RLock()
        self._short: LlamaPass | None = None
        if reason is None:
            self._short = llama_pass(model)
        self.stamp = _stamp(model, vocab, reason)
        self._model = weakref.ref(model)
        self.vocab = vocab
        self._idle: list[InPlaceCache] = []
        self._lock = Lock()

    @property
    def kernels_reason(self) -> str | None:
        """The reason why short passes do not use Triton's kernels; None if they do."""
        if self.compilation is None:
            return None
        return self.compilation.reason

    def engine(self, model: Any) -> StaticEngine:
        """Make an engine with an empty cache. A switch to Triton's kernels happens only between two
        runs, so that the lanes of a race never differ.
        """
        with self._choosing:
            if not self._engines and self.compilation is not None:
                candidate = self.compilation.take()
                if candidate is not None:
                    self.compilation.reason = self._try_kernels(model, candidate)
            engine = StaticEngine(model, self.vocab, self)
            self._engines.add(engine)
        return engine

    def _try_kernels(self, model: Any, candidate: TritonPass) -> str | None:
        """Use kernels from now on if they pass the trial and are not slower. Returns the reason
        against them, or None."""
        trial = CachePool(model, self.vocab, None, candidate)
        before = CachePool(model, self.vocab, None)
        try:
            reason = _trial_result(model, self.vocab, trial) or trial.reason
            if reason is None and model.device.type == "cuda":
                reason = _slower(seconds_of_pass(model, trial), seconds_of_pass(model, before))
        except Exception as error:  # Triton has errors of its own
            reason = first_line(error)
        if reason is None:
            with self._lock:
                self.kernels = candidate
                self._idle = []  # whose programs run other kernels
        return reason

    def take(self, capacity: int, wanted: Iterable[Hashable] = ()) -> InPlaceCache:
        """Take a cache of at least `capacity` positions, if possible one with the programs
        `wanted`."""
        keys = set(wanted)
        with self._lock:
            fitting = [cache for cache in self._idle if cache.capacity >= capacity]
            if fitting:
                best = max(fitting, key=lambda cache: len(keys & cache.programs.keys()))
                self._idle.remove(best)
                best.clear()
                return best
        return InPlaceCache(self._model(), self.vocab, capacity, self._short, self.kernels)

    def give_back(self, cache: InPlaceCache) -> None:
        """Keep `cache` for a later run, and drop the oldest one if there are enough."""
        with self._lock:
            if self.reason:
                self._idle = []
            elif cache.shortest is self.kernels:  # the programs of another one run other kernels
                self._idle = [*self._idle, cache][-MAX_IDLE:]

    def close(self) -> None:
        """Free all that is idle."""
        self._idle.clear()


class StaticEngine(OwnEngine):
    """The `Engine` over an `InPlaceCache`, and the keeper of its programs."""

    def __init__(self, model: Any, vocab: int, pool: CachePool) -> None:
        self.device = torch.device(model.device)
        self.length = 0
        self._model = model  # the pool alone does not keep it
        self._pool = pool
        self._cache: InPlaceCache | None = None

    def path(self, run: RunContext) -> DecodingPath:
        return GraphPath(self, run)

    def whole_rounds(
        self, path: DecodingPath, drafter: Drafter, ids: Sequence[int]
    ) -> WholeRounds | None:
        if not self._pool.has_whole_rounds:
            return None
        rounds = whole_rounds(path, drafter, ids)
        if rounds is None:
            return None
        with memory_limited():
            reason = rounds.trial(ids)
        if reason is None:
            return rounds
        self._pool.has_whole_rounds = False
        warnings.warn(f"a round cannot run as one program: {reason}", stacklevel=2)
        return None

    @property
    def name(self) -> str:
        parts = ["static"]
        has_graphs = self.device.type == "cuda" and self._pool.reason is None
        if has_graphs:
            parts.append("CUDA graphs")
        if self._pool.kernels is not None:
            parts.append("Triton's kernels")
        elif has_graphs and self._pool.kernels_reason is not None:
            parts.append(f"torch's kernels: {self._pool.kernels_reason}")
        return ", ".join(parts)

    @property
    def program_seconds(self) -> float:
        """Seconds spent on making programs for this model so far."""
        return self._pool.seconds

    def reserve(self, length: int, wanted: Iterable[Hashable] = ()) -> InPlaceCache:
        """The cache in use, with capacity for `length` tokens. wanted: programs that the run will
        ask for."""
        capacity = capacity_for(length)
        if self._cache is None:
            self._cache = self._pool.take(capacity, wanted)
            # However a run ends, its cache goes back to the pool once nothing references it.
            weakref.finalize(self, self._pool.give_back, self._cache).atexit = False
        elif self._cache.capacity < capacity:
            self._cache.grow(capacity)
        return self._cache

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        end = self.length + ids.shape[0]
        places = torch.arange(self.length, end, device=self.device)
        with memory_limited():
            logits = self.reserve(end).logits(ids.to(self.device), places, keep, layers)
        self.length = end
        if temperature == 1.0:
            return logits
        return logits / temperature

    def rollback(self, length: int) -> None:
        self.length = length

    def program(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor], *, is_vital: bool = True
    ) -> Program:
        """The program of this name over the buffers in use; made from the other arguments if it is
        new. is_vital: whether a failed capture moves the model to another form.
        """
        assert self._cache is not None, "reserve room before asking for a program"
        programs = self._cache.programs
        if key not in programs:
            with memory_limited():
                program = Program(function, inputs)
            programs[key] = program
            self._pool.seconds += program.seconds
            if is_vital and self.device.type == "cuda" and not program.graphed:
                self._pool.reason = "its passes could not be captured"
            if len(programs) > MAX_PROGRAMS:
                programs.popitem(last=False)
        programs.move_to_end(key)
        return programs[key]


_pools: weakref.WeakKeyDictionary[Any, CachePool] = weakref.WeakKeyDictionary()


def static_engine(model: Any, vocab: int) -> StaticEngine | None:
    """An engine of the static form with an empty cache, or None if the model cannot have one."""
    complete(model)
    pool = _pool_of(model, vocab)
    if pool.reason is not None:
        return None
    return pool.engine(model)


def startup_seconds(model: Any) -> float:
    """Seconds spent on making programs for `model` so far."""
    if model not in _pools:
        return 0.0
    return _pools[model].seconds


def wait_for_kernels(model: Any) -> None:
    """Wait until the kernels of a model that has run are compiled: runs that are compared must
    share them."""
    pool = _pools.get(model)
    if pool is not None and pool.compilation is not None:
        pool.compilation.wait()


def _pool_of(model: Any, vocab: int) -> CachePool:
    """The pool of a model; a changed model gets a new pool, which is tried out."""
    reason = refusal(model)
    pool = _pools.get(model)
    if pool is None or pool.stamp != _stamp(model, vocab, reason):
        pool = CachePool(model, vocab, reason)
        _pools[model] = pool
        weakref.finalize(model, pool.close).atexit = False
        pool.reason = reason or _trial(model, vocab, pool)
        pool.close()  # the trial's own cache is too short to be of use
        if pool.reason is None:
            pool.compilation = KernelCompilation(model)
    return pool


def _stamp(model: Any, vocab: int, reason: str | None) -> Hashable:
    """The identity of a pool's weights: programs read weights at their addresses during the
    capture."""
    return (reason, vocab, tuple(p.data_ptr() for p in model.parameters()))


def _trial(model: Any, vocab: int, pool: CachePool) -> str | None:
    """Try the model over a static cache. Returns the reason of a failure, and warns, or None."""
    reason = _trial_result(model, vocab, pool)
    if reason is not None:
        warnings.warn(f"the static form cannot run this model: {reason}", stacklevel=5)
    # A failed capture sets the pool's reason, with its own warning.
    return reason or pool.reason


@torch.inference_mode()
def _trial_result(model: Any, vocab: int, pool: CachePool) -> str | None:
    """Try a few passes and a capture. Returns the reason of a failure, or None."""
    count = min(8, context_length(model) or 8)
    half = count // 2
    if half == 0:
        return "its context is too short"
    ids = (torch.arange(count, device=model.device) * 7 + 1) % vocab
    output = model(input_ids=ids.unsqueeze(0), use_cache=False)
    expected = output.logits[0, :, :vocab].float()
    if not torch.isfinite(expected).all():
        return "its logits are not finite"
    engine = StaticEngine(model, vocab, pool)
    try:
        first = engine.forward(ids[:half], keep=half)
        # Tokens that are taken back must leave no trace.
        engine.forward(ids[:half], keep=1)
        engine.rollback(half - 1)
        rest = engine.forward(ids[half - 1 :], keep=count - half + 1)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        return first_line(error)
    logits = torch.cat([first[:-1], rest])
    difference = (logits - expected).abs().max()
    largest = expected.abs().max().clamp(min=1.0)
    if not difference <= TOLERANCE.get(model.dtype, HALF_TOLERANCE) * largest:
        return "it gave different logits"
    cache = engine.reserve(count)
    places = torch.arange(half, count, device=ids.device)
    engine.program("trial", lambda i, at: (cache.logits(i, at, 1),), (ids[half:], places))
    return None


@torch.inference_mode()
def seconds_of_pass(model: Any, pool: CachePool) -> float:
    """Measure a captured pass over one token on a GPU: the shortest of a few times, in seconds."""
    engine = StaticEngine(model, pool.vocab, pool)
    cache = engine.reserve(1)
    inputs = torch.zeros(2, 1, dtype=torch.int64, device=model.device).unbind()
    program = engine.program("timed", lambda ids, at: (cache.logits(ids, at, 1),), inputs)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED_PASSES + 1)]
    marks[0].record()
    for mark in marks[1:]:
        program(*inputs)
        mark.record()
    torch.cuda.synchronize(model.device)
    milliseconds: list[float] = [before.elapsed_time(after) for before, after in pairwise(marks)]
    return min(milliseconds) / 1000


def _slower(ours: float, before: float) -> str | None:
    """The reason against kernels with which a pass takes `ours` seconds, if it was faster without
    them."""
    if ours <= before:
        return None
    return f"a pass takes {1e3 * before:.2f} ms with them and {1e3 * ours:.2f} ms with Triton's"


def refusal(model: Any) -> str | None:
    """The reason why `model`'s architecture cannot run over a static cache; None if it may. A trial
    run decides in the end.
    """
    parameters = inspect.signature(model.forward).parameters
    if not {"position_ids", cache_argument(model)} <= parameters.keys():
        return "it accepts no position ids"
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in ATTENTION:
        return f"its attention ({attention}) does not accept a mask of this kind"
    modules = list(model.modules())
    if any(m._forward_hooks or m._forward_pre_hooks for m in modules):
        return "hooks on its modules would not run in a captured pass"
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(devices) > 1 or any(hasattr(m, "_hf_hook") for m in modules):
        return "it is spread over several devices"
    for module in modules:
        if any(kind in MOVING_ROPE for kind in _rope_types(module)):
            return "its rotary frequencies depend on the length"
    return _layers_refusal(model)


def _rope_types(module: Any) -> list[Any]:
    kinds = getattr(module, "rope_type", None)
    if isinstance(kinds, dict):  # by the type of layer
        return list(kinds.values())
    return [kinds]


def _layers_refusal(model: Any) -> str | None:
    """The reason why a layer of the model's cache cannot be static; None if all can."""
    limit = context_length(model) or UNLIMITED
    try:
        layers = StaticCache(config=model.config, max_cache_len=limit).layers
    except (AttributeError, KeyError, TypeError, ValueError):
        return "transformers has no static cache for it"
    for layer in layers:
        if type(layer) is StaticSlidingWindowLayer:
            # A window as long as the context never slides.
            if layer.max_cache_len < limit:
                return f"it has a sliding window of {layer.max_cache_len} tokens"
        elif type(layer) is not StaticLayer:
            return "some of its layers keep a running state"
    return None

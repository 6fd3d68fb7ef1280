"""The static engine: passes of one model over a static cache, as captured programs.

    static_engine -> _pool_of -> CachePool.engine -> StaticEngine -> InPlaceCache, Program

A model has one `CachePool`, which keeps caches with their programs from run to run: an engine takes
a cache from it, and gives it back when the run ends. A new pool is tried out first: a refused model
runs in another form. Triton's kernels are compiled during the first runs. The pool tries them out
too, and switches to them between two runs.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.eager import memory_limited
from ...core.engine import BaseEngine
from ...core.model_facts import complete, context_length
from ...core.types import RunContext
from .cache import Function, InPlaceCache, Program, capacity_for
from .llama_pass import LlamaPass, llama_pass
from .path import GraphPath
from .rounds import whole_rounds
from .support import static_refusal
from .triton_support import TRITON_FORM, KernelCompilation, first_line

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.protocols import DecodingPath, WholeRounds
    from .triton_pass import TritonPass

MAX_IDLE = 3  # caches kept per model: two lanes, and a draft that is the target itself
MAX_PROGRAMS = 96  # most programs captured for one cache
TIMED_PASSES = 20
TRIAL = 8  # tokens
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest logit
HALF_TOLERANCE = 0.05  # bf16 and fp16
NOT_CAPTURED = "its passes could not be captured"

_pools: weakref.WeakKeyDictionary[Any, CachePool] = weakref.WeakKeyDictionary()


def static_engine(model: Any, vocab: int) -> StaticEngine | None:
    """An engine of the static form with an empty cache, or None if the model cannot have one."""
    complete(model)
    pool = _pool_of(model, vocab)
    if pool.refusal is not None:
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
    refusal = static_refusal(model)
    pool = _pools.get(model)
    if pool is not None and pool.stamp == _stamp(model, vocab, refusal):
        return pool
    pool = CachePool(model, vocab, refusal)
    _pools[model] = pool
    weakref.finalize(model, pool.drop_idle).atexit = False
    if refusal is None:
        refusal = _trial(model, pool)
        pool.drop_idle()  # the trial's own cache is too short to be of use
    if refusal is None:
        pool.compilation = KernelCompilation(model)
    else:
        pool.refuse(refusal)
    return pool


def _stamp(model: Any, vocab: int, refusal: str | None) -> Hashable:
    """The identity of a pool's weights: programs read weights at their addresses during the
    capture."""
    return (refusal, vocab, tuple(p.data_ptr() for p in model.parameters()))


class CachePool:
    """The idle caches of one model between runs, with their programs.

    refusal: why the model runs in another form, or None. torch_pass, triton_pass: compute short
    passes, see `InPlaceCache`. compilation: of Triton's kernels, if it has begun. has_whole_rounds:
    whether a round may be one program; false after a failure. seconds: spent on making programs.
    """

    def __init__(
        self, model: Any, vocab: int, refusal: str | None, triton_pass: TritonPass | None = None
    ) -> None:
        self.vocab = vocab
        self.refusal = refusal
        self.torch_pass: LlamaPass | None = None
        if refusal is None:
            self.torch_pass = llama_pass(model)
        self.triton_pass = triton_pass
        self.compilation: KernelCompilation | None = None
        self.stamp = _stamp(model, vocab, refusal)  # after `llama_pass`, which moves weights
        self.has_whole_rounds = True
        self.seconds = 0.0
        self._model = weakref.ref(model)
        self._engines: weakref.WeakSet[StaticEngine] = weakref.WeakSet()
        self._choosing = RLock()
        self._idle: list[InPlaceCache] = []
        self._lock = Lock()

    @property
    def triton_refusal(self) -> str | None:
        """The reason why short passes do not use Triton's kernels; None if they do."""
        if self.compilation is None:
            return None
        return self.compilation.refusal

    def engine(self, model: Any) -> StaticEngine:
        """Make an engine with an empty cache. A switch to Triton's kernels happens only between two
        runs, so that the lanes of a race never differ.
        """
        with self._choosing:
            if not self._engines and self.compilation is not None:
                triton_pass = self.compilation.take(partial(_triton_trial, model, self.vocab))
                if triton_pass is not None:
                    self._switch_to(triton_pass)
            engine = StaticEngine(model, self.vocab, self)
            self._engines.add(engine)
        return engine

    def _switch_to(self, triton_pass: TritonPass) -> None:
        with self._lock:
            self.triton_pass = triton_pass
            self._idle = []  # their programs run torch's kernels

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
        model = self._model()
        return InPlaceCache(model, self.vocab, capacity, self.torch_pass, self.triton_pass)

    def give_back(self, cache: InPlaceCache) -> None:
        """Keep `cache` for a later run, and drop the oldest one if there are enough."""
        with self._lock:
            # A cache from before the switch has programs that run torch's kernels.
            if self.refusal is None and cache.triton_pass is self.triton_pass:
                self._idle = [*self._idle, cache][-MAX_IDLE:]

    def refuse(self, reason: str) -> None:
        """Let later runs of the model take another form."""
        self.refusal = reason
        self.drop_idle()

    def drop_idle(self) -> None:
        """Free the caches that no run uses."""
        self._idle.clear()


class StaticEngine(BaseEngine):
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
        pool = self._pool
        parts = ["static"]
        has_graphs = self.device.type == "cuda" and pool.refusal is None
        if has_graphs:
            parts.append("CUDA graphs")
        if pool.triton_pass is not None:
            parts.append(TRITON_FORM)
        elif has_graphs and pool.triton_refusal is not None:
            parts.append(f"torch's kernels: {pool.triton_refusal}")
        return ", ".join(parts)

    @property
    def program_seconds(self) -> float:
        """Seconds spent on making programs for this model so far."""
        return self._pool.seconds

    @property
    def cache(self) -> InPlaceCache:
        """The cache in use."""
        assert self._cache is not None, "reserve room before the first use"
        return self._cache

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
        positions = torch.arange(self.length, end, device=self.device)
        with memory_limited():
            logits = self.reserve(end).logits(ids.to(self.device), positions, keep, layers)
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
        programs = self.cache.programs
        if key not in programs:
            with memory_limited():
                program = Program(function, inputs)
            programs[key] = program
            self._pool.seconds += program.seconds
            if is_vital and program.capture_failed:
                self._pool.refuse(NOT_CAPTURED)
            if len(programs) > MAX_PROGRAMS:
                programs.popitem(last=False)
        programs.move_to_end(key)
        return programs[key]


def _trial(model: Any, pool: CachePool) -> str | None:
    """Try the model over a static cache. Returns the reason of a failure, and warns, or None."""
    refusal = _logits_refusal(model, pool)
    if refusal is not None:
        warnings.warn(f"the static form cannot run this model: {refusal}", stacklevel=5)
        return refusal
    return _capture_refusal(model, pool)  # a failed capture has warned already


def _triton_trial(model: Any, vocab: int, triton_pass: TritonPass) -> str | None:
    """Try Triton's kernels. Returns the reason against them, or None if they give the same logits
    and are not slower."""
    with_triton = CachePool(model, vocab, None, triton_pass)
    with_torch = CachePool(model, vocab, None)
    try:
        refusal = _logits_refusal(model, with_triton) or _capture_refusal(model, with_triton)
        if refusal is None and model.device.type == "cuda":
            seconds = seconds_of_pass(model, with_triton)
            refusal = _slower(seconds, seconds_of_pass(model, with_torch))
    except Exception as error:  # Triton has errors of its own
        refusal = first_line(error)
    return refusal


@torch.inference_mode()
def _logits_refusal(model: Any, pool: CachePool) -> str | None:
    """Compare a few passes with one without a cache. Returns the reason of a failure, or None."""
    ids = _trial_ids(model, pool.vocab)
    count = len(ids)
    half = count // 2
    if half == 0:
        return "its context is too short"
    output = model(input_ids=ids.unsqueeze(0), use_cache=False)
    expected = output.logits[0, :, : pool.vocab].float()
    if not torch.isfinite(expected).all():
        return "its logits are not finite"
    engine = StaticEngine(model, pool.vocab, pool)
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
    return None


@torch.inference_mode()
def _capture_refusal(model: Any, pool: CachePool) -> str | None:
    """Make a program of a pass. Returns the reason of a failure, or None."""
    ids = _trial_ids(model, pool.vocab)
    positions = torch.arange(len(ids), device=ids.device)
    program = _pass_program("trial", StaticEngine(model, pool.vocab, pool), ids, positions)
    if program.capture_failed:
        return NOT_CAPTURED
    return None


def _trial_ids(model: Any, vocab: int) -> Tensor:
    count = min(TRIAL, context_length(model) or TRIAL)
    return (torch.arange(count, device=model.device) * 7 + 1) % vocab


def _pass_program(key: str, engine: StaticEngine, ids: Tensor, positions: Tensor) -> Program:
    """The program of a pass with the logits of the last of `ids`."""
    cache = engine.reserve(len(ids))

    def logits(ids: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        return (cache.logits(ids, positions, 1),)

    return engine.program(key, logits, (ids, positions))


@torch.inference_mode()
def seconds_of_pass(model: Any, pool: CachePool) -> float:
    """Measure a captured pass over one token on a GPU: the shortest of a few times, in seconds."""
    inputs = torch.zeros(2, 1, dtype=torch.int64, device=model.device).unbind()
    program = _pass_program("timed", StaticEngine(model, pool.vocab, pool), *inputs)
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

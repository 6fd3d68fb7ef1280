"""One model over a cache that stays in place, ready for passes that are captured.

Caches and their programs belong to the model: a run takes one from a pool and gives it back.
"""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.eager import memory_limited
from ...core.engine import OwnEngine
from ...core.types import RunContext
from .cache import InPlaceCache, window_for
from .cuda_graphs import CompiledLayers, NoHostReads, Program
from .support import compile_wanted, refusal, trial_ids

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

SPARE = 16  # places past the longest window, which the runs before a capture may write to
MOST_IDLE = 3  # caches kept per model: two lanes, and a draft that is the target itself
MOST_PROGRAMS = 96  # captured for one cache
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest logit
HALF_TOLERANCE = 0.05  # bf16 and fp16


class PooledCache:
    """A cache, and the programs that were captured over its buffers."""

    def __init__(self, cache: InPlaceCache) -> None:
        self.cache = cache
        self.programs: OrderedDict[Hashable, Program] = OrderedDict()


class CachePool:
    """What the static form keeps of one model between runs: idle caches with their programs.

    reason: why the model runs in another form, or None. seconds: spent on making programs.
    """

    def __init__(self, model: Any, vocab: int, stamp: Hashable) -> None:
        self.stamp, self.seconds = stamp, 0.0
        self.reason: str | None = None
        self.compiled: CompiledLayers | None = None
        if compile_wanted():
            decoder = model.get_decoder()
            self.compiled = CompiledLayers(getattr(decoder, "layers", None) or [])
        self._idle: list[PooledCache] = []
        self._lock = Lock()

    def take(
        self, model: Any, vocab: int, capacity: int, wanted: Iterable[Hashable] = ()
    ) -> PooledCache:
        """A cache of at least `capacity` places, if possible one with the programs `wanted`."""
        keys = set(wanted)
        with self._lock:
            fitting = [pooled for pooled in self._idle if pooled.cache.capacity >= capacity]
            if fitting:
                best = max(fitting, key=lambda pooled: len(keys & pooled.programs.keys()))
                self._idle.remove(best)
                best.cache.clear()
                return best
        return PooledCache(InPlaceCache(model, vocab, capacity))

    def give_back(self, pooled: PooledCache) -> None:
        """Keep `pooled` for a later run, and the oldest no longer if there are enough."""
        with self._lock:
            self._idle = [] if self.reason else [*self._idle, pooled][-MOST_IDLE:]

    def close(self) -> None:
        """Free all that is idle."""
        self._idle.clear()


class StaticEngine(OwnEngine):
    """The `Engine` over a `InPlaceCache`, and the keeper of its programs."""

    def __init__(self, model: Any, vocab: int, pool: CachePool) -> None:
        self.device = torch.device(model.device)
        self.length = 0
        self.vocab = vocab
        self._model, self._pool = model, pool
        self._pooled: PooledCache | None = None

    def path(self, run: RunContext) -> DecodingPath:
        from .path import GraphPath  # which captures programs over this engine

        return GraphPath(self, run)

    @property
    def form(self) -> str:
        graphs = self.device.type == "cuda" and self._pool.reason is None
        parts = [
            "static",
            "CUDA graphs" if graphs else "",
            "compiled" * bool(self._pool.compiled),
        ]
        return ", ".join(part for part in parts if part)

    @property
    def cache(self) -> InPlaceCache:
        """The cache in use, for the programs over it."""
        return self._taken().cache

    def reserve(self, length: int, wanted: Iterable[Hashable] = ()) -> None:
        """Make room for `length` tokens. wanted: programs that the run is going to ask for."""
        capacity = window_for(length) + SPARE
        if self._pooled is None:
            self._pooled = self._pool.take(self._model, self.vocab, capacity, wanted)
            # However a run ends, abandoned or not, its cache goes back when nobody holds it.
            weakref.finalize(self, self._pool.give_back, self._pooled).atexit = False
        elif self._pooled.cache.capacity < capacity:
            # Programs know their buffers by address.
            self._pooled.programs.clear()
            self._pooled.cache.grow(capacity, self.length)

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        end = self.length + ids.shape[0]
        places = torch.arange(self.length, end, device=self.device)
        with memory_limited():
            self.reserve(end)
            window = window_for(end)
            rows = self.cache.logits(ids.to(self.device), places, window, keep, layers)
        self.length = end
        return rows if temperature == 1.0 else rows / temperature

    def rollback(self, length: int) -> None:
        self.length = length

    def program(self, key: Hashable, make: Callable[[], Program]) -> Program:
        """The program of that name over the present buffers, made if need be."""
        programs = self._taken().programs
        if key not in programs:
            programs[key] = self._made(make)
            while len(programs) > MOST_PROGRAMS:
                programs.popitem(last=False)
        programs.move_to_end(key)
        return programs[key]

    def _made(self, make: Callable[[], Program]) -> Program:
        pool = self._pool
        with memory_limited():
            if pool.compiled is None:
                program = make()
            else:
                with pool.compiled.active():
                    program = make()
        pool.seconds += program.seconds
        if self.device.type == "cuda" and not program.graphed:
            pool.reason = "its passes could not be captured"
        return program

    def _taken(self) -> PooledCache:
        if self._pooled is None:
            self.reserve(1)
        assert self._pooled is not None
        return self._pooled


_pools: weakref.WeakKeyDictionary[Any, CachePool] = weakref.WeakKeyDictionary()


def static_engine(model: Any, vocab: int) -> StaticEngine | None:
    """An engine of the static form with an empty cache, or None if the model cannot have one."""
    pool = _pool_of(model, vocab)
    return StaticEngine(model, vocab, pool) if pool.reason is None else None


def static_reason(model: Any, vocab: int) -> str | None:
    """Why the static form cannot run this model, or None if it can."""
    return _pool_of(model, vocab).reason


def startup_seconds(model: Any) -> float:
    """What making programs for `model` has taken so far, compiling included."""
    return _pools[model].seconds if model in _pools else 0.0


def _pool_of(model: Any, vocab: int) -> CachePool:
    # Programs read weights where they lay when captured.
    stamp = (vocab, compile_wanted(), *(p.data_ptr() for p in model.parameters()))
    pool = _pools.get(model)
    why = refusal(model)
    if pool is None or pool.stamp != (why, *stamp):
        pool = _pools[model] = CachePool(model, vocab, (why, *stamp))
        weakref.finalize(model, pool.close).atexit = False
        pool.reason = why or _trial(model, vocab, pool)
        pool.close()  # the trial's own cache is too short to be of use
    return pool


@torch.inference_mode()
def _trial(model: Any, vocab: int, pool: CachePool) -> str | None:
    """What goes wrong when the model runs over a static cache, or None; warns if anything."""
    ids = trial_ids(model, vocab)
    half = len(ids) // 2
    if half == 0:
        return "its context is too short"
    wanted = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0, :, :vocab].float()
    if not torch.isfinite(wanted).all():
        return "its logits are not finite"
    engine = StaticEngine(model, vocab, pool)
    try:
        with NoHostReads():  # type: ignore[no-untyped-call]
            first = engine.forward(ids[:half], keep=half)
            # Tokens that are taken back must leave no trace.
            engine.forward(ids[:half], keep=1)
            engine.rollback(half - 1)
            rest = engine.forward(ids[half - 1 :], keep=len(ids) - half + 1)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    else:
        off = (torch.cat([first[:-1], rest]) - wanted).abs().max()
        allowed = TOLERANCE.get(model.dtype, HALF_TOLERANCE) * wanted.abs().max().clamp(min=1.0)
        if off <= allowed:
            return None
        reason = "it gave other logits"
    warnings.warn(f"the static form cannot run this model: {reason}", stacklevel=5)
    return reason

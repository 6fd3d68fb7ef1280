"""Which engine runs a model, the first of the table that can; and what any engine needs: clock,
prefill, threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ..environment import FORM, THREADS, T, on_zerogpu
from ..lanes import BASELINE, Lane
from ..settings import Settings
from .kinds import EngineKind
from .registry import engines
from .stopping import check_stop

if TYPE_CHECKING:
    from ..pairs.pair import Pair
    from .protocols import DecodingPath, Engine, LanguageModel, StateEngine
    from .types import RunContext

_used: ContextVar[int | None] = ContextVar("threads", default=None)
_of_the_page = 0  # processors
_eager_only: ContextVar[bool] = ContextVar("eager_only", default=False)


class OwnEngine:
    """What engines of this machine have in common."""

    partial = False

    def path(self, run: RunContext) -> DecodingPath:
        """Call by call, in the host's memory if all of it lies there."""
        from .paths import plain_path  # which needs engines

        return plain_path(self, run)  # type: ignore[arg-type]

    def around(self) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def told(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class ModelElsewhere:
    """A target that is no module of transformers here, so that it brings its own engine."""

    def make_engine(self, vocab: int, states: bool) -> Engine:
        """As `make_engine` below."""
        raise NotImplementedError

    def pass_cost(self) -> float:
        """As `core.cost.pass_cost`; raises `PairError` if nobody knows."""
        raise NotImplementedError

    def header_fields(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """Fields of a `Header` that only this target knows."""
        return {}


def host_ids(ids: Sequence[int]) -> Tensor:
    """int64 [n] in the host's memory; torch.tensor takes three times as long."""
    return torch.from_numpy(np.array(ids, np.int64))


def prefill(engine: Engine, ids: Sequence[int]) -> float:
    """Feed `ids` (possibly none) into an empty engine; returns synchronised seconds. Raises
    `Stopped`."""
    check_stop()
    start = now(engine.device)
    if ids:
        engine.forward(torch.tensor(ids, device=engine.device), keep=1)
        engine.rollback(engine.length)
    return now(engine.device) - start


def spare_threads() -> int:
    """Let torch use half of the processors, or SPECVIZ_THREADS of them; returns how many.
    Raises `SettingsError`. Compiled passes have threads of their own: see `used_threads`.

    A short pass waits for its slowest thread, so a thread that shares its processor with the
    browser or the server delays all others.
    """
    torch.set_num_threads(THREADS.read() or max(1, (os.cpu_count() or 2) // 2))
    return torch.get_num_threads()


def now(device: torch.device) -> float:
    """Seconds of a monotonic clock, read after all work queued on `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def processors() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def leave_one_to_the_page() -> None:
    """From now on no pass takes all processors: the page's server and browser need one."""
    global _of_the_page
    _of_the_page = 1


def most_threads() -> int:
    """The most threads that a pass may take. Raises `SettingsError`."""
    return THREADS.read() or max(1, processors() - _of_the_page)


def used_processors() -> int:
    """The threads of passes that every processor helps: SPECVIZ_THREADS, else as many as there are
    processors. Raises `SettingsError`."""
    return _used.get() or THREADS.read() or processors()


def thread_counts() -> list[int]:
    """The numbers of threads to choose from: powers of two, and the most. Only SPECVIZ_THREADS if
    that is set. Raises `SettingsError`."""
    fixed = _used.get() or THREADS.read()
    if fixed:
        return [fixed]
    most = most_threads()
    return [*(2**i for i in range(most.bit_length()) if 2**i < most), most]


@contextmanager
def _within(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def use_threads(count: int) -> AbstractContextManager[None]:
    """Engines that are made within share their passes among so many threads at most."""
    return _within(_used, count)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Within, torch computes in the calling thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def used_threads() -> int:
    """How many threads an engine that is made here and now may use."""
    return _used.get() or most_threads()


def eager_only() -> AbstractContextManager[None]:
    """Within, every model runs as transformers' own modules, for comparisons on equal modules."""
    return _within(_eager_only, True)


def make_engine(model: LanguageModel, vocab: int, *, states: bool = False) -> Engine:
    """The fastest engine that can run this model exactly, with an empty cache.

    states: one that hands out hidden states. Raises `PairError` for a target that has none to give.
    """
    if isinstance(model, ModelElsewhere):
        return model.make_engine(vocab, states)
    for kind in usable_engines():
        if kind.make is not None and (kind.states or not states):
            engine = kind.make(model, vocab)
            if engine is not None:
                return engine
    raise AssertionError("the last engine of the table runs any model")


def make_state_engine(model: LanguageModel, vocab: int) -> StateEngine:
    """`make_engine` for a head that reads hidden states."""
    return cast("StateEngine", make_engine(model, vocab, states=True))


def lane_threads(pair: Pair, lane: Lane) -> int:
    """How many threads share the passes of a lane: as many as make its rounds fastest here, with a
    draft model and gamma as `Settings` has them by default.

    Measured once per process and pair, in less than two seconds.
    """
    target, draft, width = pair.target, None, 1
    if lane != BASELINE:
        width = Settings().gamma + 1
        draft = pair.draft if pair.shared is None else None  # it has a vocabulary of its own
    for kind in usable_engines():
        if kind.threads and not isinstance(target, ModelElsewhere):
            return kind.threads(target, draft, pair.vocab, width)
    return torch.get_num_threads()


def usable_engines() -> Iterator[EngineKind]:
    """The engines that may run here and now, the fastest first. A process on ZeroGPU makes only a
    few runs: too few to prepare another form than the plainest."""
    plainest = on_zerogpu() or _eager_only.get()
    for kind in engines():
        asked = not kind.asked or (not plainest and FORM.read() == kind.name)
        if asked and (kind.anywhere or not plainest) and _installed(kind.package):
            yield kind


@cache
def _installed(package: str | None) -> bool:
    return package is None or find_spec(package) is not None

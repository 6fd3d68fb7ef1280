"""Choose the engine of a model: the first in the registry that can run it now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

import torch

from ..base.environment import FORM, PLAINEST, on_zerogpu
from ..base.errors import PairError
from .engine import RemoteModel
from .lanes import BASELINE, Lane
from .model_facts import changed_file
from .records import EngineKind
from .registry import engine_kind, engines
from .settings import Settings

if TYPE_CHECKING:
    from .pair import Pair
    from .protocols import Engine, LanguageModel, StateEngine

_eager_only: ContextVar[bool] = ContextVar("eager_only", default=False)


@contextmanager
def eager_only() -> Iterator[None]:
    """Context manager: run every model with transformers' own modules, for fair comparisons."""
    token = _eager_only.set(True)
    try:
        yield
    finally:
        _eager_only.reset(token)


def make_engine(model: LanguageModel, vocab: int, *, hidden_states: bool = False) -> Engine:
    """Make the fastest engine that runs this model exactly, with an empty cache.

    hidden_states: the engine must hand them out. Raises `PairError` for a target that has none to
    hand out, and for weights mapped from a file that has been written to since.
    """
    if isinstance(model, RemoteModel):
        return model.make_engine(vocab, hidden_states)
    if name := changed_file(model):
        raise PairError(f"{name} was modified while its weights were in use: load the pair again.")
    if model.device.type == "cuda":
        # torch prefers cuDNN's attention on Hopper, which takes 30 ms to prepare each new length.
        torch.backends.cuda.enable_cudnn_sdp(False)
    for kind in usable_engines():
        if kind.make is not None and (kind.hidden_states or not hidden_states):
            engine = kind.make(model, vocab)
            if engine is not None:
                return engine
    raise AssertionError("the last engine of the table runs any model")


def make_state_engine(model: LanguageModel, vocab: int) -> StateEngine:
    """Make an engine, as `make_engine` does, for a head that reads hidden states."""
    return cast("StateEngine", make_engine(model, vocab, hidden_states=True))


def lane_threads(pair: Pair, lane: Lane, engine: Engine) -> int:
    """Return the number of threads with which a lane's rounds are fastest here.

    It holds for a draft model and the default gamma of `Settings`, and is measured once per process
    and pair, in less than two seconds. engine: the target's, which may use threads other than
    torch's. Raises `SpecvizError`.
    """
    draft = None
    width = 1
    if lane != BASELINE:
        width = Settings().gamma + 1
        if pair.shared is None:  # else it has its own vocabulary
            draft = pair.draft
    fastest_threads = engine_kind(engine.name).threads
    if fastest_threads is None:
        return torch.get_num_threads()
    return fastest_threads(pair.target, draft, pair.vocab, width)


def usable_engines() -> Iterator[EngineKind]:
    """The engines that can run here now, the fastest first. A process on ZeroGPU makes only a
    few runs: too few to pay for preparing any form but the plainest."""
    plainest = on_zerogpu() or _eager_only.get() or FORM.read() == PLAINEST
    for kind in engines():
        if (kind.anywhere or not plainest) and _installed(kind.package):
            yield kind


@cache
def _installed(package: str | None) -> bool:
    return package is None or find_spec(package) is not None

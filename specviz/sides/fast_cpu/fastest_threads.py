"""The number of threads with the fastest rounds, measured once per process and pair."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from ...core.engine_choice import make_engine
from ...core.model_facts import context_length, pass_bytes
from ...core.threads import all_threads, thread_counts

if TYPE_CHECKING:
    from ...core.protocols import Engine

# From this many bytes of weights on, every processor helps: a pass then takes tens of milliseconds,
# in which the page's server and its browser need little of a processor.
LARGE = 400_000_000

ROUNDS = 8  # rounds per turn of a number of threads; the first one wakes the threads
TURNS = 4
SECONDS = 1.0  # time budget, after which no further turn begins
CACHED = 64  # tokens before the rounds
WORTH = 0.97  # more threads must take less than this share of the time of fewer

_known: WeakKeyDictionary[Any, dict[tuple[int, bool], int]] = WeakKeyDictionary()


def fastest_threads(target: Any, draft: Any, vocab: int, width: int) -> int:
    """The number of threads for rounds of one target pass over `width` tokens after `width` - 1
    passes of the draft (None: no passes) over one token each.

    target, draft: models of transformers; the target's passes are compiled. The first call for a
    target runs such rounds with every number of `thread_counts` in turn and compares their
    medians; later calls reuse the answer. Raises `SpecvizError`.
    """
    if pass_bytes(target) >= LARGE:
        return all_threads()
    counts = thread_counts()
    if len(counts) == 1:
        return counts[0]
    known = _known.setdefault(target, {})
    key = (width, draft is not None)
    if key not in known:
        known[key] = _measured(target, draft, vocab, width, counts)
    return known[key]


def _measured(target: Any, draft: Any, vocab: int, width: int, counts: list[int]) -> int:
    """The number of threads with the fastest rounds; of about equally fast ones, the lowest."""
    models = [target]
    if draft is not None:
        models.append(draft)
    cached = _tokens_to_cache(models, width)
    if cached < 1:
        return counts[0]
    engines_by_count = {}
    for count in counts:
        engines = [make_engine(model, vocab) for model in models]
        for engine in engines:
            engine.limit_threads(count)
            _fill_cache(engine, cached)
        engines_by_count[count] = engines
    medians = _median_seconds(engines_by_count, width)
    best = counts[0]
    for count in counts[1:]:
        if medians[count] < WORTH * medians[best]:
            best = count
    return best


def _tokens_to_cache(models: Sequence[Any], width: int) -> int:
    """The number of tokens before the measured rounds, such that these fit every context."""
    cached = CACHED
    for model in models:
        limit = context_length(model)
        if limit:
            cached = min(cached, limit - width)
    return cached


def _fill_cache(engine: Engine, tokens: int) -> None:
    engine.forward(torch.zeros(tokens, dtype=torch.long, device=engine.device), keep=1)
    engine.rollback(tokens)


def _median_seconds(
    engines_by_count: Mapping[int, Sequence[Engine]], width: int
) -> dict[int, float]:
    """The median seconds of a round for each number of threads, which take turns."""
    seconds: dict[int, list[float]] = defaultdict(list)
    end = time.perf_counter() + SECONDS
    for _ in range(TURNS):
        for count, engines in engines_by_count.items():
            rounds = [_seconds(*engines, width=width) for _ in range(ROUNDS)]
            seconds[count] += rounds[1:]
        if time.perf_counter() > end:
            break
    return {count: statistics.median(values) for count, values in seconds.items()}


@torch.inference_mode()
def _seconds(target: Engine, *drafts: Engine, width: int) -> float:
    """The seconds of a round without sampling: threads share passes only."""
    cached = target.length
    start = time.perf_counter()
    ids = torch.zeros(width, dtype=torch.long)
    for draft in drafts:
        for _ in ids[1:]:
            draft.forward(ids[:1].to(draft.device), keep=1)
        draft.rollback(cached)
    target.forward(ids, keep=width)
    target.rollback(cached)
    return time.perf_counter() - start

"""What the benchmarks share: a prompt's value over its repeats, numbers of threads, fp32."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ...core.pair import Pair
from ...core.threads import use_threads
from ...runs.metrics import Metrics

Summary = TypeVar("Summary")


def over_prompts(
    runs: Sequence[Sequence[Metrics]],
    figure: Callable[[Metrics], float | None],
    summary: Callable[[list[float]], Summary],
) -> Summary | None:
    """The summary of a figure's values: of each prompt that has it, the median over its repeats.
    None if no prompt has it. runs: of each prompt."""
    medians = []
    for repeats in runs:
        values = [value for value in map(figure, repeats) if value is not None]
        if values:
            medians.append(statistics.median(values))
    return summary(medians) if medians else None


@contextmanager
def all_with(threads: int) -> Iterator[None]:
    """Within, torch and compiled passes share their work among so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with use_threads(threads):
            yield
    finally:
        torch.set_num_threads(before)


def in_fp32(pair: Pair) -> Pair:
    """On a processor, the same pair with copies of those models that have other weights than fp32,
    in which the lanes compute there."""
    if pair.device.type != "cpu":
        return pair
    target = _converted(pair.target, torch.float32)
    draft = None if pair.draft is None else _converted(pair.draft, torch.float32)
    return replace(pair, target=target, draft=draft)


def in_one_dtype(pair: Pair) -> Pair:
    """The same pair for transformers' own modules, which need all weights of a model in one dtype:
    where matrices were unpacked to 16 bits, norms are in fp32."""
    target = _converted(pair.target, pair.target.dtype)
    draft = None if pair.draft is None else _converted(pair.draft, pair.draft.dtype)
    return replace(pair, target=target, draft=draft)


def _converted(model: Any, dtype: torch.dtype) -> Any:
    """The model, or a copy of it in `dtype` if it has weights of others."""
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    return model if dtypes <= {dtype} else copy.deepcopy(model).to(dtype)

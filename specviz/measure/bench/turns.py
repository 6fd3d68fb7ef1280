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
    known = ([v for m in again if (v := figure(m)) is not None] for again in runs)
    values = [statistics.median(some) for some in known if some]
    return summary(values) if values else None


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
    held: dict[str, Any] = {"target": pair.target, "draft": pair.draft}
    widened = {
        role: copy.deepcopy(model).float()
        for role, model in held.items()
        if model is not None and model.dtype != torch.float32
    }
    return replace(pair, **widened)

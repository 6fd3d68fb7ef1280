"""How many kernels a GPU runs for a target pass and for a draft step.

Each takes microseconds, however little it computes, so their number limits the speed of a small
model, as bytes limit that of a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...core.engine_choice import make_engine
from ...core.lanes import SPECULATIVE
from ...core.pair import Pair
from ...core.paths import make_context
from ...core.settings import Settings

PROMPT = 8  # tokens; the last one is fed
COPIES = ("Memcpy", "Memset")  # how the profiler's names of what computes nothing begin


def kernels_by_role(pair: Pair, settings: Settings) -> dict[str, int]:
    """The kernels of a pass of the "target" over one token with its verdict, and of a step of the
    "draft" model, if the pair has one; nothing where no GPU runs them."""
    models = {"target": pair.target, "draft": pair.draft}
    kernels = {}
    for role, model in models.items():
        if model is not None and model.device.type == "cuda":
            run_pass = one_pass(pair, model, settings, role)
            kernels[role] = _kernels_within(run_pass)
    return kernels


def one_pass(pair: Pair, model: Any, settings: Settings, role: str) -> Callable[[], object]:
    """A function that runs a pass of the model in its role, the same in each call."""
    run = make_context(settings, pair.vocab, pair.device, None, SPECULATIVE)
    engine = make_engine(model, pair.vocab)
    path = engine.path(run)
    ids = [1 + index % (pair.vocab - 1) for index in range(PROMPT)]
    engine.forward(torch.tensor(ids[:-1], device=engine.device), keep=1)

    @torch.inference_mode()
    def pass_of_role() -> object:
        engine.rollback(PROMPT - 1)
        if role == "target":
            return path.judge(ids, None)
        return path.draft(ids, 1)

    return pass_of_role


def _kernels_within(run_pass: Callable[[], object]) -> int:
    run_pass()  # it captures what is to be captured
    run_pass()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run_pass()
        torch.cuda.synchronize()
    return count_kernels(profile.events())


def count_kernels(events: Iterable[Any]) -> int:
    """The kernels among the events of torch's profiler."""
    names_on_gpu = [event.name for event in events if event.device_type.name == "CUDA"]
    return sum(not name.startswith(COPIES) for name in names_on_gpu)

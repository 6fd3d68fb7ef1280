"""Functions of fixed shapes that a GPU replays without Python: CUDA graphs.

Off CUDA a program runs its function over the same buffers, so that all but the capture itself is
the same code on every device.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor

Function: TypeAlias = Callable[..., tuple[Tensor, ...]]

WARM_UPS = 3  # runs before a capture: kernels are chosen and workspaces allocated in them
MOST_SHAPES = 64  # for which a layer is compiled; past them it runs as it is

_one_at_a_time = Lock()  # CUDA allows one capture in a process


class Program:
    """`function(*inputs)`, ready to be run again with other values of the same shapes.

    It runs a few times here, over `inputs`, so it must be repeatable; it must neither look at a
    value on the host nor change a shape. Its outputs are valid until its next call. Where a
    capture fails, a warning says so, and the program runs its function as it is.

    graphed: whether calls replay a CUDA graph. seconds: how long it took to make.
    """

    def __init__(self, function: Function, inputs: Sequence[Tensor]) -> None:
        start = time.perf_counter()
        self.inputs = tuple(given.clone() for given in inputs)
        self.outputs: tuple[Tensor, ...] = ()
        self._function = function
        self._graph: Any = None
        device = self.inputs[0].device
        if device.type == "cuda":
            self._graph = _captured(self._run, device)
        self.graphed = self._graph is not None
        self.seconds = time.perf_counter() - start

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for kept, given in zip(self.inputs, inputs, strict=True):
            kept.copy_(given, non_blocking=True)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()
        return self.outputs

    def _run(self) -> None:
        results = self._function(*self.inputs)
        if not self.outputs:
            # Outside a capture's memory, where a later program would write over them.
            self.outputs = tuple(torch.empty_like(result) for result in results)
        for kept, result in zip(self.outputs, results, strict=True):
            kept.copy_(result)


def _captured(run: Callable[[], None], device: torch.device) -> Any:
    """A CUDA graph of `run`, or None with a warning."""
    stream, pool = _shared(device)
    graph = torch.cuda.CUDAGraph()
    with _one_at_a_time, torch.cuda.stream(stream):  # which a failed capture would leave current
        for _ in range(WARM_UPS):
            run()
        try:
            # Other threads may continue their own work meanwhile.
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                run()
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            warnings.warn(
                f"a CUDA graph could not be captured ({why}); its steps run one by one",
                stacklevel=5,
            )
            return None
    return graph


@cache
def _shared(device: torch.device) -> tuple[Any, Any]:
    """The stream and the memory of all captures: those that share memory must share a stream."""
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()


@contextmanager
def compiled(layers: Sequence[Any]) -> Iterator[None]:
    """Within it, calls of these modules run compiled; the first of each shape takes long."""
    for layer in layers:
        layer.compile()
    try:
        with torch._dynamo.config.patch(recompile_limit=MOST_SHAPES):
            yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None

"""Functions of fixed shapes that a GPU replays without Python: CUDA graphs, and their rules.

A program reads its inputs from, and writes its outputs to, tensors that stay in place. On CUDA
it is captured once and replayed; elsewhere the same function runs over the same tensors, so that
everything except the capture itself is the same code on every device.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Function: TypeAlias = Callable[..., tuple[Tensor, ...]]

MOST_SHAPES = 64  # for which a layer is compiled; past them it runs as it is
WARM_UPS = 3  # runs before a capture: kernels are chosen and workspaces allocated in them

_one_at_a_time = Lock()  # CUDA allows one capture in a process
_streams: dict[torch.device, Any] = {}  # captures that share memory must share a stream
_pools: dict[torch.device, Any] = {}


class Program:
    """A captured function. Write `inputs`, then `forward` leaves its results in `outputs`.

    Both never move, and the outputs of one pass are valid until the next.
    graphed: whether passes replay a CUDA graph. seconds: how long it took to make.
    """

    def __init__(self, function: Function, inputs: Sequence[Tensor]) -> None:
        self.inputs = tuple(inputs)
        self.device = self.inputs[0].device
        self.outputs: tuple[Tensor, ...] = ()
        self.seconds = 0.0
        self._function = function
        self._graph: Any = None

    @property
    def graphed(self) -> bool:
        return self._graph is not None

    @torch.inference_mode()
    def forward(self) -> tuple[Tensor, ...]:
        if self._graph is not None:
            self._graph.replay()
        else:
            self._body()
        return self.outputs

    def _body(self) -> None:
        results = self._function(*self.inputs)
        if not self.outputs:
            # Outside a capture's memory, where a later program would write over them.
            self.outputs = tuple(torch.empty_like(r) for r in results)
        for kept, result in zip(self.outputs, results, strict=True):
            kept.copy_(result)


@torch.inference_mode()
def capture(function: Function, inputs: Sequence[Tensor]) -> Program:
    """`function(*inputs)` as a program. It runs a few times here, so it must be repeatable.

    `function` takes and returns tensors of one device, and must neither look at a value on the
    host nor change a shape from call to call. Where a CUDA capture fails, a warning says so and
    the program runs the function as it is.
    """
    start = time.perf_counter()
    program = Program(function, inputs)
    device = program.device
    if device.type == "cuda":
        with _one_at_a_time:
            _graph_into(program, device)
    else:
        program.forward()
    program.seconds = time.perf_counter() - start
    return program


def _graph_into(program: Program, device: torch.device) -> None:
    stream = _streams.setdefault(device, torch.cuda.Stream(device))
    pool = _pools.setdefault(device, torch.cuda.graph_pool_handle())
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            program.forward()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        try:
            # Other threads may continue their own work meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                program.forward()
            finally:
                graph.capture_end()
        except RuntimeError as error:
            warnings.warn(
                f"a CUDA graph could not be captured ({str(error).splitlines()[0]}); "
                "its steps run one by one",
                stacklevel=4,
            )
        else:
            program._graph = graph
    torch.cuda.current_stream(device).wait_stream(stream)


def write(target: Tensor, values: Sequence[int]) -> None:
    """Put `values` into the int64 tensor `target` [n] without waiting for its device."""
    # Pinned memory is reused only after the copy has ended.
    target.copy_(torch.tensor(values, pin_memory=target.is_cuda), non_blocking=True)


class HostRead(RuntimeError):
    """The host read a value on the device, which no captured function may do."""


# The shape or value of their results depends on the content of a tensor: the host must wait.
READERS = {
    "_local_scalar_dense",
    "is_nonzero",
    "equal",
    "allclose",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "repeat_interleave",
    "multinomial",
}


class NoHostReads(TorchDispatchMode):
    """Within it, an operation that a CUDA graph cannot hold raises `HostRead`, on any device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # In inference mode operations arrive whole; only their parts tell.
        with self:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        name = func.overloadpacket.__name__
        result = func(*args, **kwargs)
        if name in READERS or _indexes_by_truth(name, args) or _crosses_devices(args, result):
            raise HostRead(f"{name} makes the host wait for the device")
        return result


def _indexes_by_truth(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a mask selects entries: their number decides the shape."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])


def _crosses_devices(args: tuple[Any, ...], result: Any) -> bool:
    # Single numbers may be on the host: the kernel that uses them carries them along.
    tensors = [t for t in (*args, result) if isinstance(t, Tensor) and t.dim()]
    return len({t.device for t in tensors}) > 1


class CompiledLayers:
    """Modules that run compiled within `active`, and as they are everywhere else.

    Compilation happens at the first call, which takes long.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self._calls = [(layer, torch.compile(layer._call_impl)) for layer in layers]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within it, calls of the modules run compiled."""
        for layer, call in self._calls:
            layer._compiled_call_impl = call
        try:
            with torch._dynamo.config.patch(recompile_limit=MOST_SHAPES):
                yield
        finally:
            for layer, _ in self._calls:
                layer._compiled_call_impl = None

"""transformers' static cache with explicit write positions, passes over it with fixed shapes, and
their programs, which a GPU replays without Python: CUDA graphs.

A write replaces what the cache had at a position, and positions past a token are masked, so a
rollback only decreases a counter. Off CUDA a program runs its function over the same buffers, so
that all but the capture itself is the same code on every device.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache, StaticCache
from transformers.cache_utils import StaticLayer

from ...base.environment import collector_paused
from ...core.layers import first_layers
from ...core.model_facts import cache_argument, context_length
from .llama_pass import MAX_TOKENS, LlamaPass
from .triton_weights import ROWS

if TYPE_CHECKING:
    from .triton_pass import TritonPass

SMALLEST = 256  # positions of the shortest buffers

Function: TypeAlias = Callable[..., tuple[Tensor, ...]]

WARM_UPS = 3  # runs before a capture: kernels are chosen and workspaces allocated in them

_one_at_a_time = Lock()  # CUDA allows one capture in a process
_numbers = count()  # numbers of caches

# A failed capture keeps claiming memory in torch's allocator, which asks it about later
# allocations: it must stay alive, and later captures need other memory.
_failed: list[Any] = []


def capacity_for(length: int) -> int:
    """The capacity of the buffers for `length` tokens: few sizes, so that runs share them."""
    return max(SMALLEST, 1 << (length - 1).bit_length())


class Program:
    """`function(*inputs)`, ready to be run again with other values of the same shapes.

    The constructor runs it a few times over `inputs`, so it must be repeatable; it must neither
    read a value on the host nor change a shape. Its outputs are valid until its next call. If a
    capture fails, a warning says so, and the program calls its function directly.

    function: the function that it runs. graphed: whether calls replay a CUDA graph. capture_failed:
    whether a GPU could not capture it. seconds: spent on making it.
    """

    def __init__(self, function: Function, inputs: Sequence[Tensor]) -> None:
        start = time.perf_counter()
        self.function = function
        self.inputs = tuple(tensor.clone() for tensor in inputs)
        self.outputs: tuple[Tensor, ...] = ()
        self._graph: Any = None
        device = self.inputs[0].device
        if device.type == "cuda":
            self._graph = _captured(self._run, device)
        self.graphed = self._graph is not None
        self.capture_failed = device.type == "cuda" and not self.graphed
        self.seconds = time.perf_counter() - start

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for buffer, tensor in zip(self.inputs, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()
        return self.outputs

    def _run(self) -> None:
        results = self.function(*self.inputs)
        if not self.outputs:
            # Outside a capture's memory, where a later program would write over them.
            self.outputs = tuple(torch.empty_like(result) for result in results)
        for buffer, result in zip(self.outputs, results, strict=True):
            buffer.copy_(result)


def _captured(run: Callable[[], None], device: torch.device) -> Any:
    """A CUDA graph of `run`, or None with a warning."""
    current = torch.cuda.current_stream(device)
    graph = torch.cuda.CUDAGraph()
    # A capture fails if this thread frees another graph meanwhile, as a search for garbage may.
    with _one_at_a_time, collector_paused():
        stream, pool = _capture_resources(device)
        with torch.cuda.stream(stream):  # a failed capture would leave its own stream current
            stream.wait_stream(current)  # it may still be filling the inputs
            for _ in range(WARM_UPS):
                run()
            try:
                # Other threads may continue their own work meanwhile.
                with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                    run()
            except RuntimeError as error:
                _failed.append(graph)
                _capture_resources.cache_clear()
                current.wait_stream(stream)
                warnings.warn(
                    f"a CUDA graph could not be captured ({_first_reason(error)}); "
                    "its steps run one by one",
                    stacklevel=5,
                )
                return None
    return graph


def _first_reason(error: BaseException) -> str:
    """The first error of a failed capture, whose end raises an error of its own."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).splitlines()[0]


@cache
def _capture_resources(device: torch.device) -> tuple[Any, Any]:
    """The stream and the memory of all captures: those that share memory must share a stream."""
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()


class Written:
    """The positions that a pass writes, int64 [n], shared by all layers of a cache."""

    positions: Tensor


class PositionedLayer(StaticLayer):
    """A layer of transformers' static cache that writes to given positions.

    transformers' own counter would have to be reset in every layer after each round, and costs
    three more small kernels per layer and pass.
    """

    keys: Tensor  # [1, heads, capacity, head_dim], as are the values
    values: Tensor

    def __init__(self, written: Written, capacity: int) -> None:
        super().__init__(max_cache_len=capacity)
        self._written = written

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # transformers' own marks the buffers for its compiler, whose import takes seconds.
        self.keys = self._buffer_for(key_states)
        self.values = self._buffer_for(value_states)
        self.is_initialized = True

    def _buffer_for(self, states: Tensor) -> Tensor:
        batch, heads, _, head_dim = states.shape
        return states.new_zeros(batch, heads, self.max_cache_len, head_dim)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys.index_copy_(2, self._written.positions, key_states)
        self.values.index_copy_(2, self._written.positions, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> Any:
        return self._written.positions[0]


class InPlaceCache:
    """A model's cache, the passes over it, and the programs that were captured over its buffers.

    It does not keep the model alive. torch_pass: computes passes over at most `MAX_TOKENS` tokens
    instead of the modules. triton_pass: the same for at most `ROWS` tokens. number: unique to this
    cache; the address of an object may be reused.
    """

    def __init__(
        self,
        model: Any,
        vocab: int,
        capacity: int,
        torch_pass: LlamaPass | None = None,
        triton_pass: TritonPass | None = None,
    ) -> None:
        self.capacity = capacity
        self.number = next(_numbers)
        self.programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._model = weakref.ref(model)
        self._vocab = vocab
        self._torch_pass = torch_pass
        self.triton_pass = triton_pass
        self._shallow_models: dict[int, Any] = {}  # number of layers -> the model of these
        self._written = Written()
        depth = len(StaticCache(config=model.config, max_cache_len=1).layers)
        self.layers = [PositionedLayer(self._written, capacity) for _ in range(depth)]
        self._cache = Cache(layers=list(self.layers))
        self._last_position = (context_length(model) or sys.maxsize) - 1
        self._has_additive_mask = model.config._attn_implementation == "eager"
        self._cache_argument = cache_argument(model)
        self._trims_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def logits(
        self, ids: Tensor, positions: Tensor, keep: int, layers: int | None = None
    ) -> Tensor:
        """Write int64 `ids` [n] to `positions` [n]; fp32 logits of the last `keep`: [keep, vocab].

        Each token attends to positions up to its own. layers: the number of first layers to run;
        None is all.
        """
        if self.triton_pass is not None and len(ids) <= ROWS:
            logits = self.triton_pass.logits(ids, positions, keep, self.layers, layers)
            return logits[:, : self._vocab]
        self._written.positions = positions
        visible = torch.arange(self.capacity, device=ids.device) <= positions.unsqueeze(-1)
        # The positions of a capture may be past the table of learned positions.
        clamped = positions.clamp(max=self._last_position)
        if self._torch_pass is not None and len(ids) <= MAX_TOKENS:
            logits = self._torch_pass.logits(ids, clamped, visible, keep, self.layers, layers)
        else:
            logits = self._logits_of_modules(ids, clamped, visible, keep, layers)
        return logits[:, : self._vocab].float()

    def _logits_of_modules(
        self, ids: Tensor, positions: Tensor, visible: Tensor, keep: int, layers: int | None
    ) -> Tensor:
        model = self._model_of(layers)
        options: dict[str, Any] = {self._cache_argument: self._cache}
        if self._trims_logits:
            options["logits_to_keep"] = keep
        mask = visible  # [n, capacity]
        if self._has_additive_mask:
            lowest = torch.finfo(model.dtype).min
            mask = torch.where(visible, 0.0, lowest).to(model.dtype)
        output = model(
            input_ids=ids.unsqueeze(0),
            attention_mask=mask[None, None],
            position_ids=positions.unsqueeze(0),
            use_cache=True,
            **options,
        )
        logits: Tensor = output.logits[0, -keep:]
        return logits

    def _model_of(self, layers: int | None) -> Any:
        """The model's first `layers`; all of it if None."""
        model = self._model()
        assert model is not None, "an engine in use keeps its model alive"
        if layers is None:
            return model
        if layers not in self._shallow_models:
            self._shallow_models[layers] = first_layers(model, layers)
        return self._shallow_models[layers]

    @torch.inference_mode()
    def grow(self, capacity: int) -> None:
        """Enlarge the buffers and keep their content."""
        self.programs.clear()  # they refer to buffers by address
        added = capacity - self.capacity
        self.capacity = capacity
        for layer in self.layers:
            layer.max_cache_len = capacity
            if layer.is_initialized:
                layer.keys = pad(layer.keys, (0, 0, 0, added))
                layer.values = pad(layer.values, (0, 0, 0, added))

    @torch.inference_mode()
    def clear(self) -> None:
        """Fill the buffers with zeros: masked positions have weight 0, but 0 times NaN is NaN."""
        self._cache.reset()

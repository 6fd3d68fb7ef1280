"""The record of the engine "static"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.environment import FORM
from ...core.records import EngineKind

if TYPE_CHECKING:
    from ...core.protocols import Engine


def make_engine(model: Any, vocab: int) -> Engine | None:
    """Make an engine as `engine.static_engine` does, on a GPU. Other devices capture nothing, so
    there the engine must be asked for by name."""
    if model.device.type != "cuda" and FORM.read() != STATIC.name:
        return None
    from .engine import static_engine

    return static_engine(model, vocab)


# Kernels of a one-token pass of the Llama family, by form: those of a layer, and all others. For
# other families, transformers' modules take about four for each module that computes.
TORCH_KERNELS = (14, 30)
TRITON_KERNELS = (5, 10)
MODULE_KERNELS = 4

# Bytes that an H100 could read, at 3.03 TB/s, from the start of a kernel that computes next to
# nothing to the start of the next. Measured in passes of Qwen2.5 0.5B and 1.5B and of Llama 1B and
# 8B: 4.0 to 5.5 microseconds. For Triton's kernels this is an estimate, not a measurement: 2.5
# microseconds.
TORCH_KERNEL_BYTES = 13_600_000
TRITON_KERNEL_BYTES = 7_600_000


def kernel_cost(model: Any, engine: str) -> int:
    """Estimate kernel time, as `EngineKind.kernel_cost` says."""
    from ...core.llama_family import is_llama_family
    from ...core.model_facts import leaf_count
    from .triton_support import TRITON_FORM

    if not is_llama_family(model):
        return MODULE_KERNELS * leaf_count(model) * TORCH_KERNEL_BYTES
    if engine.endswith(TRITON_FORM):
        layer_kernels, other_kernels = TRITON_KERNELS
        kernel_bytes = TRITON_KERNEL_BYTES
    else:
        layer_kernels, other_kernels = TORCH_KERNELS
        kernel_bytes = TORCH_KERNEL_BYTES
    return (layer_kernels * len(model.model.layers) + other_kernels) * kernel_bytes


STATIC = EngineKind(
    name="static",
    label="CUDA graphs over caches of a fixed length",
    make=make_engine,
    kernel_cost=kernel_cost,
)

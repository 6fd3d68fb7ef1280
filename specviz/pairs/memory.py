"""The memory that models need, and the memory that devices have free."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from ..errors import PairError
from .metadata import quantizable_parameters
from .pair import context_length, parameter_count
from .sizes import (
    PRECISIONS,
    QUANTIZED,
    TYPICAL_CONTEXT,
    LayerCache,
    MemoryNeed,
    shown_bytes,
    smaller_precisions,
)


@dataclass(frozen=True)
class DeviceMemory:
    """A device and its free bytes."""

    device: torch.device
    free: int


def memory_need(model: Any, layers: Sequence[LayerCache], *, copies: int = 1) -> MemoryNeed:
    """The memory that a model needs; it may be on the `meta` device."""
    sizes = parameter_count(model), quantizable_parameters(model)
    return MemoryNeed(*sizes, layers, copies, context_length(model))


def device_memory(device: torch.device | None = None) -> list[DeviceMemory]:
    """The free memory of `device`; if it is None, of all GPUs, or of the CPU without a GPU."""
    if device is not None and device.type != "cuda":
        return [DeviceMemory(device, _free_ram())]
    if device is not None and device.index is not None:
        return [_gpu_memory(device.index)]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [_gpu_memory(i) for i in range(count)]
    return gpus or [DeviceMemory(torch.device("cpu"), _free_ram())]


def loading_precision(config: Any, device: torch.device, dtype: torch.dtype | None = None) -> str:
    """The dtype that a model is loaded in: fp32 on a CPU, the checkpoint's dtype on a GPU."""
    stored = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    usual = torch.float32 if device.type == "cpu" else stored
    name = str(dtype or usual).removeprefix("torch.")
    return name if name in PRECISIONS else "float32"


@dataclass(frozen=True)
class PlannedLoad:
    """A model to load, the memory that it needs and the precision that it is loaded in."""

    name: str
    need: MemoryNeed
    precision: str

    def bytes(self, tokens: int = TYPICAL_CONTEXT) -> int:
        """Bytes of the weights, and of the caches of a text of `tokens` tokens."""
        return self.need.bytes(self.precision, tokens)

    def shown(self, tokens: int) -> str:
        """Its bytes in a sentence."""
        return f"{self.name} {shown_bytes(self.bytes(tokens))} as {self.precision}"


def place_target(
    loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int = TYPICAL_CONTEXT
) -> tuple[torch.device | None, dict[int, int]]:
    """The device for the target, or None and the most bytes of its weights on each GPU, by index.

    loads: of the target, and perhaps of what drafts beside it. That is loaded where the target's
    logits are: on the last GPU that holds a part of the target, on which memory is therefore left
    free. Raises `PairError` with the numbers if there is not enough memory.
    """
    target, *rest = loads
    beside = sum(load.bytes(tokens) for load in rest)
    total = target.bytes(tokens) + beside
    best = max(devices, key=lambda memory: memory.free)
    if total <= best.free:
        return best.device, {}
    if len(devices) == 1 or total > sum(memory.free for memory in devices):
        raise PairError(shortage_sentence(loads, devices, tokens))
    # These limits are for weights only; each GPU also holds the caches of its layers.
    share = 1 - target.need.cached(target.precision, tokens) / target.bytes(tokens)
    free = [memory.free for memory in devices]
    free[-1] = max(0, free[-1] - beside)
    return None, {
        memory.device.index: int(share * n) for memory, n in zip(devices, free, strict=True)
    }


def shortage_sentence(
    loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int = TYPICAL_CONTEXT
) -> str:
    """One sentence: that these models do not fit, with the numbers, and what would fit."""
    free = sum(memory.free for memory in devices)
    parts = " and ".join(load.shown(tokens) for load in loads)
    kind = devices[0].device.type
    where = f"{len(devices)} GPUs have" if len(devices) > 1 else f"{kind} has"
    advice = "choose a smaller model"
    for name in smaller_precisions(kind == "cpu"):
        total = sum(load.need.bytes(name, tokens) for load in loads)
        if total <= free:
            how = f"{name[0]}-bit weights" if name in QUANTIZED else f"dtype {name}"
            advice = f"choose {how}, which need {shown_bytes(total)}, or a smaller model"
            break
    return (
        f"not enough memory: with caches of {tokens:,} tokens, {parts} are needed, and {where} "
        f"{shown_bytes(free)} free; {advice}."
    )


def _gpu_memory(index: int) -> DeviceMemory:
    free, _ = torch.cuda.mem_get_info(index)
    # torch can use the memory that it has reserved and does not use at the moment.
    spare = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
    return DeviceMemory(torch.device("cuda", index), free + spare)


def _free_ram() -> int:
    """Free bytes of this machine, or below the limit of this process's cgroup, version 2 or 1."""
    free, root = int(psutil.virtual_memory().available), Path("/sys/fs/cgroup")
    for limit, used in (
        (root / "memory.max", root / "memory.current"),
        (root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            left = int(limit.read_text()) - int(used.read_text())
            stat = dict(line.split() for line in (limit.parent / "memory.stat").open())
            # Linux keeps files that were read in memory, and frees them when it is needed.
            kept = stat.get("total_inactive_file") or stat.get("inactive_file") or 0
            return min(free, max(0, left + int(kept)))
    return free

"""The memory that models need, and the memory that devices have free."""

from __future__ import annotations

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
    TYPICAL_CONTEXT,
    Caches,
    MemoryNeed,
    shown_bytes,
    smaller_precisions,
)


@dataclass(frozen=True)
class DeviceMemory:
    """A device and its free bytes."""

    device: torch.device
    free: int


def memory_need(model: Any, caches: Caches, *, copies: int = 1) -> MemoryNeed:
    """The memory that a model needs; it may be on the `meta` device."""
    sizes = parameter_count(model), quantizable_parameters(model)
    return MemoryNeed(*sizes, caches, copies, context_length(model))


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
    if dtype is None:
        given = getattr(config, "dtype", None) or getattr(
            config.get_text_config(), "dtype", torch.float32
        )
        dtype = torch.float32 if device.type == "cpu" else given
    name = str(dtype).removeprefix("torch.")
    return name if name in PRECISIONS else "float32"


def memory_advice(needs: list[MemoryNeed], free: int, tokens: int, *, cpu: bool) -> str:
    """What would fit into `free` bytes, as the end of a sentence."""
    for name in smaller_precisions(cpu):
        total = sum(need.bytes(name, tokens) for need in needs)
        if total <= free:
            how = {"8bit": "8-bit weights", "4bit": "4-bit weights"}.get(name, f"dtype {name}")
            return f"choose {how}, which need {shown_bytes(total)}, or a smaller model"
    return "choose a smaller model"


@dataclass(frozen=True)
class PlannedLoad:
    """A model to load, the memory that it needs and the precision that it is loaded in."""

    name: str
    need: MemoryNeed
    precision: str

    def bytes(self, tokens: int = TYPICAL_CONTEXT) -> int:
        """Bytes of the weights, and of the caches of a text of `tokens` tokens."""
        return self.need.bytes(self.precision, tokens)


def place_target(
    target: PlannedLoad,
    draft: PlannedLoad | None,
    devices: list[DeviceMemory],
    tokens: int = TYPICAL_CONTEXT,
) -> tuple[torch.device | None, dict[int, int]]:
    """The device for the target, or None and the most bytes of its weights on each GPU, by index.

    The draft is loaded where the target's logits are: on the last GPU that holds a part of the
    target. Memory for the draft is therefore left free on the last GPU. Raises `PairError` with
    the numbers if there is not enough memory.
    """
    draft_bytes = draft.bytes(tokens) if draft else 0
    total = target.bytes(tokens) + draft_bytes
    best = max(devices, key=lambda memory: memory.free)
    if total <= best.free:
        return best.device, {}
    if len(devices) == 1 or total > sum(memory.free for memory in devices):
        loads = [load for load in (target, draft) if load]
        raise PairError(shortage_sentence(loads, devices, tokens))
    # These limits are for weights only; each GPU also holds the caches of its layers.
    share = 1 - target.need.cached(target.precision, tokens) / target.bytes(tokens)
    free = [memory.free for memory in devices]
    free[-1] = max(0, free[-1] - draft_bytes)
    return None, {
        memory.device.index: int(share * n) for memory, n in zip(devices, free, strict=True)
    }


def shortage_sentence(
    loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int = TYPICAL_CONTEXT
) -> str:
    """One sentence: that these models do not fit, with the numbers, and what would fit."""
    free = sum(memory.free for memory in devices)
    parts = " and ".join(
        f"{load.name} {shown_bytes(load.bytes(tokens))} as {load.precision}" for load in loads
    )
    where = f"{len(devices)} GPUs have" if len(devices) > 1 else f"{devices[0].device.type} has"
    cpu = devices[0].device.type == "cpu"
    advice = memory_advice([load.need for load in loads], free, tokens, cpu=cpu)
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
    return min(int(psutil.virtual_memory().available), _free_in_container())


def _free_in_container() -> int:
    """Free bytes below the limit of this process's cgroup, version 2 or 1."""
    root = Path("/sys/fs/cgroup")
    for limit, used in (
        (root / "memory.max", root / "memory.current"),
        (root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes"),
    ):
        try:
            most = limit.read_text().strip()
            if most.isdigit():
                return max(0, int(most) - int(used.read_text()) + _reclaimable(limit.parent))
        except (OSError, ValueError):
            continue
    return 2**63 - 1


def _reclaimable(folder: Path) -> int:
    # Linux keeps files that were read in memory, and frees them when the memory is needed.
    for line in (folder / "memory.stat").read_text().splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0

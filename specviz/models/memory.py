"""What two models need on a device, and what it has free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from .metadata import Caches, shrinkable_parameters
from .pair import context_length, parameter_count
from .sizes import PRECISIONS, QUANTIZED, number_bytes, shown_bytes, weight_bytes


@dataclass(frozen=True)
class Room:
    """A device and the bytes that it can still take."""

    device: torch.device
    free: int


@dataclass(frozen=True)
class Need:
    """What one model takes: its parameters and what its caches hold per token.

    copies: caches kept at once; the target has one in each lane. context: the most tokens that
    the model sees, or None.
    """

    parameters: int
    shrinkable: int
    caches: Caches
    copies: int = 1
    context: int | None = None

    def bytes(self, precision: str, tokens: int) -> int:
        """Bytes of the weights and of the caches of a text of so many tokens."""
        return weight_bytes(self.parameters, self.shrinkable, precision) + self.cached(
            precision, tokens
        )

    def cached(self, precision: str, tokens: int) -> int:
        """Bytes of the caches alone. A sliding window keeps no more than its width."""
        most = min(tokens, self.context or tokens)
        kept = (layer.numbers * min(most, layer.window or most) for layer in self.caches.layers)
        return self.copies * sum(kept) * number_bytes(precision)


def model_need(model: Any, caches: Caches, *, copies: int = 1) -> Need:
    """What a model takes; one on the `meta` device will do."""
    sizes = parameter_count(model), shrinkable_parameters(model)
    return Need(*sizes, caches, copies, context_length(model))


def rooms(device: torch.device | None = None) -> list[Room]:
    """The device, or all GPUs if there are any, or the processor, with what is free now."""
    if device is not None and device.type != "cuda":
        return [Room(device, _free_ram())]
    if device is not None and device.index is not None:
        return [_gpu_room(device.index)]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [_gpu_room(i) for i in range(count)] or [Room(torch.device("cpu"), _free_ram())]


def loading_precision(config: Any, device: torch.device, dtype: torch.dtype | None = None) -> str:
    """The dtype that a model is loaded in: fp32 on a processor, the checkpoint's on a GPU."""
    if dtype is None:
        given = getattr(config, "dtype", None) or getattr(
            config.get_text_config(), "dtype", torch.float32
        )
        dtype = torch.float32 if device.type == "cpu" else given
    name = str(dtype).removeprefix("torch.")
    return name if name in PRECISIONS else "float32"


def smaller_precisions(cpu: bool) -> tuple[str, ...]:
    """What to try if memory is short, the best first; a processor knows no 8 or 4 bits."""
    return ("bfloat16",) if cpu else QUANTIZED


def smaller_ways(needs: list[Need], free: int, tokens: int, *, cpu: bool) -> str:
    """What would fit into `free` bytes, as the end of a sentence."""
    for name in smaller_precisions(cpu):
        total = sum(need.bytes(name, tokens) for need in needs)
        if total <= free:
            how = {"8bit": "8-bit weights", "4bit": "4-bit weights"}.get(name, f"dtype {name}")
            return f"choose {how}, which need {shown_bytes(total)}, or a smaller model"
    return "choose a smaller model"


def _gpu_room(index: int) -> Room:
    free, _ = torch.cuda.mem_get_info(index)
    # What torch has kept for itself it can use again.
    spare = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
    return Room(torch.device("cuda", index), free + spare)


def _free_ram() -> int:
    return min(int(psutil.virtual_memory().available), _free_in_container())


def _free_in_container() -> int:
    """Bytes until the limit of this process's container, of either generation of Linux's."""
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
    # Files that were read stay cached until the memory is wanted.
    for line in (folder / "memory.stat").read_text().splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0

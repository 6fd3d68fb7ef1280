"""Memory in bytes: what models need, by precision and as text, and what devices have free. This
module needs no torch until it is asked about GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psutil

from ..base.environment import may_have_gpu
from ..base.errors import PairError
from ..core.products import arithmetic_in_words

if TYPE_CHECKING:
    import torch

FIVE_BIT = "5bit"

PRECISIONS: dict[str, float] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "8bit": 1,
    FIVE_BIT: 5 / 8 + 2 / 32,  # each 32 weights share a scale in fp16
    "4bit": 0.5 + 4 / 64,  # each 64 weights share a scale in fp32
}
"""Bytes per weight. 8, 5 and 4 bits apply to linear layers; other layers then have 16 bits."""

QUANTIZED = ("8bit", "4bit")
"""Precisions of few bits that any model may be loaded in."""

DRAFT_QUANTIZED = ("8bit", FIVE_BIT, "4bit")
"""Precisions of few bits for a draft, which may have 5 bits on a processor."""

KINDS = {"8bit": "Q8_0", FIVE_BIT: "Q5_0", "4bit": "Q4_1"}
"""The kind of blocks of linear layers of few bits on a processor: 32 weights share a scale, and
with 4 bits also a minimum."""

DRAFT_KINDS = KINDS | {"4bit": "Q4_0"}
"""The kind of blocks of a draft, also for its output layer. The target judges its drafts, so fewer
bytes are worth more than the smaller rounding error of a minimum."""

TABLE = "Q8_0"
"""The kind of an embedding table and of a target's output layer, where fewer bits hurt most."""

STORED = "stored"
"""The precision of a model whose weights are used in their stored format."""

DTYPES = tuple(name for name in PRECISIONS if name not in DRAFT_QUANTIZED)

COUNTED_LANES = 4
"""Lanes whose caches estimates count: the target alone and three with drafts, as many as the page
races. A race of more lanes, in Python, needs more memory."""

DRAFTING_LANES = COUNTED_LANES - 1

TYPICAL_CONTEXT = 2048  # tokens in the caches for estimates, unless a model's context is shorter


def smaller_precisions(cpu: bool) -> tuple[str, ...]:
    """Precisions to try if memory is short, the best first; a CPU cannot use 8 or 4 bits."""
    if cpu:
        return ("bfloat16",)
    return QUANTIZED


class LayerCache(NamedTuple):
    """The cache of one layer. numbers: per token. window: the most tokens kept; None for all."""

    numbers: int
    window: int | None = None


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that one model needs: for its parameters, and for its caches per token."""

    parameters: int
    quantizable: int  # the number of parameters that 8-bit and 4-bit loading shrinks
    layers: Sequence[LayerCache] = ()  # those whose cache grows with the text
    copies: int = 1  # the number of caches, one in each lane that runs the model
    context: int | None = None  # the most tokens that the model sees
    stored: int | None = None  # bytes in the stored format; None if it cannot be used
    smaller: int | None = None  # bytes in 8, 5 or 4 bits on a processor

    def bytes(self, precision: str, tokens: int) -> int:
        """Bytes of the weights, and of the caches of a text of `tokens` tokens."""
        return self._weights(precision) + self.cached(precision, tokens)

    def _weights(self, precision: str) -> int:
        """Bytes of the weights alone."""
        if precision == STORED:
            return self.stored or 0
        if precision not in DRAFT_QUANTIZED:
            return int(self.parameters * PRECISIONS[precision])
        if self.smaller is not None:
            return self.smaller
        in_16_bits = self.parameters - self.quantizable
        return int(self.quantizable * PRECISIONS[precision] + in_16_bits * 2)

    def cached(self, precision: str, tokens: int) -> int:
        """Bytes of the caches alone. A sliding window keeps no more tokens than its width."""
        cached_tokens = min(tokens, self.context or tokens)
        numbers = 0
        for layer in self.layers:
            window = layer.window or cached_tokens
            numbers += layer.numbers * min(cached_tokens, window)
        few_bits_here = precision in DRAFT_QUANTIZED and self.smaller is not None
        in_fp32 = few_bits_here or precision in ("float32", STORED)
        bytes_per_number = 4 if in_fp32 else 2
        return self.copies * numbers * bytes_per_number


def shown_bytes(count: float) -> str:
    """A number of bytes as text: "16.1 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"


def shown_count(count: float) -> str:
    """A number of parameters as text: "8.03 billion"."""
    for word, size in ((" billion", 1e9), (" million", 1e6)):
        if count >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:,.0f}"


class Device(Protocol):
    """A device, as torch describes it."""

    @property
    def type(self) -> str: ...

    @property
    def index(self) -> int | None: ...


@dataclass(frozen=True)
class Processor:
    """The device of a machine without a GPU, described without torch."""

    type: str = "cpu"
    index: None = None

    def __str__(self) -> str:
        return self.type


class DeviceMemory(NamedTuple):
    """A device and its free bytes."""

    device: Device
    free: int


def device_memory(device: Device | None = None) -> list[DeviceMemory]:
    """The free memory of `device`; if it is None, of all GPUs, or of the CPU without a GPU."""
    if device is None and not may_have_gpu():
        device = Processor()
    if device is not None and device.type == "cpu":
        return [DeviceMemory(device, free_ram())]
    import torch

    from .devices import best_device

    device = device or best_device()
    if device.type != "cuda":
        return [DeviceMemory(device, free_ram())]
    indices: Sequence[int] = range(torch.cuda.device_count())
    if device.index is not None:
        indices = [device.index]
    devices = []
    for index in indices:
        free, _ = torch.cuda.mem_get_info(index)
        # torch can use the memory that it has reserved and does not use at the moment.
        spare = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
        devices.append(DeviceMemory(torch.device("cuda", index), free + spare))
    return devices


def loading_precision(config: Any, device: Device, dtype: torch.dtype | None = None) -> str:
    """The dtype that a model is loaded in: fp32 on a CPU, the checkpoint's dtype on a GPU."""
    if dtype is None:
        if device.type == "cpu":
            return "float32"
        dtype = getattr(config, "dtype", None)
        if not dtype:
            dtype = getattr(config.get_text_config(), "dtype", None)
    name = str(dtype).removeprefix("torch.")
    if name in PRECISIONS:
        return name
    return "float32"


class PlannedLoad(NamedTuple):
    """A model to load, the memory that it needs and the precision that it is loaded in. products:
    of weights of few bits on a processor, one of `PRODUCTS`."""

    name: str
    need: MemoryNeed
    precision: str
    products: str | None = None

    def bytes(self, tokens: int = TYPICAL_CONTEXT) -> int:
        """Bytes of the weights, and of the caches of a text of `tokens` tokens."""
        return self.need.bytes(self.precision, tokens)

    def shown(self, tokens: int) -> str:
        """The model and its bytes, for a sentence."""
        precision = self.precision
        if precision == STORED:
            precision = "stored"
        arithmetic = arithmetic_in_words(precision, self.products)
        return f"{self.name} {shown_bytes(self.bytes(tokens))} as {arithmetic}"


def place_target(
    loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int = TYPICAL_CONTEXT
) -> tuple[Device | None, dict[int, int]]:
    """The device for the target, or None and the most bytes of its weights on each GPU, by index.

    loads: of the target, and perhaps of a drafter. The drafter is loaded where the target's logits
    are: on the last GPU that holds a part of the target. So memory is left free there. Raises
    `PairError` with the numbers if there is not enough memory.
    """
    target, *drafters = loads
    drafter_bytes = sum(load.bytes(tokens) for load in drafters)
    total = target.bytes(tokens) + drafter_bytes
    best = max(devices, key=lambda memory: memory.free)
    if total <= best.free:
        return best.device, {}
    total_free = sum(memory.free for memory in devices)
    if len(devices) == 1 or total > total_free:
        raise PairError(shortage_sentence(loads, devices, tokens))
    # These limits are for weights only; each GPU also holds the caches of its layers.
    cache_bytes = target.need.cached(target.precision, tokens)
    weights_share = 1 - cache_bytes / target.bytes(tokens)
    free = [memory.free for memory in devices]
    free[-1] = max(0, free[-1] - drafter_bytes)
    limits = {}
    for memory, free_bytes in zip(devices, free, strict=True):
        limits[memory.device.index or 0] = int(weights_share * free_bytes)
    return None, limits


def shortage_sentence(
    loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int = TYPICAL_CONTEXT
) -> str:
    """The sentence about models that do not fit, with the numbers, and what would fit."""
    free = sum(memory.free for memory in devices)
    parts = " and ".join(load.shown(tokens) for load in loads)
    device_type = devices[0].device.type
    who_has = f"{device_type} has"
    if len(devices) > 1:
        who_has = f"{len(devices)} GPUs have"
    advice = "choose a smaller model"
    for precision in smaller_precisions(device_type == "cpu"):
        total = sum(load.need.bytes(precision, tokens) for load in loads)
        if total <= free:
            choice = f"dtype {precision}, which needs"
            if precision in QUANTIZED:
                choice = f"{precision[0]}-bit weights, which need"
            advice = f"choose {choice} {shown_bytes(total)}, or a smaller model"
            break
    return (
        f"not enough memory: with caches of {tokens:,} tokens, {parts} are needed, and {who_has} "
        f"{shown_bytes(free)} free; {advice}."
    )


def free_ram() -> int:
    """Free bytes of this machine, or up to the limit of this process's cgroup."""
    free = int(psutil.virtual_memory().available)
    cgroup = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # there is none, or it has no limit
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").open())
        # Linux caches files in memory, and frees that when it is needed.
        spare = int(stat["inactive_file"])
        return min(free, max(0, limit - used + spare))
    return free

"""Weights onto devices: dtype, quantization, several GPUs, and sentences where that fails."""

from __future__ import annotations

import gc
import importlib.util
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from ..errors import PairError
from .hub import Source, hub_options, why_not
from .memory import Need, Room, smaller_ways
from .progress import Watcher, watched
from .sizes import QUANTIZED, TYPICAL_CONTEXT, shown_bytes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Way:
    """How one model is loaded.

    dtype: None is fp32 on a processor and the checkpoint's own on a GPU. quantize: "8bit",
    "4bit" or None. device: where to; None spreads the model over several GPUs, each of which
    may take the bytes in `most`, by index.
    """

    dtype: torch.dtype | None = None
    quantize: str | None = None
    device: torch.device | None = None
    most: dict[int, int] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """What `from_pretrained` is told."""
        cpu = self.device is not None and self.device.type == "cpu"
        options: dict[str, Any] = {"dtype": self.dtype or (torch.float32 if cpu else "auto")}
        if self.device is None:
            options |= {"device_map": "auto", "max_memory": self.most}
        elif not cpu:
            options["device_map"] = {"": self.device}
        if self.quantize is not None:
            options["quantization_config"] = _bits(self.quantize, self.dtype)
        return options


def checked_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype by its name. Raises `PairError`."""
    if dtype is None or dtype == "auto":
        return None
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise PairError(f"dtype is {dtype!r}: use one of {', '.join(map(repr, DTYPES))}.")
    return found


def checked_quantization(quantize: str | None) -> str | None:
    """The same, if this machine can do it. Raises `PairError` with what is missing."""
    if quantize is None:
        return None
    if quantize not in QUANTIZED:
        raise PairError(f"quantize is {quantize!r}: use one of {', '.join(map(repr, QUANTIZED))}.")
    kind = quantize.replace("bit", "-bit")
    if not torch.cuda.is_available():
        raise PairError(f"{kind} weights need an NVIDIA GPU, and there is none: load without them.")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise PairError(
            f"{kind} weights need the package bitsandbytes: pip install -r "
            "requirements-quantize.txt."
        )
    return quantize


def _bits(quantize: str, dtype: torch.dtype | None) -> Any:
    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype or torch.bfloat16,
    )


@dataclass(frozen=True)
class Load:
    """A model with its need and the precision that it gets, for counting bytes."""

    name: str
    need: Need
    precision: str

    def bytes(self, tokens: int = TYPICAL_CONTEXT) -> int:
        return self.need.bytes(self.precision, tokens)


def target_place(
    target: Load, draft: Load | None, spaces: list[Room], tokens: int = TYPICAL_CONTEXT
) -> tuple[torch.device | None, dict[int, int]]:
    """Where the target goes: a device that holds both models, or None and bytes by GPU.

    The draft follows to where the target's logits appear, which is on the last GPU that holds
    a part of the target; so the last one keeps room for it. Raises `PairError` with the numbers
    if there is not enough room.
    """
    small = draft.bytes(tokens) if draft else 0
    total = target.bytes(tokens) + small
    best = max(spaces, key=lambda room: room.free)
    if total <= best.free:
        return best.device, {}
    if len(spaces) == 1 or total > sum(room.free for room in spaces):
        raise PairError(shortage([load for load in (target, draft) if load], spaces, tokens))
    # Weights are dealt out by these numbers, and each GPU keeps the caches of its own layers.
    share = 1 - target.need.cached(target.precision, tokens) / target.bytes(tokens)
    free = [room.free for room in spaces[:-1]] + [max(0, spaces[-1].free - small)]
    return None, {room.device.index: int(share * n) for room, n in zip(spaces, free, strict=True)}


def shortage(loads: list[Load], spaces: list[Room], tokens: int = TYPICAL_CONTEXT) -> str:
    """Why these models do not fit, in numbers, and what would."""
    free = sum(room.free for room in spaces)
    parts = " and ".join(
        f"{load.name} {shown_bytes(load.bytes(tokens))} as {load.precision}" for load in loads
    )
    where = f"{len(spaces)} GPUs have" if len(spaces) > 1 else f"{spaces[0].device.type} has"
    cpu = spaces[0].device.type == "cpu"
    ways = smaller_ways([load.need for load in loads], free, tokens, cpu=cpu)
    return (
        f"not enough memory: with caches of {tokens:,} tokens, {parts} are needed, and {where} "
        f"{shown_bytes(free)} free; {ways}."
    )


def load_model(source: Source, way: Way, on_progress: Watcher | None = None) -> Any:
    """A causal language model with its weights; safetensors only, never code of its own.

    Raises `PairError` with a sentence if it cannot be loaded whole, and lets errors for want of
    memory pass to the caller, who knows the numbers.
    """
    try:
        with watched(on_progress, source.shown) as watching:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.name,
                use_safetensors=True,
                output_loading_info=True,
                **way.options(),
                **hub_options(source),
                **watching,
            )
    except Exception as error:  # damaged files make transformers raise nearly anything
        if out_of_memory(error):
            raise
        raise PairError(why_not(source, error)) from error
    model, told = loaded
    if told["missing_keys"]:
        raise PairError(
            f"{source.shown} lacks weights, {min(told['missing_keys'])} among them: download it "
            "again."
        )
    return _placed(model, way).eval()


def _placed(model: Any, way: Way) -> Any:
    # A map of devices has put the weights there already, and quantized ones refuse to move.
    return (
        model
        if getattr(model, "hf_device_map", None) or way.device is None
        else model.to(way.device)
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device has no room left."""
    said = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return said or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def release_memory() -> None:
    """Give what no longer has an owner back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

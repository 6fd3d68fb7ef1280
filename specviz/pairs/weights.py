"""Loading of weights: dtype, quantization, devices, and clear errors if it fails."""

from __future__ import annotations

import gc
import importlib.util
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from ..errors import PairError, ran_out_of_memory
from .gguf import origin_of
from .hub import ModelSource, failure_sentence, hub_options
from .memory import DeviceMemory, MemoryNeed, memory_advice
from .progress import Watcher, watched
from .sizes import QUANTIZED, TYPICAL_CONTEXT, shown_bytes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadOptions:
    """How one model is loaded.

    dtype: None is fp32 on a CPU and the checkpoint's dtype on a GPU. quantize: "8bit", "4bit" or
    None. device: None spreads the model over several GPUs; `most` then limits the bytes on each
    GPU, by its index.
    """

    dtype: torch.dtype | None = None
    quantize: str | None = None
    device: torch.device | None = None
    most: dict[int, int] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The arguments for `from_pretrained`."""
        cpu = self.device is not None and self.device.type == "cpu"
        arguments: dict[str, Any] = {"dtype": self.dtype or (torch.float32 if cpu else "auto")}
        if self.device is None:
            arguments |= {"device_map": "auto", "max_memory": self.most}
        elif not cpu:
            arguments["device_map"] = {"": self.device}
        if self.quantize is not None:
            arguments["quantization_config"] = _bitsandbytes_config(self.quantize, self.dtype)
        return arguments


def checked_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """The dtype with this name, None for None or "auto"; raises `PairError` for another name."""
    if dtype is None or dtype == "auto":
        return None
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise PairError(f"dtype is {dtype!r}: use one of {', '.join(map(repr, DTYPES))}.")
    return found


def checked_quantization(quantize: str | None) -> str | None:
    """`quantize` itself; raises `PairError` if it is unknown or this machine cannot use it."""
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


def _bitsandbytes_config(quantize: str, dtype: torch.dtype | None) -> Any:
    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype or torch.bfloat16,
    )


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


def load_model(
    source: ModelSource, options: LoadOptions, on_progress: Watcher | None = None
) -> Any:
    """A causal language model with its weights, from safetensors files only.

    Never runs code of the repository. Raises `PairError` if the model cannot be loaded completely.
    Errors about too little memory are raised as they are: the caller knows the numbers.
    """
    try:
        with watched(on_progress, source.shown) as watching:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.name,
                use_safetensors=True,
                output_loading_info=True,
                **options.arguments(),
                **hub_options(source),
                **watching,
            )
    except Exception as error:  # damaged files can make transformers raise any error
        if ran_out_of_memory(error):
            raise
        raise PairError(failure_sentence(source, error)) from error
    model, info = loaded
    if info["missing_keys"]:
        raise PairError(
            f"{source.shown} lacks weights, {min(info['missing_keys'])} among them: download it "
            "again."
        )
    # Of a folder that was made of a GGUF file, headers say which.
    if source.folder is not None and (origin := origin_of(source.folder)) is not None:
        model.config._commit_hash = origin
    return _placed(model, options).eval()


def _placed(model: Any, options: LoadOptions) -> Any:
    # With a device map the weights are in place already, and quantized weights cannot move.
    in_place = getattr(model, "hf_device_map", None) or options.device is None
    return model if in_place else model.to(options.device)


def release_memory() -> None:
    """Free the memory of objects that are no longer used."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

"""On which device and in which precision models are to be loaded, as somebody named them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from ..errors import PairError
from .sizes import QUANTIZED
from .weights import DTYPES

DEVICES = "use cpu, cuda, or cuda:1 for the second GPU"


def checked_device(device: object) -> torch.device | None:
    """The device of this name; None stands for the best one. Raises `PairError` if it is none, or
    if this machine does not have it."""
    if device is None:
        return None
    named: Any = device
    if isinstance(device, int) and not isinstance(device, bool):
        named = f"cuda:{device}"
    try:
        found: torch.device = torch.device(named)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        raise PairError(f"{str(named)[:40]!r} is no device: {DEVICES}.") from None
    if found.type not in ("cpu", "cuda", "mps"):
        raise PairError(f"the models do not run on {found.type}: {DEVICES}.")
    if found.type == "cpu" or (found.type == "mps" and torch.backends.mps.is_available()):
        return found
    if found.type == "mps":
        raise PairError("there is no Apple GPU here: leave the device out, or use cpu.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        without = "torch is installed without CUDA"
        why = without if torch.version.cuda is None else "torch finds no GPU that it can use"
        raise PairError(f"there is no {found} here, since {why}: leave the device out, or use cpu.")
    if (found.index or 0) >= count:
        raise PairError(f"there is no {found}: this machine has cuda:0 to cuda:{count - 1}.")
    return found


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
    if find_spec("bitsandbytes") is None:
        raise PairError(
            f"{kind} weights need the package bitsandbytes: pip install -r "
            "requirements-quantize.txt."
        )
    return quantize


def bitsandbytes_config(quantize: str, dtype: torch.dtype | None) -> Any:
    """What transformers takes to load "8bit" or "4bit" weights, which compute in `dtype`."""
    from transformers import BitsAndBytesConfig

    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype or torch.bfloat16,
    )

"""The device that models run on."""

from __future__ import annotations

from typing import Any

import torch

from ..base.errors import PairError

DEVICES = "use cpu, cuda, or cuda:1 for the second GPU"


def best_device() -> torch.device:
    """The CUDA device of this machine, or its CPU.

    Apple's GPUs are not used: they lack fp64, which exact sampling needs.
    """
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def checked_device(device: object) -> torch.device | None:
    """The device of this name; None stays None, for the best one. Raises `PairError` if there is
    no such device, or if this machine does not have it."""
    if device is None:
        return None
    checked = _parsed_device(device)
    if checked.type == "cpu":
        return checked
    if checked.type == "mps":
        if torch.backends.mps.is_available():
            return checked
        raise PairError("there is no Apple GPU here: leave the device out, or use cpu.")
    if checked.type != "cuda":
        raise PairError(f"models cannot run on {checked.type} here: {DEVICES}.")
    count = 0
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
    if (checked.index or 0) >= count:
        raise PairError(f"{checked} does not exist here (torch finds {count} GPUs): {DEVICES}.")
    return checked


def _parsed_device(device: object) -> torch.device:
    """torch's device of this name; a number is that of a CUDA device. Raises `PairError`."""
    name: Any = device
    if isinstance(device, int) and not isinstance(device, bool):
        name = f"cuda:{device}"
    try:
        return torch.device(name)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        raise PairError(f"{str(name)[:40]!r} is not a device: {DEVICES}.") from None

"""The clock that all lanes are measured with."""

from __future__ import annotations

import time

import torch


def now(device: torch.device) -> float:
    """Seconds of a monotonic clock, read after all work queued on `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

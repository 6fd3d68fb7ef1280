"""The clock that all lanes are measured with."""

from __future__ import annotations

import time

import torch


def now(device: torch.device) -> float:
    """Seconds of a monotonic clock, read once this thread's queued work on `device` is done."""
    if device.type == "cuda":
        # Not the whole device: that is an error while another thread captures a graph.
        torch.cuda.current_stream(device).synchronize()
    return time.perf_counter()

"""Whether this machine is fit for a measurement: one of durations that others may stretch."""

from __future__ import annotations

import os


def beside_others() -> bool:
    """Whether pytest has other workers, whose tests take the cores at any moment."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1


def crowded() -> bool:
    """Whether this machine has too much else to do."""
    return beside_others() or os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)

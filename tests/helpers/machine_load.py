"""Checks for other programs that may disturb a measurement of time on this machine."""

from __future__ import annotations

import os


def runs_in_parallel() -> bool:
    """Check whether pytest runs other workers, which may use the processors at any moment."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1


def is_busy() -> bool:
    """Check whether other programs use so much of the processors that times mean little."""
    return runs_in_parallel() or os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)

"""Marks by folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: the tests of both workers would otherwise fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

BROWSER = Path(__file__).parent / "browser"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything under tests/browser/ is a browser test: `-m "not browser"` leaves it out."""
    for item in items:
        if BROWSER in item.path.parents:
            item.add_marker(pytest.mark.browser)

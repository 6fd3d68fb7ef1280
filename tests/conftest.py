"""Marks by folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: the tests of both workers would otherwise fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Its fixtures start a real engine once per run, for tests of any folder.
pytest_plugins = ["llama_server"]

BROWSER = Path(__file__).parent / "browser"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything under tests/browser/ is a browser test: `-m "not browser"` leaves it out.

    One that fails is run once more, and the summary lists it: a crowded machine stalls a browser
    now and then, but a fault of the page fails twice.
    """
    for item in items:
        if BROWSER in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))

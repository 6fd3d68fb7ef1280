"""Marks by folder, and which tests share a worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: the tests of both workers would otherwise fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

BROWSER = Path(__file__).parent / "browser"


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything under tests/browser/ is a browser test: `-m "not browser"` leaves it out.

    Browser tests share one page and one Chromium, so one worker has them all; the others take
    the rest by files, whose tests share what they load.
    """
    for item in items:
        in_browser = BROWSER in item.path.parents
        if in_browser:
            item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.xdist_group("browser" if in_browser else item.path.stem))

"""Marks by folder, and the order of files when several processes share them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: the tests of both workers would otherwise fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Its fixtures start a real engine once per run, for tests of any folder.
pytest_plugins = ["llama_server"]

BROWSER = Path(__file__).parent / "browser"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything under tests/browser/ is a browser test: `-m "not browser"` leaves it out.

    One that fails is run once more, and the summary lists it: a crowded machine stalls a browser
    now and then, but a fault of the page fails twice.
    """
    for item in items:
        if BROWSER in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        items[:] = browser_files_spread(items)


def browser_files_spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items by file, the files of browser tests at equal distances: they wait for a browser
    while other processes compute. Those with most tests come first, so that no long one is last.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    places: dict[Path, float] = {}
    for is_browser in (True, False):
        some = [path for path in files if (BROWSER in path.parents) == is_browser]
        some.sort(key=lambda path: -len(files[path]))
        places |= {path: (place + 0.5) / len(some) for place, path in enumerate(some)}
    return [item for path in sorted(files, key=places.__getitem__) for item in files[path]]

"""Marks by folder, and the order of files when several processes share them."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import compile_passes
import pytest

# Before torch is imported: the tests of both workers would otherwise fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Pages that tests start as programs open at once, also where a larger pair is installed.
os.environ.setdefault("SPECVIZ_PAIR", "builtin")

# Its fixtures start a real engine once per run, for tests of any folder.
pytest_plugins = ["llama_server"]

BROWSER = Path(__file__).parent / "browser"
OWN_PAGES = {
    *("test_below_a_path", "test_choosing_pairs", "test_injection", "test_lent_gpu"),
    "test_page_faults",
}
"""Browser tests that start servers of their own; those of a folder share one otherwise."""


def hands_out(config: pytest.Config) -> bool:
    """Whether this process runs no test itself, but hands them out to others."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    # The others first collect, which takes about as long.
    if hands_out(session.config):
        compile_passes.begin()


UNCOMPILED = {
    *("test_wheel", "test_table", "test_layout", "test_api_reference", "test_palette"),
    *("test_sampling", "test_checksums", "test_spec", "test_deploy", "test_rooms", "test_settings"),
}
"""Files that run no compiled pass: they come first, while the passes are compiled."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.stem not in UNCOMPILED:
        compile_passes.wait()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything under tests/browser/ is a browser test: `-m "not browser"` leaves it out.

    One that fails is run once more, and the summary lists it: a crowded machine stalls a browser
    now and then, but a fault of the page fails twice.
    """
    for item in items:
        own = BROWSER not in item.path.parents
        if not own:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))
            own = item.path.stem in OWN_PAGES
        # What one process runs: a file, or all that share a page.
        item.add_marker(pytest.mark.xdist_group(item.path.stem if own else item.path.parent.name))
    if hasattr(config, "workerinput"):
        cache = getattr(config, "cache", None)  # it may be disabled
        items[:] = browser_files_spread(items, cache.get(SECONDS, {}) if cache else {})


def pytest_collection_finish() -> None:
    # What is there by now stays to the end: torch, transformers and gradio alone are a million
    # objects, at which the collector would look again and again.
    gc.collect()
    gc.freeze()


LONG = {
    *("test_soak", "test_exactness", "test_families", "test_rerun", "test_gguf", "test_faults"),
    *("test_static", "test_worker", "test_real_runs", "test_zerogpu", "test_loop", "test_remote"),
    *("test_choosing_pairs", "test_injection", "test_recordings", "test_live_page"),
}
"""Files that take long, for runs that nothing is known of, as in a fresh clone."""

SECONDS = "specviz/seconds"
"""Of each file in the last run of all, in pytest's cache."""

_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.fspath] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    # The process that hands out the tests hears of all; it does not run any itself.
    config = session.config
    if hands_out(config) and (cache := getattr(config, "cache", None)):
        taken = {name: round(seconds, 1) for name, seconds in _seconds.items()}
        cache.set(SECONDS, cache.get(SECONDS, {}) | taken)


def browser_files_spread(items: list[pytest.Item], seconds: dict[str, float]) -> list[pytest.Item]:
    """The items by file, the files of browser tests at equal distances: they wait for a browser
    while other processes compute. Those that took longest come first, so that no long one is last;
    where that is not known, those of `LONG`, then those with most tests.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    # A file that the last run did not have counts a second for each of its tests.
    known = {
        path: seconds.get(some[0].location[0], len(some) + 1000.0 * (path.stem in LONG))
        for path, some in files.items()
    }
    places: dict[Path, float] = {}
    for is_browser in (True, False):
        some = [path for path in files if (BROWSER in path.parents) == is_browser]
        some.sort(key=lambda path: -known[path])
        places |= {path: (place + 0.5) / len(some) for place, path in enumerate(some)}
    order = sorted(files, key=lambda path: (path.stem not in UNCOMPILED, places[path]))
    return [item for path in order for item in files[path]]

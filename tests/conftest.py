"""The environment of all tests, and their distribution over several processes: hooks of pytest and
xdist. `helpers/units.py` has the order of test files."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import compile_passes
import fetched_pair
import forked_page
import forked_process
import pytest
from units import ALL_PRODUCTS, BROWSER, UNCOMPILED, unit_of, unit_order

# Set before torch is imported: otherwise the test processes would compete for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Threads that share a pass do not sleep during a run; tests of them ask for some.
os.environ.setdefault("SPECVIZ_THREADS", "1")
# Set before triton is imported: without a GPU its kernels run in NumPy, on tensors of the host.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# No test uses TLS, and reading all certificates takes each client 20 ms.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.devnull
# Pages that tests start as programs open at once, even if a larger pair is installed.
os.environ.setdefault("SPECVIZ_PAIR", "builtin")
# Models of other programs on this machine must not affect tests.
os.environ.setdefault("SPECVIZ_LOCAL_MODELS", "0")
# Nor must fetched pairs: tests that need one ask `fetched_pair`.
os.environ.setdefault(fetched_pair.OWN, str(fetched_pair.own_folder()))
os.environ["SPECVIZ_MODELS"] = str(fetched_pair.NOWHERE)

# Fixtures of these modules start a real engine once per run, for tests of any folder.
pytest_plugins = ["llama_server", "llama_oracle", "sentences"]


# Hooks of the process that distributes tests.


def is_controller(config: pytest.Config) -> bool:
    """Whether this process only distributes tests to others."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    # Meanwhile the other processes collect tests.
    if is_controller(session.config):
        compile_passes.begin()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    # Test processes, too, are forked from a process that has imported the libraries.
    from execnet.gateway_io import Popen2IOMaster

    Popen2IOMaster.__init__ = forked_process.begin_worker  # type: ignore[method-assign]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    # One process that has imported the libraries serves the tests of all processes.
    node.workerinput["forks"] = forked_page.address_of_forks()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute whole units, so that the fixtures of a module start only once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(config.rootpath / nodeid.split("::")[0])

    return ByUnit(config, log)


# Hooks of processes that run tests.


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        forked_page.fork_from(config.workerinput["forks"])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    # In a fresh clone the first process compiles the test files, and the others read its results.
    is_fresh = not any(Path(__file__).parent.glob("__pycache__/test_*-pytest-*.pyc"))
    with compile_passes.lock_of_test_files() if is_fresh else nullcontext():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/browser/ as a browser test: `-m "not browser"` skips it.

    A failed browser test runs once more, and the summary lists it: a busy machine sometimes stalls
    a browser, but a fault of the page fails twice.
    """
    for item in items:
        if item.path.is_relative_to(BROWSER):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: unit_order(unit_of(item.path)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.stem not in UNCOMPILED:
        compile_passes.wait()
    if item.path.stem in ALL_PRODUCTS:
        compile_passes.wait_for_kinds()


def pytest_unconfigure(config: pytest.Config) -> None:
    # Triton complains at the end of Python about each of its objects that the collector cannot
    # free; processes that others started end without that end.
    if "triton" in sys.modules and not hasattr(config, "workerinput"):
        gc.unfreeze()


def pytest_collection_finish() -> None:
    # Objects that exist by now stay until the end: torch, transformers and gradio alone make a
    # million, which the collector would visit again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)  # models and recordings of tests are many small objects

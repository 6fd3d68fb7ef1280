"""Mark tests by folder, and order files for several processes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import compile_passes
import fetched_pair
import forked_page
import forked_process
import pytest

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

BROWSER = Path(__file__).parent / "browser"
OWN_PAGES = {
    "test_below_a_path",
    "test_choosing_pairs",
    "test_injection",
    "test_lent_gpu",
    "test_page_faults",
    "test_real_journey",
}
"""Browser tests that start their own servers; other tests of a folder share one."""
FORKING = {"test_faults", "test_worker"}


def hands_out(config: pytest.Config) -> bool:
    """Check whether this process only distributes tests to others."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    # The other processes first collect tests, which takes about as long.
    if hands_out(session.config):
        compile_passes.begin()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    # Test processes start with the libraries imported, too.
    from execnet.gateway_io import Popen2IOMaster

    Popen2IOMaster.__init__ = forked_process.begin_worker  # type: ignore[method-assign]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    # One process that has imported the libraries serves the tests of all processes.
    node.workerinput["forks"] = forked_page.address_of_forks()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        forked_page.fork_from(config.workerinput["forks"])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    # In a fresh clone the first process compiles the test files, and the others read its results.
    is_fresh = not any(Path(__file__).parent.glob("__pycache__/test_*-pytest-*.pyc"))
    with compile_passes.lock_of_test_files() if is_fresh else nullcontext():
        return (yield)


UNCOMPILED = {
    "test_wheel",
    "test_table",
    "test_layout",
    "test_api_reference",
    "test_palette",
    "test_sampling",
    "test_checksums",
    "test_spec",
    "test_deploy",
    "test_rooms",
    "test_settings",
    "test_sentences",
}
"""Files without compiled passes: they run first, while the passes are compiled."""


OF_KINDS = {
    "test_packed",
    "test_packed_model",
    "test_packed_weights",
    "test_quantize",
    "test_gguf",
    "test_gguf_against_llama_cpp",
    "test_read_weights",
    "test_integer_products",
    "test_remembered_trial",
    "test_local_models",
    "test_verbs_on_files",
}
"""Files that use products of many kinds of weights."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.stem not in UNCOMPILED:
        compile_passes.wait()
    if item.path.stem in OF_KINDS:
        compile_passes.wait_for_kinds()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/browser/ as a browser test: `-m "not browser"` skips it.

    A failed browser test runs once more, and the summary lists it: a busy machine sometimes stalls
    a browser, but a fault of the page fails twice.
    """
    for item in items:
        if item.path.is_relative_to(BROWSER):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: place_of(unit_of(item.path)))


@cache
def unit_of(path: Path) -> str:
    """The unit that one process runs: a file, or all files that share a page or fork processes of
    models."""
    shares = path.stem in FORKING or (path.is_relative_to(BROWSER) and path.stem not in OWN_PAGES)
    return path.parent.name if shares else path.stem


def place_of(unit: str) -> tuple[bool, int, str]:
    """The sort key of a unit: long ones start early, so that at the end no process works alone."""
    return unit not in UNCOMPILED, LONG.index(unit) if unit in LONG else len(LONG), unit


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute whole units, so that the fixtures of a module start only once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(config.rootpath / nodeid.split("::")[0])

    return ByUnit(config, log)


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


LONG = (
    "recorded",
    "browser",
    "test_choosing_pairs",
    "test_soak",
    "test_audit",
    "test_injection",
    "test_real_journey",
    "test_real_pair",
    "worker",
    "test_gguf",
    "test_wheel",
    "test_families",
    "test_exactness",
    "test_running_states",
    "test_page_faults",
    "test_zerogpu",
    "test_static",
    "test_gguf_tokenizers",
    "test_triton",
    "test_triton_compiled",
    "test_api",
    "test_packed",
    "test_packed_weights",
    "test_visitors",
    "test_security",
    "test_stand_in_device",
    "test_local_models",
    "test_gguf_against_llama_cpp",
    "test_strangers",
    "test_rerun",
    "test_table",
    "test_doctor_agrees",
    "test_pure_javascript",
    "test_lent_gpu",
)
"""The units that take longest, the longest first."""

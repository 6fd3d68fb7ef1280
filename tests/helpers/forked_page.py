"""Pages of test scripts, each in a process that is forked from one with imported libraries."""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
# Most of the start of a page is spent on these imports. specviz is not among them, since it reads
# environment variables when it is imported.
PROCESSES.set_forkserver_preload(
    [
        "gradio",
        "torch",
        "transformers.models.llama.modeling_llama",
        "transformers.generation",
        "numba",
        "gguf",
        "uvicorn",
        "hypothesis",  # for the toy models of the tests
    ]
)
SECONDS = 120  # until a page must answer


class ForkedPage:
    """A script's page at one address; it can be killed and started again."""

    def __init__(self, script: Path, *arguments: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [str(script), *arguments]
        self._process: multiprocessing.process.BaseProcess | None = None

    def start(self, **variables: str) -> None:
        """Start it with these additional variables, and wait until it answers."""
        address = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(self.port)}
        self._process = PROCESSES.Process(
            target=_run,
            args=(self._command, {**os.environ, **address, **variables}, address_of_forks()),
        )
        self._process.start()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self._process.is_alive():
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the page did not start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = None


@contextmanager
def forked_page(script: Path, *arguments: str, **variables: str) -> Iterator[str]:
    """The address of a script's page during the block."""
    page = ForkedPage(script, *arguments)
    try:
        page.start(**variables)
        yield page.url
    finally:
        page.kill()


def address_of_forks() -> str:
    """Return the address of the process that forks all others; start it if there is none."""
    forkserver.ensure_running()
    address: str = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    return address


def fork_from(address: str) -> None:
    """From now on fork from the process at this address; a new one would import the libraries
    again."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address = address
    if server._forkserver_alive_fd is None:
        # The process that started it ends it.
        server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
    server.ensure_running = resource_tracker.ensure_running
    forkserver.ensure_running = server.ensure_running


def become(variables: dict[str, str], forks: str) -> None:
    """Set up a process that was just forked, with these environment variables."""
    # The collector would visit a million objects of the libraries again and again.
    gc.freeze()
    fork_from(forks)
    # So its locks are released when it ends, however it ends.
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))


def _run(command: list[str], variables: dict[str, str], forks: str) -> None:
    become(variables, forks)
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")

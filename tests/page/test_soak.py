"""The whole page over HTTP for a short time: a crowd, many runs, and its end during a run."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from forked_process import ForkedProcess, run_forked
from machine_load import runs_in_parallel

from specviz.base.environment import ASSETS

pytestmark = [
    pytest.mark.skipif(not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts with Linux's /proc"),
]


# Its processes are forked from one with the libraries, whose objects are not counted.
SOAK = """
import gc
import sys
from types import SimpleNamespace

gc.freeze()

from forked_process import ForkedProcess, run_forked
from scripts import soak
from specviz.worker import client


def run(command, **_):
    python, option, module, arguments = command
    assert (option, module) == ("-m", "scripts.crowd")
    code = "from runpy import run_module; run_module('scripts.crowd', run_name='__main__')"
    return run_forked([python, "-c", code, arguments])


client.subprocess = SimpleNamespace(Popen=ForkedProcess, PIPE=None)
soak.subprocess = SimpleNamespace(run=run, PIPE=None)
sys.exit(soak.main())
"""


def test_a_crowd_leaves_nothing_behind_and_meets_no_error(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-c", SOAK, "--short", "--json", str(out)]
    done = run_forked(command, seconds=600)
    assert out.exists(), done.stderr
    figures = json.loads(out.read_text())
    assert figures["problems"] == []
    assert done.returncode == 0
    crowd = figures["crowd"]
    runs = figures["runs"]
    assert crowd["errors"] == runs["errors"] == 0
    assert min(crowd["counts"][kind] for kind in ("visits", "runs", "left")) > 0
    assert runs["counts"]["runs"] >= 40
    assert crowd["waits"]["replay"]["p50"] > 0
    assert sum(figures["strangers"]["statuses"].values()) > 0


# The models' process is forked as well, and identified by its number.
PAGE = """
import runpy
import sys
from types import SimpleNamespace

from forked_process import ForkedProcess
from specviz.worker import client


class Models(ForkedProcess):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print("models", self.pid, flush=True)


client.subprocess = SimpleNamespace(Popen=Models, PIPE=None)
sys.stdout = open(1, "w", closefd=False)  # that of the process it was forked from was no pipe
runpy.run_path("app.py", run_name="__main__")
"""


# The same as the first process of a new namespace, as in a container. Only its own children have
# numbers there, so the models' process is forked from it.
FIRST = """
import ctypes
import multiprocessing
import os
import sys

import forked_process

CLONE_NEWPID = 0x20000000
assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID) == 0, ctypes.get_errno()
if first := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
forked_process.PROCESSES = multiprocessing.get_context("fork")
"""


def may_make_a_namespace() -> bool:
    """Check whether this process may start the first process of a new namespace."""
    try:
        return subprocess.run(["unshare", "--pid", "--fork", "true"]).returncode == 0
    except OSError:
        return False


class Page:
    """The whole page: its address and its processes.

    code: runs before the page.
    """

    def __init__(self, code: str, **variables: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        address = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": port, **variables}
        self.popen = ForkedProcess([sys.executable, "-c", code + PAGE], os.environ | address)
        self._wait_until_it_answers()
        if code:
            (self.server,) = children(self.popen.pid)
            (self.models,) = children(self.server)
        else:
            self.server = self.popen.pid
            told = next(line for line in self.popen.stdout if line.startswith(b"models "))
            self.models = int(told.split()[1])

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.popen.poll() is None:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)

    def run(self, tokens: int) -> Any:
        """Start a run with the endpoint `race`, and return the stream of its lines."""
        asked = json.dumps({"prompt": "Once upon a time", "max_new_tokens": tokens}).encode()
        place = f"{self.url}/gradio_api/call"
        request = urllib.request.Request(f"{place}/v2/race", asked, JSON)
        with urllib.request.urlopen(request, timeout=60) as answer:
            name = json.load(answer)["event_id"]
        return urllib.request.urlopen(f"{place}/race/{name}", timeout=60)

    def is_not_ready(self) -> None:
        """Wait until the page's readiness probe says that it is about to end."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()
            except urllib.error.HTTPError as refused:
                assert refused.code == 503
                return
            time.sleep(0.02)
        pytest.fail("still ready 30 seconds after SIGTERM")

    def terminated(self) -> float:
        """Wait until both processes have ended; return the seconds that it took."""
        began = time.monotonic()
        self.popen.wait(timeout=60)
        while Path(f"/proc/{self.models}").exists() and time.monotonic() < began + 60:
            time.sleep(0.02)
        assert not Path(f"/proc/{self.models}").exists()
        return time.monotonic() - began


JSON = {"Content-Type": "application/json"}


@contextmanager
def racing(code: str = "", **variables: str) -> Iterator[tuple[Page, Any]]:
    """A page in the middle of a run, and the rest of the run's stream."""
    page = Page(code, **variables)
    try:
        with page.run(128) as stream:
            next(line for line in stream if b'"rounds"' in line)
            os.kill(page.models, signal.SIGSTOP)  # the run lasts as long as a test wants
            yield page, stream
    finally:
        for process in {page.models, page.server, page.popen.pid}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        page.popen.wait()


def test_sigterm_to_the_first_process_lets_the_run_end_and_exits_with_0() -> None:
    """The kernel does not deliver unhandled signals to the first process of a container."""
    if not may_make_a_namespace():
        pytest.skip("needs the right to make a namespace of processes: run it as root")
    with racing(FIRST, SPECVIZ_DRAIN_SECONDS="60") as (page, stream):
        os.kill(page.server, signal.SIGTERM)
        os.kill(page.models, signal.SIGTERM)  # a supervisor may send it to all processes
        page.is_not_ready()
        with page.run(4) as late:
            assert b"being restarted" in late.read()
        os.kill(page.models, signal.SIGCONT)
        rest = stream.read()
        reasons = json.loads(b"{" + re.findall(rb'"reasons": {[^}]*}', rest)[-1] + b"}")["reasons"]
        assert reasons == {"speculative": "length", "baseline": "length"}
        assert b"event: complete" in rest
        page.terminated()
        assert page.popen.poll() == 0


def test_sigterm_ends_a_stuck_pass_in_time() -> None:
    """The models' process is suspended, as if it hung inside a pass."""
    with racing(SPECVIZ_DRAIN_SECONDS="0.2") as (page, _):
        os.kill(page.server, signal.SIGTERM)
        took = page.terminated()
        assert page.popen.poll() == 0
        assert took < 20 or runs_in_parallel()  # about 5 s on an idle machine


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]

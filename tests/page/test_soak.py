"""The whole page over HTTP, for a short time: a crowd, many runs, and its end while it works."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from forked_process import ForkedProcess, run_forked
from machine_load import runs_in_parallel
from places import ROOT

from scripts.browsers import free_port
from specviz.environment import ASSETS

pytestmark = [
    pytest.mark.skipif(not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts with Linux's /proc"),
]


# Its processes are forked from one with the libraries, whose own objects are not counted.
SOAK = """
import gc
import sys
from types import SimpleNamespace

gc.freeze()

from forked_process import ForkedProcess
from scripts.soak import main
from specviz.worker import client

client.subprocess = SimpleNamespace(Popen=ForkedProcess, PIPE=None)
sys.exit(main())
"""


def test_a_crowd_leaves_nothing_behind_and_meets_no_error(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-c", SOAK, "--short", "--json", str(out)]
    done = run_forked(command, seconds=600)
    assert out.exists(), done.stderr
    figures = json.loads(out.read_text())
    assert figures["problems"] == []
    assert done.returncode == 0
    crowd, runs = figures["crowd"], figures["runs"]
    assert crowd["errors"] == runs["errors"] == 0
    assert min(crowd["counts"][kind] for kind in ("visits", "runs", "left")) > 0
    assert runs["counts"]["runs"] >= 40
    assert crowd["waits"]["replay"]["p50"] > 0
    assert sum(figures["strangers"]["statuses"].values()) > 0


def first_in_a_namespace() -> list[str]:
    """What starts a program as the first process of its own namespace, as in a container."""
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    return command if allowed else []


class Page:
    """The page as a whole: where it answers, and the processes of its server and of its models."""

    def __init__(self, url: str, server: int, models: int, wait: Callable[[], int | None]) -> None:
        self.url = url
        self.server = server
        self.models = models
        self._wait = wait  # for the program's end; returns its exit status

    def run(self, tokens: int) -> Any:
        """A run of the endpoint `race`, as a stream of lines that the server sends."""
        asked = json.dumps({"prompt": "Once upon a time", "max_new_tokens": tokens}).encode()
        place = f"{self.url}/gradio_api/call"
        request = urllib.request.Request(f"{place}/v2/race", asked, JSON)
        with urllib.request.urlopen(request, timeout=60) as answer:
            name = json.load(answer)["event_id"]
        return urllib.request.urlopen(f"{place}/race/{name}", timeout=60)

    def is_not_ready(self) -> None:
        """Wait until the page says to whoever sends it visitors that it is about to end."""
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
        """Wait until both processes have ended, the page with 0; returns the seconds since now."""
        began = time.monotonic()
        assert self._wait() == 0
        while Path(f"/proc/{self.models}").exists() and time.monotonic() < began + 60:
            time.sleep(0.02)
        assert not Path(f"/proc/{self.models}").exists()
        return time.monotonic() - began


JSON = {"Content-Type": "application/json"}


def free_address() -> tuple[str, dict[str, str]]:
    """Where a page may answer, and the variables that tell it so."""
    port = str(free_port())
    variables = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": port}
    return f"http://127.0.0.1:{port}", variables


def wait_for_answer(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the page did not start")


@contextmanager
def page_as_first_process(front: list[str], **variables: str) -> Iterator[Page]:
    """The page as users start it, as the first process of a namespace."""
    url, address = free_address()
    command = [*front, sys.executable, "app.py"]
    popen = subprocess.Popen(command, cwd=ROOT, env=os.environ | address | variables)
    server = popen.pid
    try:
        wait_for_answer(url)
        (server,) = children(popen.pid)
        (models,) = children(server)
        yield Page(url, server, models, lambda: popen.wait(timeout=60))
    finally:
        for process in {server, popen.pid}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        popen.wait()


# The page with its models, all forked from a process with the libraries. It prints the number of
# the models' process.
FORKED = """
import sys
from types import SimpleNamespace

from forked_process import ForkedProcess
from specviz.__main__ import main
from specviz.worker import client


def started(*arguments, **options):
    process = ForkedProcess(*arguments)
    print(process.pid, flush=True)
    return process


client.subprocess = SimpleNamespace(Popen=started, PIPE=None)
sys.exit(main(["page"]))
"""


@contextmanager
def forked_page(**variables: str) -> Iterator[Page]:
    url, address = free_address()
    process = ForkedProcess([sys.executable, "-c", FORKED], os.environ | address | variables)
    try:
        models = int(process.stdout.readline())
        wait_for_answer(url)
        yield Page(url, process.pid, models, lambda: process.wait(60))
    finally:
        process.kill()
        process.wait()


@contextmanager
def racing(page: Page) -> Iterator[Any]:
    """While the page is in the middle of a run: the rest of what that says."""
    with page.run(512) as stream:
        next(line for line in stream if b'"rounds"' in line)
        yield stream


def test_sigterm_to_the_first_process_lets_the_run_end_and_exits_with_0() -> None:
    """The kernel keeps signals that it does not handle from the first process of a container."""
    front = first_in_a_namespace()
    if not front:
        pytest.skip("needs the right to make a namespace of processes: run it as root")
    with (
        page_as_first_process(front, SPECVIZ_DRAIN_SECONDS="60") as page,
        racing(page) as stream,
    ):
        os.kill(page.server, signal.SIGTERM)
        os.kill(page.models, signal.SIGTERM)  # a supervisor may send it to all processes
        page.is_not_ready()
        with page.run(4) as late:
            assert b"being restarted" in late.read()
        rest = stream.read()
        reasons = json.loads(b"{" + re.findall(rb'"reasons": {[^}]*}', rest)[-1] + b"}")["reasons"]
        assert reasons == {"speculative": "length", "baseline": "length"}
        assert b"event: complete" in rest
        page.terminated()


def test_sigterm_ends_a_stuck_pass_in_time() -> None:
    with forked_page(SPECVIZ_DRAIN_SECONDS="0.2") as page, racing(page):
        os.kill(page.models, signal.SIGSTOP)  # as deep in a pass as can be
        os.kill(page.server, signal.SIGTERM)
        took = page.terminated()
        assert took < 20 or runs_in_parallel()  # about 5 s if nothing else runs


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]

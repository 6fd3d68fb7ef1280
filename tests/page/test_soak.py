"""The whole page over HTTP, for a short time: a crowd, many runs, and its end while it works."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_load import runs_in_parallel
from places import ROOT

from specviz.environment import ASSETS

pytestmark = [
    pytest.mark.skipif(not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts with Linux's /proc"),
]


def test_a_crowd_leaves_nothing_behind_and_meets_no_error(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "scripts.soak", "--short", "--json", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
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


@pytest.fixture
def app() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=os.environ | address)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    yield process, url
    process.kill()
    process.wait()


@pytest.mark.parametrize("stuck", [False, True])
def test_sigterm_while_running_ends_all_within_five_seconds(
    app: tuple[subprocess.Popen[bytes], str], stuck: bool
) -> None:
    process, url = app
    command = [sys.executable, "-m", "scripts.crowd", url, "--visitors", "3"]
    crowd = subprocess.Popen(
        [*command, "--runs", "50", "--tokens", "512"], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    try:
        (worker,) = children(process.pid)
        idle = cpu_ticks(worker)
        deadline = time.monotonic() + 60
        while cpu_ticks(worker) < idle + 200 and time.monotonic() < deadline:
            time.sleep(0.1)  # until it has decoded for a while
        if stuck:
            os.kill(worker, signal.SIGSTOP)  # as deep in a pass as can be
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        while Path(f"/proc/{worker}").exists() and time.monotonic() < began + 60:
            time.sleep(0.02)
        assert not Path(f"/proc/{worker}").exists()
        assert time.monotonic() - began < 5 or runs_in_parallel()
    finally:
        crowd.kill()
        crowd.wait()


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]


def cpu_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])

"""The page in a real browser, for tests and pictures.

It needs Playwright and Chromium, which are not needed to run the page.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specviz.base.errors import SpecvizError

_HOME = Path(__file__).resolve().parent.parent  # from here Python imports this package
# The first is Chromium without windows: with it the tests need a seventh less processor time.
NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome", "google-chrome-stable"),
)
# The page must work without any other host, so the browser's background requests are disabled.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-gpu-rasterization",  # without a GPU, a simulated one takes twice the time
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # In each window the address bar would load pages of its own, which nobody sees here. (These
    # replace Playwright's own list, from which the last ones come.)
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,"
    "OptimizationHints,MediaRouter,PaintHolding,HttpsUpgrades",
)


def installed(variable: str, *names: str) -> str | None:
    """The path of a program: from this environment variable or from $PATH; else None."""
    for name in (os.environ.get(variable, ""), *names):
        path = shutil.which(name) if name else None
        if path is not None:
            return path
    return None


def chromium_path() -> str | None:
    """The path of Chromium: from $CHROMIUM, from $PATH, or Playwright's download; else None."""
    path = installed("CHROMIUM", *NAMES)
    if path is not None:
        return path
    with _playwright() as playwright:
        download: str = playwright.chromium.executable_path
    return download if os.path.exists(download) else None


@contextmanager
def chromium(*flags: str) -> Iterator[Any]:
    """A headless browser for the block, with further flags; raises `SpecvizError` without Chromium
    or Playwright."""
    path = chromium_path()
    if path is None:
        raise SpecvizError("no Chromium was found: install one, or set CHROMIUM to its path.")
    with _playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served_page(
    command: Sequence[str] = ("-m", "specviz", "page"), folder: Path = _HOME
) -> Iterator[str]:
    """Serve the page in another process during the block; yields its URL.

    command: arguments for Python, run in `folder`; the server reads its address from Gradio's
    environment variables. Raises `SpecvizError` if the process ends, or does not answer within
    two minutes.
    """
    port = free_port()
    address = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port)}
    server = subprocess.Popen([sys.executable, *command], cwd=folder, env=os.environ | address)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(server, url)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=20)


def free_port() -> int:
    """A free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return int(holder.getsockname()[1])


def _wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # nosec B310
            return
        except OSError:
            time.sleep(0.1)
    raise SpecvizError("the page did not start: run 'python -m specviz page' to see why.")


_running: list[Any] = []
"""Playwright runs once in a thread; browsers of different flags share it."""


@contextmanager
def _playwright() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise SpecvizError(
            "Playwright is not installed: run pip install -r requirements-dev.txt."
        ) from error
    if _running:
        yield _running[0]
        return
    with sync_playwright() as playwright:
        _running.append(playwright)
        try:
            yield playwright
        finally:
            _running.clear()

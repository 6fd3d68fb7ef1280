"""What the browser tests share: a served page and a visitor on it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from playwright.sync_api import Locator, Page, expect

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PATIENCE = 60_000  # ms; two busy cores are slow


@contextmanager
def served(*command: str) -> Iterator[str]:
    """The URL of a page that `command` serves on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port)}
    arguments = [part.replace("{port}", str(port)) for part in command]
    server = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=os.environ | names)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=20)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return once the page answers."""
    for _ in range(600):
        assert server.poll() is None, "the page stopped before it was ready"
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the page did not answer within a minute")


class Visitor:
    """One browser window on the page, with the handles that DESIGN promises to tools."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.player = page.locator("[data-player]")
        self.problems: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
            self.problems.append(f"outside request: {request.url}")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def lane(self, name: str) -> Locator:
        return self.page.locator(f"[data-lane={name}]")

    def state(self, name: str) -> None:
        """Wait until the player is in this state."""
        expect(self.player).to_have_attribute("data-state", name, timeout=PATIENCE)

    def set(self, label: str, value: float) -> None:
        """Write a number into a control of the settings panel."""
        panel = self.page.locator("[data-toggle-panel]")
        if panel.get_attribute("aria-expanded") == "false":
            panel.click()
        box = self.page.get_by_label(label)
        box.fill(str(value))
        box.blur()

    def prompt(self, text: str) -> None:
        self.page.get_by_label("Prompt", exact=True).fill(text)

    def run(self) -> dict[str, Any]:
        """Press Run and wait for its end; the player's trace."""
        before = self.page.evaluate("window.specviz.run")
        self.button("Run").click()
        self.page.wait_for_function("before => window.specviz.run !== before", arg=before)
        self.state("ended")
        return self.trace()

    def trace(self) -> dict[str, Any]:
        return self.page.evaluate("window.specviz.trace")


Visit: TypeAlias = Callable[..., Visitor]

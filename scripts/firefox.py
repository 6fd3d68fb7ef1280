"""Debian's Firefox, driven over WebDriver BiDi, which it speaks itself: no driver and no package.

Playwright's own build of Firefox is not in Debian, and its bindings for BiDi ask this one for a
command that it lacks.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from specviz.errors import SpecvizError

NAMES = ("firefox-esr", "firefox")
ANSWERS_WITHIN = 60.0  # seconds
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "ArrowRight": "\ue014"}
KEYS |= {"ArrowDown": "\ue015", "Space": " "}


def firefox_path() -> str | None:
    """The path of Firefox: from $FIREFOX or from $PATH; else None."""
    names = (os.environ.get("FIREFOX", ""), *NAMES)
    return next((found for name in names if name and (found := shutil.which(name))), None)


@contextmanager
def firefox(width: int = 1440, height: int = 900) -> Iterator[Firefox]:
    """A headless Firefox with one window for the block. Raises `SpecvizError` without Firefox."""
    path = firefox_path()
    if path is None:
        raise SpecvizError("no Firefox was found: install one, or set FIREFOX to its path.")
    with tempfile.TemporaryDirectory() as profile:
        command = [path, "--headless", "--no-remote", "--profile", profile]
        size = [f"--width={width}", f"--height={height}"]
        process = subprocess.Popen(
            [*command, *size, "--remote-debugging-port=0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        try:
            running = Firefox(_Channel("127.0.0.1", _port_of(process)), width, height)
            yield running
            running.close()
        finally:
            process.terminate()
            process.wait(timeout=20)


def _port_of(process: subprocess.Popen[str]) -> int:
    """Firefox says where it listens."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"WebDriver BiDi listening on ws://[\w.]+:(\d+)", line):
            return int(found.group(1))
    raise SpecvizError("Firefox ended before it could be reached: start it by hand to see why.")


class Firefox:
    """One window. problems: what its console and its scripts had to say against the page."""

    def __init__(self, channel: _Channel, width: int, height: int) -> None:
        self._channel = channel
        self.problems: list[str] = []
        channel.heard = self._hear
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        (first, *_) = self._ask("browsingContext.getTree")["contexts"]
        self._window = first["context"]
        viewport = {"width": width, "height": height}
        self._ask("browsingContext.setViewport", context=self._window, viewport=viewport)

    def goto(self, url: str) -> None:
        """Load a page."""
        self._ask("browsingContext.navigate", context=self._window, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, or of its promise."""
        found = self._ask(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})) ?? 'null')()",
            target={"context": self._window},
            awaitPromise=True,
        )
        if found["type"] == "exception":
            raise AssertionError(found["exceptionDetails"]["text"])
        return json.loads(found["result"]["value"])

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true; raises `AssertionError` if it never is."""
        deadline = time.monotonic() + ANSWERS_WITHIN
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise AssertionError(f"this never was so: {expression}")
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        actions = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._ask("input.performActions", context=self._window, actions=[source])

    def click(self, selector: str) -> None:
        """Press an element by its handler, wherever it lies."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def screenshot(self) -> bytes:
        """The window as a PNG."""
        found = self._ask("browsingContext.captureScreenshot", context=self._window)
        return base64.b64decode(found["data"])

    def close(self) -> None:
        """End the session, and Firefox."""
        self._ask("browser.close")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._channel.ask(method, parameters)

    def _hear(self, event: dict[str, Any]) -> None:
        entry = event.get("params", {})
        if event.get("method") == "log.entryAdded" and entry["level"] in ("error", "warn"):
            self.problems.append(f"{entry['level']}: {entry.get('text')}")


class _Channel:
    """Commands and events over one WebSocket (RFC 6455): texts of any length, nothing else."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=ANSWERS_WITHIN)
        self._number = 0
        self.heard: Callable[[dict[str, Any]], None] = lambda event: None
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self._socket.sendall(
            f"GET /session HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._read(1)

    def ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The result of a command; events that come meanwhile are handed on."""
        self._number += 1
        self._send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._receive())
            if answer.get("id") != self._number:
                self.heard(answer)
            elif answer["type"] == "error":
                raise AssertionError(f"{method}: {answer['message']}")
            else:
                return dict(answer["result"])

    def _send(self, text: str) -> None:
        data, mask = text.encode(), secrets.token_bytes(4)
        if len(data) < 126:
            size = struct.pack(">BB", 0x81, 0x80 | len(data))
        elif len(data) < 1 << 16:
            size = struct.pack(">BBH", 0x81, 0xFE, len(data))
        else:
            size = struct.pack(">BBQ", 0x81, 0xFF, len(data))
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        self._socket.sendall(size + mask + masked)

    def _receive(self) -> bytes:
        """One message, of as many frames as it has."""
        message = b""
        while True:
            first, length = struct.unpack(">BB", self._read(2))
            if length == 126:
                (length,) = struct.unpack(">H", self._read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self._read(8))
            data = self._read(length)
            if first & 0x0F > 2:  # a ping, or the end
                continue
            message += data
            if first & 0x80:
                return message

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise SpecvizError("Firefox closed the connection.")
            data += piece
        return data

"""Debian's Firefox, controlled over WebDriver BiDi, which it supports itself: no driver and no
package.

Playwright's own build of Firefox is not in Debian, and its bindings for BiDi send this one a
command that it lacks.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scripts.browsers import installed
from specviz.base.errors import SpecvizError

ANSWERS_WITHIN = 60.0  # seconds
KEYS = {"Enter": "\ue007", "Escape": "\ue00c"}
HANDSHAKE = """GET /session HTTP/1.1
Host: 127.0.0.1:{port}
Upgrade: websocket
Connection: Upgrade
Sec-WebSocket-Key: c3BlY3ZpeiBvbiBmaXJlZg==
Sec-WebSocket-Version: 13

"""


def firefox_path() -> str | None:
    """The path of Firefox: from $FIREFOX or from $PATH; else None."""
    return installed("FIREFOX", "firefox-esr", "firefox")


@contextmanager
def firefox() -> Iterator[Firefox]:
    """A headless Firefox with one window for the block. Raises `SpecvizError` without Firefox."""
    path = firefox_path()
    if path is None:
        raise SpecvizError("no Firefox was found: install one, or set FIREFOX to its path.")
    with tempfile.TemporaryDirectory() as profile:
        command = [path, "--headless", "--no-remote", "--profile", profile]
        process = subprocess.Popen(
            [*command, "--remote-debugging-port=0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        try:
            running = Firefox(_port_of(process))
            yield running
            running.ask("browser.close")
        finally:
            process.terminate()
            process.wait(timeout=20)


def _port_of(process: subprocess.Popen[str]) -> int:
    """The port that Firefox prints."""
    assert process.stderr is not None
    for line in process.stderr:
        match = re.search(r"WebDriver BiDi listening on ws://[\w.]+:(\d+)", line)
        if match:
            return int(match[1])
    raise SpecvizError("Firefox exited before it could be reached: start it by hand to see why.")


class Firefox:
    """One window. problems: the errors from its console and its scripts."""

    def __init__(self, port: int) -> None:
        self.problems: list[str] = []
        self._number = 0
        connection = socket.create_connection(("127.0.0.1", port), timeout=ANSWERS_WITHIN)
        self._stream = connection.makefile("rwb")
        handshake = HANDSHAKE.format(port=port).replace("\n", "\r\n")
        self._stream.write(handshake.encode())
        self._stream.flush()
        while self._stream.readline().strip():
            pass  # the answer's headers
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded"])
        (first, *_) = self.ask("browsingContext.getTree")["contexts"]
        self._window = first["context"]
        viewport = {"width": 1440, "height": 900}
        self.ask("browsingContext.setViewport", context=self._window, viewport=viewport)

    def goto(self, url: str) -> None:
        """Load a page."""
        self.ask("browsingContext.navigate", context=self._window, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, or of its promise."""
        answer = self.ask(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})) ?? 'null')()",
            target={"context": self._window},
            awaitPromise=True,
        )
        if answer["type"] == "exception":
            raise AssertionError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true; raises `AssertionError` if it never is."""
        deadline = time.monotonic() + ANSWERS_WITHIN
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise AssertionError(f"this never became true: {expression}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press a key."""
        value = KEYS.get(key, key)
        actions = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self.ask("input.performActions", context=self._window, actions=[source])

    def screenshot(self) -> bytes:
        """The window as a PNG."""
        answer = self.ask("browsingContext.captureScreenshot", context=self._window)
        return base64.b64decode(answer["data"])

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events may come before it."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        self._send(json.dumps(command))
        while (answer := json.loads(self._receive())).get("id") != self._number:
            entry = answer.get("params", {})
            if answer.get("method") == "log.entryAdded" and entry["level"] in ("error", "warn"):
                self.problems.append(f"{entry['level']}: {entry.get('text')}")
        if answer["type"] == "error":
            raise AssertionError(f"{method}: {answer['message']}")
        return dict(answer["result"])

    def _send(self, text: str) -> None:
        """Send a frame of a WebSocket (RFC 6455)."""
        mask = b"mask"  # Firefox takes a mask of zeros for none
        data = text.encode()
        if len(data) < 126:
            size = struct.pack(">BB", 0x81, 0x80 | len(data))
        else:
            size = struct.pack(">BBH", 0x81, 0xFE, len(data))
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        self._stream.write(size + mask + masked)
        self._stream.flush()

    def _receive(self) -> bytes:
        """Read one message, which may have several frames."""
        message = b""
        while True:
            first, length = self._read(2)
            if size := {126: 2, 127: 8}.get(length):
                length = int.from_bytes(self._read(size), "big")
            data = self._read(length)
            if first & 0x0F > 2:  # a ping, or the end
                continue
            message += data
            if first & 0x80:
                return message

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise SpecvizError("Firefox closed the connection.")
        return data

"""A stand-in for ZeroGPU's device service on loopback: it lends what it is told to lend."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from local_server import QuietHandler, serving

GRANTED = {"idle": False, "nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": "let me in"}
QUOTA = {"left": 12, "wait": 12_345}


@dataclass
class Devices:
    """What the service was asked, as (path, parameters), and what it says to the next askers.

    answers: "quota", "illegal", "pending", "busy", "timeout", "queue", "broken", "same", which is
    the GPU of the last call with its process; when there are none left, a GPU is granted at once.
    """

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    answers: deque[str] = field(default_factory=deque)

    def last(self, path: str) -> dict[str, str]:
        """The parameters of the last request there."""
        return next(parameters for one, parameters in reversed(self.asked) if one == path)

    def count(self, path: str) -> int:
        """How many requests there have been."""
        return sum(one == path for one, _ in self.asked)


@contextmanager
def device_service() -> Iterator[Devices]:
    """The service, for as long as the block runs."""
    devices = Devices()
    with serving(_handler(devices)) as devices.url:
        yield devices


def _handler(devices: Devices) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = urlsplit(self.path)
            devices.asked.append((asked.path, dict(parse_qsl(asked.query))))
            if asked.path == "/schedule":
                self.schedule(devices.answers.popleft() if devices.answers else "grant")
            else:
                self.send(200, b"")

        def schedule(self, answer: str) -> None:
            if answer in ("grant", "same"):
                self.say(200, GRANTED | {"idle": answer == "same"})
            elif answer == "quota":
                self.say(429, QUOTA, {"X-Approve-Result": "quota-exceeded"})
            elif answer == "pending":
                self.say(429, QUOTA, {"X-Approve-Result": "pending-overquota-exceeded"})
            elif answer == "illegal":
                self.say(429, QUOTA | {"wait": -1})
            elif answer == "busy":
                self.send(503, b"")
            elif answer == "broken":
                self.send(500, b"")
            else:
                self.stream("failed" if answer == "timeout" else "succeeded")

        def say(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
            json_type = {"Content-Type": "application/json"}
            self.send(status, json.dumps(body).encode(), {**json_type, **(headers or {})})

        def stream(self, last: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            data = f"\ndata: {json.dumps(GRANTED)}" if last == "succeeded" else ""
            for text in ("event: ping\n\n", f"event: {last}{data}\n\n"):
                self.wfile.write(text.encode())
                self.wfile.flush()
                time.sleep(0.1)  # else both arrive as one

    return Handler

"""A stand-in for ZeroGPU's device service on loopback: it lends what it is told to lend."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

GRANTED = {"idle": False, "nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": "let me in"}


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
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(devices))
    server.daemon_threads = True
    devices.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield devices
    server.shutdown()
    server.server_close()


def _handler(devices: Devices) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = urlsplit(self.path)
            devices.asked.append((asked.path, dict(parse_qsl(asked.query))))
            if asked.path == "/schedule":
                self.schedule(devices.answers.popleft() if devices.answers else "grant")
            else:
                self.say(200)

        def schedule(self, answer: str) -> None:
            quota = {"left": 12, "wait": 12_345}
            if answer in ("grant", "same"):
                self.say(200, GRANTED | {"idle": answer == "same"})
            elif answer in ("quota", "pending"):
                result = {"pending": "pending-overquota-exceeded"}.get(answer, "quota-exceeded")
                self.say(429, quota, {"X-Approve-Result": result})
            elif answer == "illegal":
                self.say(429, {"left": 12, "wait": -1})
            elif answer == "busy":
                self.say(503)
            elif answer == "broken":
                self.say(500)
            else:
                self.stream("failed" if answer == "timeout" else "succeeded")

        def stream(self, last: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            data = f"\ndata: {json.dumps(GRANTED)}" if last == "succeeded" else ""
            for text in ("event: ping\n\n", f"event: {last}{data}\n\n"):
                self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
                self.wfile.flush()
                threading.Event().wait(0.1)  # else both arrive as one
            self.wfile.write(b"0\r\n\r\n")

        def say(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode() if body is not None else b""
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler

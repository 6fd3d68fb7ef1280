"""Servers of tests on this machine: what their handlers share, and their start and end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that prints no line for each request."""

    def send(self, status: int, raw: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer with these bytes."""
        self.send_response(status)
        for name, text in {"content-length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.write(raw)

    def write(self, raw: bytes) -> None:
        """Send the body of an answer."""
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port inside the block; yields the address, such as "http://127.0.0.1:4711"."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()

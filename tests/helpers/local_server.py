"""Small HTTP servers of tests on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Headers = Mapping[str, str]


class Handler(BaseHTTPRequestHandler):
    """A request handler: subclasses implement `respond`, which gets the request's JSON."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise an answer waits until its header is acknowledged

    def respond(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.respond(json.loads(raw) if raw else {})

    do_POST = do_GET

    def answer(self, status: int, value: Any, headers: Headers | None = None) -> None:
        """Send bytes as they are, any other value as JSON."""
        if isinstance(value, bytes):
            raw = value
            known = {}
        else:
            raw = json.dumps(value).encode()
            known = {"content-type": "application/json"}
        self._head(status, {**known, "content-length": str(len(raw)), **(headers or {})})
        if self.command != "HEAD":
            self.write(raw)

    def stream(
        self, chunks: Iterable[bytes], status: int = 200, headers: Headers | None = None
    ) -> None:
        """Send each chunk at once; the connection ends after the last one."""
        self._head(status, {"connection": "close", **(headers or {})})
        for chunk in chunks:
            self.write(chunk)

    def write(self, raw: bytes) -> None:
        self.wfile.write(raw)

    def _head(self, status: int, headers: Headers) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port inside the block; yields the address, such as "http://127.0.0.1:4711"."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # `shutdown` takes as long as the poll interval.
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()

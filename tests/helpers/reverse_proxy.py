"""A reverse proxy in front of a page, as a web server would serve it below a path of its own."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOPS = {"connection", "keep-alive", "transfer-encoding", "host"}  # between two neighbours


@contextmanager
def served_below(url: str, path: str) -> Iterator[str]:
    """The page at `url` under another address that ends with `path`, such as "/talks/race"."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _forwarder(urlsplit(url).netloc, path))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}{path}"
    server.shutdown()
    server.server_close()


def _forwarder(netloc: str, path: str) -> type[BaseHTTPRequestHandler]:
    class Forwarder(BaseHTTPRequestHandler):
        def forward(self) -> None:
            if self.path == path:
                self.send_response(301)
                self.send_header("Location", path + "/")
                self.end_headers()
                return
            if not self.path.startswith(path + "/"):
                self.send_error(404)
                return
            page = http.client.HTTPConnection(netloc, timeout=60)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sent = {k: v for k, v in self.headers.items() if k.lower() not in HOPS}
            sent |= {"Host": self.headers["Host"], "X-Forwarded-Proto": "http"}
            page.request(self.command, self.path.removeprefix(path), body, sent)
            answer = page.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOPS:
                    self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the visitor may have left
                while data := answer.read1(65536):  # at once: runs are streamed
                    self.wfile.write(data)
                    self.wfile.flush()
            page.close()

        do_GET = do_POST = do_HEAD = forward

        def log_message(self, *_: object) -> None:
            pass

    return Forwarder

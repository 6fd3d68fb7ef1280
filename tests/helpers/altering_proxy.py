"""A proxy in front of a server that alters what passes: the bodies of requests, the answers, or
whether there is one at all."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from local_server import QuietHandler, serving

Body = dict[str, Any]


@dataclass
class Proxy:
    """A running proxy.

    url: in the place of the server's. ask: what a request becomes on its way. text: what the text
    of an answer that is no stream becomes, by its path. status: of the refusal of each text that is
    asked for, from number `healthy` on; 0 closes the connection in mid-stream, and None refuses
    nothing. is_stalled: texts from there on are never answered; stalls: set once one is not.
    paths: of all requests. keys: that were sent. left: set when the proxy ends.
    """

    ask: Callable[[str, Body], Body] = lambda path, body: body
    text: Callable[[str, str], str] = lambda path, text: text
    status: int | None = None
    healthy: int = 0
    is_stalled: bool = False
    url: str = ""
    paths: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    texts: int = 0
    stalls: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)


@contextmanager
def altered(url: str, **alterations: Any) -> Iterator[Proxy]:
    """A proxy in front of the server with this interface."""
    proxy = Proxy(**alterations)
    with serving(_handler(urlsplit(url).netloc, proxy)) as own_url:
        proxy.url = f"{own_url}/v1"
        try:
            yield proxy
        finally:
            proxy.left.set()


def _handler(netloc: str, proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        def forward(self) -> None:
            proxy.paths.append(self.path)
            proxy.keys.add(self.headers.get("authorization", ""))
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            body = json.loads(raw) if raw else {}
            is_text = self.path.endswith(("/completion", "/completions"))
            proxy.texts += is_text
            is_faulty = is_text and proxy.texts > proxy.healthy
            if is_faulty and proxy.is_stalled:
                proxy.stalls.set()
                proxy.left.wait(30)
                return
            if is_faulty and proxy.status:
                self.send_error(proxy.status)
                return
            upstream = http.client.HTTPConnection(netloc, timeout=60)
            sent = json.dumps(proxy.ask(self.path, body)) if raw else None
            upstream.request(self.command, self.path, sent, {"content-type": "application/json"})
            answer = upstream.getresponse()
            with suppress(ConnectionError):  # who asked may have left
                if body.get("stream"):
                    self.send_response(answer.status)
                    self.end_headers()
                    while data := answer.read1(65536):
                        self.wfile.write(data)
                        self.wfile.flush()
                        if is_faulty and proxy.status == 0:
                            break
                else:
                    text = proxy.text(self.path, answer.read().decode()).encode()
                    self.send_response(answer.status)
                    self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
            upstream.close()

        do_GET = do_POST = forward

    return Handler

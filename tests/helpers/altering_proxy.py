"""A proxy that alters requests and answers of a server, refuses them or stalls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import httpx
from local_server import Handler, serving

Body = dict[str, Any]


@dataclass
class Proxy:
    """A running proxy.

    url: replaces the server's. ask: alters the body of a request, by its path. text: alters an
    answer that is no stream, by its path. status: of the refusal of requests for texts, after the
    first `healthy` ones; 0 closes the connection in mid-stream. is_stalled: those requests are
    never answered; stalls: set when the first of them arrives. paths: of all requests. keys: all
    keys that were sent. left: set when the proxy ends.
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
    """Run a proxy in front of the server at `url`."""
    proxy = Proxy(**alterations)
    root = url.removesuffix("/v1")
    upstream = httpx.Client(timeout=60, trust_env=False)

    class Altering(Handler):
        def respond(self, body: Body) -> None:
            proxy.paths.append(self.path)
            proxy.keys.add(self.headers.get("authorization", ""))
            is_text = self.path.endswith(("/completion", "/completions"))
            proxy.texts += is_text
            is_faulty = is_text and proxy.texts > proxy.healthy
            if is_faulty and proxy.is_stalled:
                proxy.stalls.set()
                proxy.left.wait(30)
                self.close_connection = True
            elif is_faulty and proxy.status:
                self.answer(proxy.status, b"")
            else:
                self.forward(body, is_cut=is_faulty and proxy.status == 0)

        def forward(self, body: Body, *, is_cut: bool) -> None:
            sent = proxy.ask(self.path, body) if body else None
            is_client_gone = suppress(ConnectionError)
            with (
                upstream.stream(self.command, root + self.path, json=sent) as reply,
                is_client_gone,
            ):
                if body.get("stream"):
                    chunks = islice(reply.iter_raw(), 1 if is_cut else None)
                    self.stream(chunks, reply.status_code)
                else:
                    text = proxy.text(self.path, reply.read().decode())
                    self.answer(reply.status_code, text.encode())

    with upstream, serving(Altering) as own_url:
        proxy.url = f"{own_url}/v1"
        try:
            yield proxy
        finally:
            proxy.left.set()

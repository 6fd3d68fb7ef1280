"""The page on loopback, over a toy pair, in this process: for callers without a browser."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from toy_models import byte_level, llama, relative

from specviz import Pair, race
from specviz.page.server import Page, build_page
from specviz.pairs.table import NamedPair
from specviz.worker.local import LocalWorker

JSON = {"Content-Type": "application/json"}
NOWHERE = Path("/nonexistent")


class Answer(NamedTuple):
    """An HTTP response: status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """A running page. cookie: with which requests come, if that of a visitor who has signed in."""

    def __init__(self, page: Page, host: str, port: int) -> None:
        self.page = page
        self.host = host
        self.port = port
        self.url = f"http://{host}:{port}"
        self.cookie = ""

    def sign_in(self, name: str, password: str) -> None:
        """Sign in: later requests send the cookie."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self.post("/login", f"username={name}&password={password}".encode(), form)
        assert answer.status == 200, answer
        self.cookie = answer.headers["set-cookie"].split(";")[0]

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request, with its path unchanged."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            if raw is not None:
                connection.putheader("Content-Length", str(len(raw)))
            usual = JSON if raw is not None else {}
            for name, value in (usual if headers is None else headers).items():
                connection.putheader(name, value)
            if self.cookie:
                connection.putheader("Cookie", self.cookie)
            connection.endheaders(raw)
            got = connection.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("POST", path, body, headers)

    @contextmanager
    def turns(self) -> Iterator[list[float]]:
        """Measure, while the block runs, the processor seconds of this process between two turns of
        the server's event loop. The time of other programs does not count, so a busy machine does
        not decide; code that blocks the loop, or holds Python's lock, does."""
        found: list[float] = []
        over = False

        async def turn() -> None:
            before = time.process_time()
            while not over:
                await asyncio.sleep(0.002)
                now = time.process_time()
                found.append(now - before)
                before = now

        # A collection of all that the tests hold takes 0.2 seconds, and is not a visitor's doing:
        # they stay out of it to the end, as in tests/conftest.py.
        gc.freeze()
        loop = self.page.get_blocks().server.servers[0].get_loop()
        turning = asyncio.run_coroutine_threadsafe(turn(), loop)
        try:
            yield found
        finally:
            over = True
            turning.result(30)

    def question(self, name: str, asked: Any) -> Answer:
        """Ask what the page asks."""
        return self.post(f"/ask/{name}", asked)

    def offer(self) -> Any:
        """Return the page's offer, read from its HTML."""
        page = self.get("/").body.decode()
        return json.loads(page.split('id="offer">')[1].split("</script>")[0])

    def file(self, form: str, raw: bytes) -> Answer:
        """Have a file read."""
        return self.post(f"/files/{form}", raw, {"Content-Type": "application/octet-stream"})

    def events(self, name: str, body: Any) -> list[tuple[str, Any]]:
        """All that an endpoint says: pairs of the event's kind and its value."""
        begun = self.post(f"/gradio_api/call/{name}", body)
        assert begun.status == 200, begun
        said = self.get(f"/gradio_api/call/{name.removeprefix('v2/')}/{begun.json['event_id']}")
        found = []
        for block in said.body.decode().strip().split("\n\n"):
            kind, data = block.split("\n", 1)
            found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return found


def toy_pair(*_: Any) -> Pair:
    """Two models of a few microseconds that can read any text."""
    target = llama(300)
    return Pair(
        target=target, draft=relative(target, noise=0.05), tokenizer=byte_level(300), name="toy"
    )


@contextmanager
def served(
    load: Any = toy_pair,
    race: Any = race,
    doctor: Any = None,
    recordings: Path = NOWHERE,
    awaited: NamedPair | None = None,
) -> Iterator[Site]:
    """A page with these models, for as long as the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    doctor = doctor or LocalWorker(load, race)
    page = build_page(
        LocalWorker(load, race), recordings=recordings, doctor=doctor, awaited=awaited
    )
    page.serve(server_name="127.0.0.1", server_port=port, quiet=True)
    try:
        yield Site(page, "127.0.0.1", port)
    finally:
        page.close()

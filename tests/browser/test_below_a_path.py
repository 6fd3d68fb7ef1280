"""The page behind a web server that serves it below a path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from forked_page import forked_page
from local_server import Handler, serving
from playwright.sync_api import expect
from visitor import Visit

pytestmark = pytest.mark.browser
SERVE = Path(__file__).resolve().parent / "serve.py"
PATH = "/talks/race"
HOPS = {"connection", "keep-alive", "transfer-encoding", "host"}
"""Headers between two neighbours."""


@contextmanager
def served_below(url: str, path: str) -> Iterator[str]:
    """Serve the page at `url` below `path` of another address, as a web server would."""
    page = httpx.Client(timeout=60, trust_env=False)

    class Forwarder(Handler):
        def do_GET(self) -> None:
            if self.path == path:
                self.answer(301, b"", {"Location": path + "/"})
                return
            if not self.path.startswith(path + "/"):
                self.answer(404, b"")
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sent = {k: v for k, v in self.headers.items() if k.lower() not in HOPS}
            sent |= {"Host": self.headers["Host"], "X-Forwarded-Proto": "http"}
            address = url + self.path.removeprefix(path)
            with page.stream(self.command, address, content=body, headers=sent) as reply:
                headers = {k: v for k, v in reply.headers.items() if k not in HOPS}
                with suppress(ConnectionError):  # the visitor may have left
                    self.stream(reply.iter_raw(), reply.status_code, headers)

        do_POST = do_HEAD = do_GET

    with page, serving(Forwarder) as address:
        yield address + path


@pytest.fixture(scope="module")
def below() -> Iterator[str]:
    with (
        forked_page(SERVE, GRADIO_ROOT_PATH=PATH) as url,
        served_below(url, PATH) as address,
    ):
        yield address


def test_modules_charts_and_runs_work_there(visit: Visit, below: str) -> None:
    visitor = visit(address=below)
    visitor.set("number input for Length", 16)
    visitor.prompt("Once upon a time")
    trace = visitor.run()
    assert trace["rounds"] and trace["end"]
    for name in ("tokens", "alpha", "tau", "speed"):
        expect(visitor.page.locator(f"[data-line={name}] .sv-line").first).to_be_visible()
    visitor.button("Why this speed?").click()
    expect(visitor.page.locator(".js-plotly-plot").first).to_be_visible()
    asked = visitor.page.evaluate("performance.getEntriesByType('resource').map((e) => e.name)")
    assert any("plotly" in url for url in asked)
    assert all(url.startswith((below, "data:", "blob:")) for url in asked)

    visitor.page.goto(below)  # the address without its last slash leads there
    visitor.page.wait_for_selector("[data-player][data-ready]")
    assert visitor.page.url.split("?")[0] == below + "/"

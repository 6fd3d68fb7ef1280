"""The page behind a web server that serves it below a path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_page import forked_page
from playwright.sync_api import expect
from reverse_proxy import served_below
from visitor import Visit

pytestmark = pytest.mark.browser
SERVE = Path(__file__).resolve().parent / "serve.py"
PATH = "/talks/race"


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

"""A running page and a real browser, whose visitors must see no error and ask no other host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from visitor import Visit, Visitor

from scripts.browsers import chromium, served_page

SERVE = Path(__file__).resolve().parent / "serve.py"


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A page over a small random pair."""
    with served_page([str(SERVE)]) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium."""
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Visit]:
    """Open the page as a new visitor; at the end nobody may have seen a problem."""
    visitors: list[Visitor] = []

    def open_page(
        *, width: int = 1440, height: int = 900, query: str = "", address: str = url
    ) -> Visitor:
        context = browser.new_context(viewport={"width": width, "height": height})
        visitor = Visitor(context.new_page())
        visitors.append(visitor)
        visitor.page.goto(f"{address}/{query}")
        visitor.ready()
        return visitor

    yield open_page
    for visitor in visitors:
        visitor.page.context.close()
    assert [problem for visitor in visitors for problem in visitor.problems] == []

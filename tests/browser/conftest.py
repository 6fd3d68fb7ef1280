"""A running page and a real browser, whose visitors must see no error and ask no other host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from visiting import HERE, Visitor, served

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A page over a small random pair."""
    with served(str(HERE / "serve.py"), "{port}") as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium: the one that $CHROMIUM names, one on the path, else Playwright's own."""
    named = os.environ.get("CHROMIUM", "")
    found = [path for name in (named, *NAMES) if name and (path := shutil.which(name))]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=found[0] if found else None, args=FLAGS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Callable[..., Visitor]]:
    """Open the page as a new visitor; at the end nobody may have seen a problem."""
    visitors: list[Visitor] = []

    def open_page(
        *, width: int = 1440, height: int = 900, query: str = "", address: str = url
    ) -> Visitor:
        context = browser.new_context(viewport={"width": width, "height": height})
        visitor = Visitor(context.new_page())
        visitors.append(visitor)
        visitor.page.goto(f"{address}/{query}")
        visitor.page.wait_for_selector("[data-player][data-ready]")
        return visitor

    yield open_page
    for visitor in visitors:
        visitor.page.context.close()
    assert [problem for visitor in visitors for problem in visitor.problems] == []

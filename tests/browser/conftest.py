"""Fixtures: a running page, and a real browser whose visitors must see no error and contact no
other host."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from forked_page import forked_page
from playwright.sync_api import Browser, BrowserContext, Page
from visitor import Visit, Visitor

from scripts.browsers import chromium

SERVE = Path(__file__).resolve().parent / "serve.py"


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A page over a small random pair."""
    with forked_page(SERVE) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium, in which the pages of one `Home` share a process."""
    with chromium("--process-per-site") as running:
        yield running


PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


class Home:
    """A browser context for one visitor after another. It keeps fetched and compiled files, which
    save half of the time to open the page, and the process that shows pages. It forgets everything
    that a visitor left."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._context: BrowserContext | None = None
        self._holder: Page | None = None
        """An empty page that keeps the process alive, which ends with the last of its pages."""

    def is_free(self) -> bool:
        return self._context is None or not self._visited(self._context)

    def page_for(self, address: str) -> Page:
        place = urlsplit(address)
        if self._context is None:
            self._context = self._browser.new_context()
            self._context.on("close", self._forget)
            self._holder = self._context.new_page()
            self._holder.goto(f"{place.scheme}://{place.netloc}/healthz")
        page = self._context.new_page()
        devtools = self._context.new_cdp_session(page)
        of = {"origin": f"{place.scheme}://{place.netloc}", "storageTypes": "all"}
        devtools.send("Storage.clearDataForOrigin", of)
        devtools.detach()
        return page

    def leave(self) -> None:
        if self._context is not None:
            self._context.clear_cookies()
            self._context.clear_permissions()
            for page in self._visited(self._context):
                page.close()

    def _visited(self, context: BrowserContext) -> list[Page]:
        return [page for page in context.pages if page is not self._holder]

    def _forget(self, *_: Any) -> None:
        self._context = self._holder = None


@pytest.fixture(scope="session")
def homes(browser: Browser) -> tuple[Home, Home]:
    """The home of visitors who are shared by a file, and the home of all others."""
    return Home(browser), Home(browser)


@pytest.fixture(scope="module")
def windows(homes: tuple[Home, Home]) -> Iterator[list[Visitor]]:
    """The window that the tests of a file share, if there is one yet."""
    shared: list[Visitor] = []
    yield shared
    homes[0].leave()


@pytest.fixture
def visitor(
    homes: tuple[Home, Home], url: str, windows: list[Visitor], request: pytest.FixtureRequest
) -> Iterator[Visitor]:
    """A visitor that the tests of a file share, because opening the page takes seconds of processor
    time. Each test sets what it needs and leaves nothing open. After a failure, the next test gets
    a new visitor."""
    if not windows:
        windows.append(opened(homes[0].page_for(url), url))
    visitor = windows[0]
    visitor.page.set_viewport_size({"width": 1440, "height": 900})
    visitor.page.mouse.move(0, 0)
    visitor.page.evaluate("document.activeElement?.blur()")
    yield visitor
    problems = list(visitor.problems)
    visitor.problems.clear()
    if problems or not request.node.stash.get(PASSED, False):
        windows.clear()
        visitor.page.context.close()
    assert problems == []


def opened(page: Page, url: str, query: str = "", **size: int) -> Visitor:
    """Open the page as a new visitor, and return it once it is ready."""
    page.set_viewport_size({"width": 1440, "height": 900, **size})  # type: ignore[typeddict-item]
    visitor = Visitor(page)
    visitor.page.goto(f"{url}/{query}")
    visitor.ready()
    return visitor


@pytest.fixture
def visit(
    homes: tuple[Home, Home], browser: Browser, request: pytest.FixtureRequest
) -> Iterator[Visit]:
    """A function that opens the page, or another address, as a new visitor. At the end no visitor
    may have seen a problem."""
    visitors: list[Visitor] = []
    home = homes[1]

    def open_page(*, query: str = "", address: str = "", **size: int) -> Visitor:
        # The page starts only if somebody visits it.
        place = address or request.getfixturevalue("url")
        # Two simultaneous visitors share nothing.
        page = home.page_for(place) if home.is_free() else browser.new_context().new_page()
        visitors.append(opened(page, place, query, **size))
        return visitors[-1]

    yield open_page
    if request.node.stash.get(PASSED, False):
        home.leave()
    for visitor in visitors:
        if not visitor.page.is_closed():
            visitor.page.context.close()
    assert [problem for visitor in visitors for problem in visitor.problems] == []

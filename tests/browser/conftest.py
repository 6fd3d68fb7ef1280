"""A running page and a real browser, whose visitors must see no error and ask no other host."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_page import forked_page
from playwright.sync_api import Browser
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
    """A real Chromium."""
    with chromium() as running:
        yield running


PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="module")
def windows() -> Iterator[list[Visitor]]:
    """None, or the one that the tests of a file share."""
    shared: list[Visitor] = []
    yield shared
    for visitor in shared:
        visitor.page.context.close()


@pytest.fixture
def visitor(
    browser: Browser, url: str, windows: list[Visitor], request: pytest.FixtureRequest
) -> Iterator[Visitor]:
    """A visitor whom the tests of a file share, as to open the page takes seconds of a processor:
    each test sets what it needs, and leaves nothing open. After a failure there is a new one."""
    if not windows:
        windows.append(opened(browser, url))
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


def opened(browser: Browser, url: str, query: str = "", **size: int) -> Visitor:
    """A new visitor on the page, once it can be used."""
    viewport = {"width": 1440, "height": 900, **size}
    visitor = Visitor(browser.new_context(viewport=viewport).new_page())  # type: ignore[arg-type]
    visitor.page.goto(f"{url}/{query}")
    visitor.ready()
    return visitor


@pytest.fixture
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Open the page, or that of an address, as a new visitor; at the end nobody may have seen a
    problem."""
    visitors: list[Visitor] = []

    def open_page(*, query: str = "", address: str = "", **size: int) -> Visitor:
        # A page that nobody visits is not started.
        place = address or request.getfixturevalue("url")
        visitors.append(opened(browser, place, query, **size))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.page.context.close()
    assert [problem for visitor in visitors for problem in visitor.problems] == []

"""The files that a browser fetches on its first visit."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Browser
from visitor import Visitor

MAX_RESPONSES = 50
MAX_BYTES = 450_000  # as sent: compressed, with headers

FETCHED = """() => ["navigation", "resource"].flatMap((type) =>
    performance.getEntriesByType(type).map((entry) => [entry.name, entry.transferSize]))"""


def test_a_first_visit_fetches_little_nothing_twice_and_leaves_the_address_plain(
    browser: Browser, url: str
) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    visitor = Visitor(context.new_page())
    visitor.page.goto(url)
    visitor.ready()
    fetched = visitor.page.evaluate(FETCHED)
    visitor.state("running")
    visitor.page.wait_for_timeout(800)  # ms; changed settings would be written by then
    assert urlsplit(visitor.page.url).query == ""
    context.close()
    addresses = [address for address, _ in fetched]
    assert len(addresses) == len(set(addresses)) <= MAX_RESPONSES
    assert 100_000 < sum(size for _, size in fetched) <= MAX_BYTES
    assert visitor.problems == []

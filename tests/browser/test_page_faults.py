"""Faults as a visitor sees them: a server that stops and returns, a run that takes too long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_page import ForkedPage
from playwright.sync_api import Browser, expect
from sentences import Sentences
from serve import UNHURRIED
from visitor import PATIENCE, Visitor, wait_for

SERVE = Path(__file__).resolve().parent / "serve.py"


@pytest.fixture
def server() -> Iterator[ForkedPage]:
    server = ForkedPage(SERVE)
    yield server
    server.kill()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield Visitor(context.new_page())
    context.close()


def test_a_server_that_is_started_anew_is_used_again(
    server: ForkedPage, visitor: Visitor, sentences: Sentences
) -> None:
    """Its operator then allows a run two seconds."""
    server.start()
    page = visitor.page
    notice = visitor.page.locator("[data-notice]")
    page.goto(server.url)
    visitor.ready()
    visitor.set("number input for Length", 400)
    visitor.prompt(UNHURRIED)
    visitor.button("Run").click()
    wait_for(page, "window.specviz.trace?.rounds.length > 20")
    server.kill()
    expect(notice).to_contain_text("was lost", timeout=PATIENCE)
    sentences(notice.inner_text())
    visitor.state("error")
    kept = len(visitor.trace()["rounds"])
    assert kept > 20

    server.start(SPECVIZ_MOST_SECONDS="2")
    expect(notice).to_contain_text("is back", timeout=PATIENCE)
    sentences(notice.inner_text())
    assert len(visitor.trace()["rounds"]) == kept
    page.reload()
    visitor.ready()
    expect(notice).to_contain_text("Reloading the page", timeout=PATIENCE)
    sentences(notice.inner_text())
    expect(page.locator("[data-lane=baseline] [data-index]").first).to_be_visible()
    assert len(visitor.trace()["rounds"]) == kept
    visitor.set("number input for Length", 8)
    trace = visitor.run()
    assert set(trace["end"]["reasons"].values()) == {"length"}
    expect(notice).to_be_hidden()
    page.reload()
    page.wait_for_selector("[data-player][data-ready]")
    assert page.evaluate("window.specviz.trace") is None  # a finished run is not restored

    visitor.ready()
    visitor.problems.clear()  # of the server that was gone
    visitor.set("number input for Length", 512)
    visitor.prompt(UNHURRIED)
    visitor.button("Run").click()
    # On a busy machine the limit may come before the first round.
    expect(notice).to_contain_text("limited to 2 s", timeout=PATIENCE)
    sentences(notice.inner_text())
    expect(visitor.player).not_to_have_attribute("data-state", "error")
    assert visitor.problems == []

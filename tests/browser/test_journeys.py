"""Whole visits: in Firefox, and by keyboard alone."""

from __future__ import annotations

import json
import os

import pytest
from playwright.sync_api import expect
from visitor import PATIENCE, Visit, headline_of

from scripts.firefox import firefox, firefox_path
from specviz import Trace

MAX_STOPS = 16  # of the Tab key before the text of the lanes
PLAYER = "document.querySelector('[data-player]')"
FOCUSED = """() => {
  const at = document.activeElement;
  return [at.getAttribute("aria-label") || at.innerText.trim(), Boolean(at.closest(".sv-stream"))];
}"""


@pytest.mark.skipif(firefox_path() is None, reason="there is no Firefox on this machine")
def test_a_visit_in_firefox(url: str) -> None:
    with firefox() as window:
        window.goto(f"{url}/?length=16&gamma=2")
        window.wait_for(f"{PLAYER}?.dataset.ready === 'true'")
        window.wait_for("document.querySelector('.preset[aria-pressed]') !== null")
        window.evaluate("document.querySelector('#prompt textarea').focus()")
        window.press("Enter")
        window.wait_for(f"{PLAYER}.dataset.source === 'live' && {PLAYER}.dataset.state === 'ended'")
        shown = window.evaluate("document.querySelector('[data-headline]').textContent")
        trace = json.loads(window.evaluate("JSON.stringify(window.specviz.trace)"))
        assert shown == headline_of(Trace.from_dict(trace))
        assert window.evaluate("document.querySelectorAll('[data-line] svg path').length") >= 8

        window.evaluate("document.activeElement.blur()")
        window.press("x")
        for phase in ("guess", "check", "verdict"):
            window.wait_for(f"{PLAYER}.dataset.slowPhase === '{phase}'")
        window.wait_for(f"{PLAYER}.dataset.state === 'paused'")
        window.press("s")
        window.wait_for("document.body.classList.contains('sv-stage')")
        window.press("Escape")
        window.wait_for("!document.body.classList.contains('sv-stage')")
        window.evaluate("document.querySelector('[data-share] > summary').click()")
        window.wait_for("document.querySelector('[data-take=picture]')?.disabled === false")
        assert window.screenshot().startswith(b"\x89PNG")
        assert window.problems == []


def test_from_the_landing_to_a_saved_picture_by_keyboard(visit: Visit) -> None:
    visitor = visit(query="?length=12")
    page = visitor.page

    def tab_to(name: str) -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate(FOCUSED)[0].startswith(name):
                return
        raise AssertionError(f"{name} is not reached")

    prompt = page.locator("#prompt textarea")
    begins = "(field) => [field.scrollLeft, field.scrollTop]"
    prompt.fill("Once upon a time. " * 90)
    prompt.press("End")
    assert prompt.evaluate(begins)[1] > 0
    page.keyboard.press("Tab")
    assert prompt.evaluate(begins) == [0, 0]

    page.locator(".sv-brand").focus()
    tab_to("Run")
    page.keyboard.press("Enter")
    expect(visitor.player).to_have_attribute("data-source", "live", timeout=PATIENCE)
    visitor.state("ended")
    page.locator(".sv-brand").focus()
    stops = 1
    while not page.evaluate(FOCUSED)[1]:
        page.keyboard.press("Tab")
        stops += 1
    assert stops - 1 <= MAX_STOPS
    tab_to("Share")
    page.keyboard.press("Enter")
    expect(page.locator("[data-take=picture]")).to_be_enabled()
    tab_to("Picture to share")
    with page.expect_download(timeout=PATIENCE) as download:
        page.keyboard.press("Enter")
    assert os.path.getsize(download.value.path()) > 10_000

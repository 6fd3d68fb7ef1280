"""A page with its own pair: the sentences while it loads, and the names of its models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_page import forked_page
from playwright.sync_api import expect
from sentences import Sentences
from visitor import Visit, Visitor, wait_for

from specviz.core.lanes import LANES

SERVE = Path(__file__).resolve().parent / "serve_loading.py"
PROMPT = "take your time: a function that checks for palindromes, with assertions."
TITLE = "Large-1.5B + Small-0.5B"
STATE_IS_WHOLE = """() => [...document.querySelectorAll(".sv-pending")].every(
  ({ parentElement: stream }) => stream.scrollHeight <= stream.clientHeight)"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file at whose creation the pair is loaded."""
    return tmp_path / "open"


@pytest.fixture
def own(shelf: Path, gate: Path, tmp_path: Path) -> Iterator[str]:
    """A page that loads its own pair, with recordings of another one."""
    with forked_page(SERVE, str(shelf), str(gate), SPECVIZ_CACHE=str(tmp_path)) as address:
        yield address


def check_pending(visitor: Visitor, prompt: str) -> None:
    """Check that the page shows a run that has not begun, and nothing of another run."""
    page = visitor.page
    for name in LANES:
        lane = visitor.lane(name)
        expect(lane.locator("[data-index]")).to_have_count(0)
        expect(lane.locator(".sv-given")).to_have_text(prompt)
        expect(lane.locator(".sv-waiting-time")).to_have_text(
            re.compile(r"^\d+ s elapsed · (about \d+ s|time) left|longer than usual$")
        )
    expect(page.locator("[data-headline]")).to_have_text("?")
    for count in page.locator("[data-count]").all():
        expect(count).to_have_text("0")
    for figure in page.locator("figure > div, .sv-asked, .sv-strip, .sv-timeline").all():
        expect(figure).to_be_hidden()
    before = page.evaluate("window.specviz.position")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("window.specviz.position") == before


def test_the_page_says_what_it_loads_and_whose_recording_plays(
    visit: Visit, own: str, gate: Path, sentences: Sentences
) -> None:
    visitor = visit(address=own)
    page = visitor.page
    notice = page.locator("[data-notice]")
    expect(notice).to_contain_text("(1.1 GB): 40%.")
    expect(notice).to_contain_text("Meanwhile a recording")
    sentences(notice.inner_text(), measured=True)
    visitor.playing()
    expect(page.locator("[data-differs]")).to_contain_text(f"pair {TITLE}")
    expect(page.locator("[data-stale]")).to_contain_text("Recording")

    # A run that is requested meanwhile starts once the pair is loaded.
    visitor.prompt(PROMPT)
    visitor.set("number input for Length", 48)
    visitor.button("Run").click()
    phase = visitor.lane("speculative").locator("[data-phase]")
    expect(phase).to_contain_text("Your run starts")
    sentences(phase.inner_text(), measured=True)
    check_pending(visitor, PROMPT)
    page.set_viewport_size({"width": 390, "height": 844})
    wait_for(page, STATE_IS_WHOLE)
    page.set_viewport_size({"width": 1440, "height": 900})

    # If it is stopped before its first event, the old run stays, which is of another prompt.
    visitor.button("Stop").click()
    expect(visitor.lane("baseline").locator("[data-index]")).not_to_have_count(0)
    expect(visitor.player).to_have_attribute("data-faded", "")
    stale = page.locator("[data-stale]")
    expect(stale).to_contain_text("another prompt")
    sentences(stale.inner_text())
    expect(page.locator("[data-item=target]")).to_be_visible()

    visitor.button("Run").click()
    expect(phase).to_contain_text("Your run starts")
    page.reload()
    visitor.ready()
    visitor.problems.clear()  # from Gradio: the run's stream was interrupted
    expect(notice).to_contain_text("ended your run")
    sentences(notice.inner_text(), measured=True)
    expect(visitor.player).to_have_attribute("data-faded", "")

    visitor.button("Run").click()
    expect(phase).to_contain_text("Your run starts")
    gate.touch()
    expect(visitor.player).to_have_attribute("data-source", "live")
    expect(page.locator("[data-item=target]")).to_contain_text("Large-1.5B")
    expect(page.locator("[data-differs]")).to_be_hidden()
    expect(visitor.player).not_to_have_attribute("data-faded", "")
    expect(page.locator(".sv-pending")).to_have_count(0)

    # A reload ends the run; the received part is of the same pair.
    visitor.playing()
    page.reload()
    visitor.ready()
    visitor.problems.clear()  # from Gradio: the run's stream was interrupted
    expect(page.locator("[data-badge]")).to_contain_text("interrupted")
    said = page.locator(".sv-verdict").inner_text()
    assert "nterrupted" in said and not re.search("writing|left|so far", said), said
    expect(page.locator("[data-differs]")).to_be_hidden()

    page.locator("#presets .preset").nth(1).click()
    expect(notice).to_contain_text("of another pair:")
    sentences(notice.inner_text())
    page.close()  # before its server, which it polls

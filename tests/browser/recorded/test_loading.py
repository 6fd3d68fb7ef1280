"""A page with a pair of its own: what is said while it loads, and what its models are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_page import forked_page
from playwright.sync_api import expect
from visitor import Visit

SERVE = Path(__file__).resolve().parent / "serve_loading.py"
TITLE = "Large-1.5B + Small-0.5B"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file: the pair is loaded once it is there."""
    return tmp_path / "open"


@pytest.fixture
def own(shelf: Path, gate: Path, tmp_path: Path) -> Iterator[str]:
    """A page that loads a pair of its own, with recordings of another one."""
    with forked_page(SERVE, str(shelf), str(gate), SPECVIZ_CACHE=str(tmp_path)) as address:
        yield address


def test_the_page_says_what_it_loads_and_whose_recording_plays(
    visit: Visit, own: str, gate: Path
) -> None:
    visitor = visit(address=own)
    page = visitor.page
    notice = page.locator("[data-notice]")
    expect(notice).to_contain_text("Loading Large-1.5B and its draft")
    expect(notice).to_contain_text("Reading Large-1.5B (1.1 GB): 40%.")
    expect(notice).to_contain_text("Meanwhile a recording of another pair:")
    visitor.state("running")
    expect(page.locator("[data-differs]")).to_contain_text(f"pair {TITLE}")

    # A run that is asked for meanwhile starts when the pair is there.
    visitor.prompt("take your time")
    visitor.set("number input for Length", 48)
    visitor.button("Run").click()
    expect(notice).to_contain_text("Your run starts when they are ready.")
    expect(visitor.player).to_have_attribute("data-source", "recording")
    gate.touch()
    expect(visitor.player).to_have_attribute("data-source", "live")
    expect(page.locator("[data-item=target]")).to_contain_text("Large-1.5B")
    expect(page.locator("[data-differs]")).to_be_hidden()

    # A reload ends the run; what had arrived is of that very pair.
    visitor.playing()
    page.reload()
    visitor.ready()
    visitor.problems.clear()  # of Gradio's: the stream of the run was cut off
    expect(page.locator("[data-badge]")).to_contain_text("interrupted")
    expect(page.locator("[data-differs]")).to_be_hidden()

    page.locator("#presets .preset").nth(1).click()
    expect(notice).to_contain_text("This recording is of another pair:")
    page.close()  # before its server, which it asks now and then

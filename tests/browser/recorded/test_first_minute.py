"""The first minute on a machine without the published pair: its recording plays, the page says so,
and one press fetches the pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import awaited_row
import pytest
from forked_page import forked_page
from playwright.sync_api import expect
from sentences import Sentences
from visitor import PATIENCE, Visit, Visitor

from specviz import Trace

SERVE = Path(__file__).resolve().parent / "serve_awaited.py"


@pytest.fixture
def fresh(shelf: Path, names: list[str], tmp_path: Path) -> Iterator[str]:
    """A page on a machine without the pair, with a recording of that pair."""
    run = Trace.load(shelf / f"{names[0]}.json.gz")
    draft = {"speculative": {**(run.header.drafts["speculative"] or {}), "name": "Small-0.5B"}}
    target = {**run.header.target, "name": "Large-1.5B"}
    header = replace(run.header, target=target, drafts=draft)
    folder = tmp_path / "recordings"
    folder.mkdir()
    replace(run, header=header).save(folder / f"{names[0]}.json.gz")
    environment = {
        "SPECVIZ_MODELS": str(tmp_path / "models"),
        "SPECVIZ_CACHE": str(tmp_path / "cache"),
    }
    with forked_page(SERVE, str(folder), str(tmp_path / "wheels"), **environment) as address:
        yield address


def check_that_a_stranger_gets_no_button(visitor: Visitor) -> str:
    """Check that a stranger gets no button; return the sentence that replaces it."""
    page = visitor.page
    bar = visitor.page.locator(".sv-get")
    page.set_extra_http_headers({"X-Forwarded-For": "192.168.1.7"})
    page.reload()
    visitor.ready()
    expect(bar).to_contain_text("not here yet")
    expect(bar.get_by_role("button")).to_have_count(0)
    told = bar.inner_text()
    page.set_extra_http_headers({})
    page.reload()
    visitor.ready()
    return told


def test_a_newcomer_sees_the_best_first_and_gets_it_with_one_press_and_a_stranger_is_told(
    visit: Visit, fresh: str, sentences: Sentences
) -> None:
    visitor = visit(address=fresh)
    sentences(check_that_a_stranger_gets_no_button(visitor))
    page = visitor.page
    visitor.playing()
    expect(page.locator("[data-badge]")).to_contain_text("NOT HERE")
    sentences(page.locator("[data-badge]").inner_text())
    bar = page.locator(".sv-get")
    expect(bar).to_contain_text("Large-1.5B + Small-0.5B")
    expect(bar).to_contain_text("This is a recording")
    sentences(bar.inner_text(), measured=True)

    # A run before the fetch uses the pair that is already here.
    visitor.set("number input for Length", 8)
    page.keyboard.press("Escape")
    trace = visitor.run()
    assert trace["header"]["target"]["name"] != "Large-1.5B"
    expect(page.locator("[data-badge]")).not_to_contain_text("NOT HERE")
    expect(bar).not_to_contain_text("This is a recording")
    sentences(bar.inner_text(), measured=True)

    size = 2 * len(awaited_row.CONTENT) / 1000
    button = page.locator("[data-get-pair]")
    expect(button).to_have_text(f"Get this pair: {size:.0f} kB, about 1 s")
    button.click()
    expect(bar).to_have_count(0, timeout=PATIENCE)
    expect(page.locator("[data-notice]")).to_contain_text("is ready: press Run.")
    expect(page.get_by_label("Pair", exact=True)).to_have_value(awaited_row.NAME)
    expect(page.locator("[data-stale]")).to_contain_text("another pair: press Run.")
    trace = visitor.run()
    assert trace["header"]["target"]["name"] == awaited_row.TARGET.name
    expect(visitor.player).not_to_have_attribute("data-faded", "")
    page.reload()
    visitor.ready()
    expect(page.locator("[data-badge]")).to_contain_text("RECORDED")
    expect(page.locator("[data-badge]")).not_to_contain_text("NOT HERE")
    expect(bar).to_have_count(0)

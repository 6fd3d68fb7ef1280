"""A drafter of another package has a lane, words, a card and recordings on the page, and its
recordings open where the package is not installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_page import forked_page
from playwright.sync_api import expect
from visitor import PATIENCE, Visit, wait_for

from specviz.runs.recording import read_recording

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parent.parent / "docs" / "extending.md"
(PLUGIN,) = re.findall(r"```python\n# lasttoken\.py\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def strange_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with the guide's example in SPECVIZ_PLUGINS."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "lasttoken.py").write_text(PLUGIN, "utf-8")
    # This process does not have the module.
    with forked_page(HERE / "serve.py", SPECVIZ_PLUGINS="lasttoken", PYTHONPATH=str(folder)) as url:
        yield url


def test_a_strangers_drafter_races_is_explained_and_its_recording_opens_anywhere(
    visit: Visit, strange_page: str, tmp_path: Path
) -> None:
    visitor = visit(address=strange_page)
    page = visitor.page
    visitor.set("number input for Length", 40)
    visitor.prompt("the cat sat on the mat, the cat sat on")
    page.get_by_role("radio", name="Last token", exact=True).click()
    header = visitor.run()["header"]
    assert header["lanes"]["speculative"]["drafter"] == "last-token"
    assert header["versions"]["lasttoken"] == "unknown"
    lane = visitor.lane("speculative")
    expect(lane).to_contain_text("last token")
    lane.locator("[data-outcome=rejected]").first.click()
    expect(page.locator(".sv-card")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("[data-toggle-panel]").click()  # the panel covers the menu
    page.locator("[data-share] > summary").click()
    with page.expect_download(timeout=PATIENCE) as coming:
        visitor.button("Save this run (.json.gz)").click()
    coming.value.save_as(tmp_path / "run.json.gz")
    raw = (tmp_path / "run.json.gz").read_bytes()
    assert read_recording(raw).header.settings.drafter == "last-token"

    page.close()
    other = visit()  # a page without this drafter
    expect(other.page.get_by_role("radio", name="Last token", exact=True)).to_have_count(0)
    other.page.locator("[data-open]").set_input_files(
        {"name": "run.json.gz", "mimeType": "application/octet-stream", "buffer": raw}
    )
    wait_for(other.page, "window.specviz.trace?.header.settings.drafter === 'last-token'")
    expect(other.lane("speculative")).to_contain_text("last-token")
    other.page.locator("[data-scrub]").fill("99999")
    drafted = other.lane("speculative").locator("[data-outcome=rejected]")
    drafted.first.click()
    expect(other.page.locator(".sv-card")).to_be_visible()

"""axe-core finds no accessibility violation in any view."""

from __future__ import annotations

import re
from collections.abc import Iterator

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from visitor import Visitor, wait_for

ALL = {"resultTypes": ["violations"]}
COLOURS = {**ALL, "runOnly": {"type": "rule", "values": ["color-contrast"]}}  # only this varies
FADES = "() => document.getAnimations().every((one) => one.playState !== 'running')"


def open_views(visitor: Visitor) -> Iterator[str]:
    """Open the main views one after the other, and yield the name of each."""
    page = visitor.page
    page.locator("[data-scrub]").evaluate(
        "(range) => { range.value = range.max; range.dispatchEvent(new Event('input')); }"
    )
    visitor.state("ended")
    yield "race"
    page.keyboard.press("m")
    expect(visitor.player).to_have_attribute("data-reading", "text")
    yield "text"
    page.keyboard.press("m")
    for key, view in (("e", ".sv-explain[open]"), ("d", "dialog.sv-choose")):
        page.keyboard.press(key)
        expect(page.locator(view)).to_be_visible()
        yield view
        page.keyboard.press("Escape")
        expect(page.locator(view)).to_be_hidden()
    page.keyboard.press("2")
    wait_for(page, "window.specviz.trace.header.settings.gamma === 3")
    page.keyboard.press("c")
    expect(page.get_by_role("dialog", name="Two runs")).to_be_visible()
    yield "compare"
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    expect(page.locator("#topbar")).to_be_hidden()
    yield "stage"
    page.keyboard.press("q")
    expect(page.locator("[data-ask]")).to_be_visible()
    yield "question"


def violations(page: Page, options: dict[str, object]) -> list[str]:
    """The violations with their elements, one per line."""
    wait_for(page, FADES)
    found = page.evaluate("(options) => axe.run(options)", options)["violations"]
    return [f"{one['id']}: {node['target']}" for one in found for node in one["nodes"]]


def turn_theme(page: Page) -> None:
    """Switch the theme, even if its button is hidden or covered by a dialog."""
    page.locator("[data-toggle-theme]").dispatch_event("click")


# The contrast of the notice's own colours by WCAG 2.2; both are opaque.
CONTRAST = """(node) => {
  const { color, backgroundColor } = getComputedStyle(node);
  const luminance = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map((part) => Number(part) / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dim, bright] = [luminance(color), luminance(backgroundColor)].sort((a, b) => a - b);
  return (bright + 0.05) / (dim + 0.05);
}"""
PHONE = (390, 844)
TABLET = (820, 1180)
SMALL = (1280, 720)
LARGE = (1920, 1080)
DAMAGED = {"name": "run.json", "mimeType": "application/json", "buffer": b"{"}


def check_notice(page: Page, notice: Locator, where: str) -> None:
    for _ in ("light", "dark"):
        turn_theme(page)
        wait_for(page, FADES)
        for width, height in (PHONE, TABLET, SMALL, LARGE):
            page.set_viewport_size({"width": width, "height": height})
            expect(notice).to_be_in_viewport(ratio=1)
            assert notice.evaluate(CONTRAST) >= 4.5, (where, width)


def test_a_notice_can_be_read_at_every_width_in_both_themes(visitor: Visitor) -> None:
    page = visitor.page
    notice = page.locator("[data-notice]")
    page.locator("#presets .preset").nth(1).click()
    expect(notice).to_contain_text("Press Run.")
    check_notice(page, notice, "what may be of interest")
    page.locator("[data-open]").set_input_files(DAMAGED)
    expect(notice).to_have_attribute("role", "alert")
    check_notice(page, notice, "what went wrong")


def test_no_view_has_a_violation(visitor: Visitor) -> None:
    page = visitor.page
    page.keyboard.press("1")
    wait_for(page, "window.specviz.trace?.header.settings.gamma === 4")
    page.evaluate(Axe().axe_script)
    found = {}
    for view in open_views(visitor):
        found[view, "light"] = violations(page, ALL)
        turn_theme(page)
        expect(page.locator("body")).to_have_class(re.compile("dark"))
        found[view, "dark"] = violations(page, COLOURS)
        turn_theme(page)
        expect(page.locator("body")).not_to_have_class(re.compile("dark"))
    assert len(found) == 14 and not any(found.values()), found

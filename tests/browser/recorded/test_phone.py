"""The page on screens of phones."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect
from visitor import Visitor, wait_for

LANES = """() => ["speculative", "baseline"].map((name) => {
  const { left, top, right, bottom } =
    document.querySelector(`[data-lane=${name}]`).getBoundingClientRect();
  return { left, top, right, bottom };
})"""


def lanes(visitor: Visitor, width: int, height: int) -> list[dict[str, float]]:
    """The positions of both lanes on a screen of this size."""
    visitor.page.set_viewport_size({"width": width, "height": height})
    visitor.page.evaluate("scrollTo(0, 0)")
    visitor.drawn()
    found: list[dict[str, float]] = visitor.page.evaluate(LANES)
    return found


@pytest.mark.parametrize(("width", "height"), [(390, 844), (412, 915), (430, 932)])
def test_both_lanes_are_on_the_first_screen_of_a_phone(
    visitor: Visitor, width: int, height: int
) -> None:
    ours, alone = lanes(visitor, width, height)
    bar = visitor.page.locator(".sv-transport").bounding_box()
    assert bar is not None
    assert ours["bottom"] <= alone["top"] and alone["bottom"] <= bar["y"]
    streams = visitor.page.locator(".sv-stream").all()
    assert all((one.bounding_box() or {"height": 0})["height"] > 50 for one in streams)


def test_a_thumb_takes_hold_of_the_scrubber(visitor: Visitor) -> None:
    lanes(visitor, 390, 844)
    page = visitor.page
    scrub = visitor.page.locator("[data-scrub]")
    box: Any = scrub.bounding_box()
    assert box["width"] >= 160 and box["height"] >= 44
    wait_for(visitor.page, "window.specviz.events > 0")
    for share in (0.25, 0.75):
        page.mouse.click(box["x"] + share * box["width"], box["y"] + 30)
        wait_for(
            page,
            "(share) => Math.abs(window.specviz.position / window.specviz.events - share) < 0.1",
            arg=share,
        )
    # The button's text is hidden now, but it is still the button's name.
    slow = page.get_by_role("button", name="Slow down", exact=True)
    assert (slow.bounding_box() or {"width": 0})["width"] >= 44


def test_lanes_stand_side_by_side_from_700_pixels_on(visitor: Visitor) -> None:
    for width, height in ((700, 1000), (768, 1024), (860, 1000), (861, 1000), (844, 390)):
        ours, alone = lanes(visitor, width, height)
        assert ours["top"] == alone["top"] and ours["right"] < alone["left"], width
    ours, alone = lanes(visitor, 699, 1000)
    assert ours["bottom"] < alone["top"]


# Elements that are hidden under the playback bar, or outside their card or the window.
FAULTS = """() => {
  const faults = [];
  const box = (node) => node.getBoundingClientRect();
  const isSeen = (node) => node.getClientRects().length > 0;
  const bar = document.querySelector(".sv-transport");
  const isFixed = getComputedStyle(bar).position === "fixed";
  if (!isFixed) {
    for (const button of document.querySelectorAll(".sv-next button, .sv-details summary")) {
      if (isSeen(button) && box(button).bottom > box(bar).top) faults.push(button.textContent);
    }
  }
  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) faults.push(`scrolls ${scrollWidth - innerWidth} px sideways`);
  for (const lane of document.querySelectorAll("[data-lane]")) {
    const name = lane.querySelector("h2");
    if (name.scrollWidth > name.clientWidth + 1) faults.push(`cut: ${name.textContent}`);
    for (const node of lane.querySelectorAll("header *, .sv-foot *")) {
      if (isSeen(node) && box(node).right > box(lane).right + 0.5) faults.push(node.textContent);
    }
  }
  const labels = ".sv-minis :is(figcaption, b, small)";
  for (const label of document.querySelectorAll(labels)) {
    if (isSeen(label) && box(label).right > innerWidth) faults.push(label.textContent);
  }
  scrollTo(0, document.documentElement.scrollHeight);
  const lowest = document.querySelector(".sv-next:has(button:not([hidden]))");
  if (isFixed && box(lowest).bottom > box(bar).top) faults.push("the end lies under the bar");
  scrollTo(0, 0);
  return faults;
}"""


def test_no_window_is_too_low_or_too_narrow(visitor: Visitor) -> None:
    """This includes a zoom of 150 %, with which a window of 1440 x 900 becomes one of 960 x 600."""
    page = visitor.page
    wait_for(page, "window.specviz.events > 0")
    page.keyboard.press("End")
    for width, height in (
        (900, 700),
        (960, 600),
        (1280, 600),
        (1366, 512),
        (1280, 640),
        (861, 639),
        (853, 480),
        (1024, 620),
        (390, 664),
    ):
        page.set_viewport_size({"width": width, "height": height})
        visitor.drawn()
        assert page.evaluate(FAULTS) == [], (width, height)
        scrolls = page.evaluate("document.documentElement.scrollHeight > innerHeight")
        assert scrolls == (height < 640 or width <= 860), (width, height)


def test_the_lane_of_the_target_has_four_lines_on_a_phone(visitor: Visitor) -> None:
    lanes(visitor, 390, 844)
    lines = visitor.page.evaluate(
        """() => {
          const stream = document.querySelector("[data-lane=baseline] .sv-stream");
          const { lineHeight } = getComputedStyle(stream.firstElementChild);
          return (stream.clientHeight - 2) / parseFloat(lineHeight);
        }"""
    )
    assert lines >= 4


def test_the_help_opens_at_its_beginning(visitor: Visitor) -> None:
    page = visitor.page
    for width, height in ((390, 844), (390, 600), (1280, 600)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator("[data-toggle-help]").click()
        heading = page.get_by_role("dialog").locator("h2")
        expect(heading).to_be_in_viewport(ratio=1)
        assert page.locator("[data-help]").evaluate("node => node.scrollTop") == 0
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()

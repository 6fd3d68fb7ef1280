"""The page on screens that are held in a hand."""

from __future__ import annotations

from typing import Any

import pytest
from visitor import Visitor, wait_for

LANES = """() => ["speculative", "baseline"].map((name) => {
  const { left, top, right, bottom } =
    document.querySelector(`[data-lane=${name}]`).getBoundingClientRect();
  return { left, top, right, bottom };
})"""


def lanes(visitor: Visitor, width: int, height: int) -> list[dict[str, float]]:
    """Where both lanes are on a screen of this size."""
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
    page, scrub = visitor.page, visitor.page.locator("[data-scrub]")
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
    # What the button says is not seen any more, but still its name.
    slow = page.get_by_role("button", name="Slow down", exact=True)
    assert (slow.bounding_box() or {"width": 0})["width"] >= 44


def test_lanes_stand_side_by_side_from_700_pixels_on(visitor: Visitor) -> None:
    for width, height in ((700, 1000), (768, 1024), (860, 1000), (861, 1000), (844, 390)):
        ours, alone = lanes(visitor, width, height)
        assert ours["top"] == alone["top"] and ours["right"] < alone["left"], width
    ours, alone = lanes(visitor, 699, 1000)
    assert ours["bottom"] < alone["top"]

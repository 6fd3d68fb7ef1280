"""Take the pictures of README and docs: a finished run in light and dark, a round, motion, a sweep,
lanes, and a lane with a card for each drafter and verdict.

python -m scripts.take_pictures [--out assets/pictures] [--recorded | --close-ups | --tree]
SPECVIZ_REMOTE=... python -m scripts.take_pictures --server NAME
"""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from scripts.browsers import chromium, served_page
from specviz.environment import ASSETS, BUILTIN, SERVED
from specviz.variables import PAIR

FINISHED = '[data-player][data-source="live"][data-state="ended"]'
RECORDED = '[data-player][data-source="recording"][data-state="ended"]'
FRAMES = 48
FRAME_MS = 140
LAST_FRAME_MS = 3000
MOVING_WIDTH = 960  # pixels; the size of the file grows with its square
SEEK = """([share]) => {
  const scrub = document.querySelector("[data-scrub]");
  scrub.value = Math.round(share * scrub.max);
  scrub.dispatchEvent(new Event("input", { bubbles: true }));
}"""

CLOSE_UPS = {
    "drafter-model": ("preset=easy", "accepted"),
    "drafter-ngram": ("preset=copies", "accepted"),
    "drafter-suffix": ("preset=copies&drafter=suffix", "accepted"),
    "drafter-early-exit": ("preset=loses", "rejected"),
    "drafter-head": ("preset=easy&drafter=head", "accepted"),
    "verdict-token": ("preset=hard&temperature=1", "rejected"),
    "verdict-block": ("preset=hard&temperature=1&verdict=block", "rejected"),
    "verdict-exact-match": ("preset=hard&temperature=1&verdict=exact-match", "rejected"),
    "verdict-typical": ("preset=hard&temperature=1&verdict=typical", "accepted"),
}
"""Close-ups: what the address asks for, and the outcome of the token whose card is open."""

COLOURS = 224  # of a close-up, which is mostly text
LANE_HEIGHT = 150  # pixels of the lane that it shows
ALONE = """body * { visibility: hidden; }
[data-lane=speculative], [data-lane=speculative] *, .sv-card, .sv-card * { visibility: visible; }"""
"""Only the lane and its card are in the picture."""


def print_tree(page: Any) -> None:
    """Print what a screen reader is told of the run: docs/accessibility.md has it."""
    print(page.locator("main").aria_snapshot())


def take_stills(page: Any, out: Path) -> None:
    """Take a picture of the same run in each theme."""
    for theme in ("light", "dark"):
        if theme == "dark":
            page.keyboard.press("t")
        page.wait_for_timeout(1500)  # milliseconds, until the charts are drawn
        page.screenshot(path=out / f"race-{theme}.png")
        print(out / f"race-{theme}.png")
    page.keyboard.press("t")


def take_round(page: Any, out: Path) -> None:
    """Take a picture of a round with a rejected token, slowly, where that token is judged."""
    page.locator("[data-lane=speculative] [data-outcome=rejected]").first.focus()
    page.keyboard.press("e")
    refused = page.locator("dialog [data-chapter=Correct]")
    while refused.get_attribute("aria-current") != "step":
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(500)  # milliseconds, for what moves
    page.screenshot(path=out / "round.png")
    print(out / "round.png")
    page.keyboard.press("Escape")


def take_lanes(page: Any, url: str, out: Path) -> None:
    """Take a picture of a race of three drafters and the target alone."""
    page.goto(f"{url}/?__theme=light&lanes=drafters&length=64&temperature=0")
    page.wait_for_selector("[data-player][data-ready]")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector(FINISHED, timeout=120_000)  # milliseconds
    page.keyboard.press("End")
    page.wait_for_timeout(1500)  # milliseconds, until the charts are drawn
    page.screenshot(path=out / "lanes.png")
    print(out / "lanes.png")


def take_close_ups(page: Any, url: str, out: Path) -> None:
    """Take a small picture of a lane with an open card for each drafter and verdict."""
    page.set_viewport_size({"width": 1280, "height": 1200})  # so that cards open below
    for name, (asked, outcome) in CLOSE_UPS.items():
        page.goto(f"{url}/?__theme=light&length=48&{asked}")
        page.wait_for_selector("[data-player][data-ready]")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_selector(FINISHED, timeout=180_000)  # milliseconds
        page.keyboard.press("End")
        page.add_style_tag(content=ALONE)
        page.locator(f"[data-lane=speculative] [data-outcome={outcome}]").first.focus()
        page.wait_for_timeout(700)  # milliseconds, for what moves
        boxes = [
            page.locator(one).bounding_box() for one in ("[data-lane=speculative]", ".sv-card")
        ]
        left, top = (min(box[side] for box in boxes) for side in ("x", "y"))
        right = max(box["x"] + box["width"] for box in boxes)
        bottom = max(boxes[0]["y"] + LANE_HEIGHT, boxes[1]["y"] + boxes[1]["height"])
        clip = {"x": left, "y": top, "width": right - left + 8, "height": bottom - top + 8}
        picture = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
        picture.quantize(COLOURS).save(out / f"{name}.png", optimize=True)
        print(out / f"{name}.png")


def take_server(page: Any, url: str, out: Path, name: str) -> None:
    """Take a picture of a race with the server that the operator has named."""
    page.goto(f"{url}/?__theme=light&pair={SERVED}&length=64&temperature=0")
    page.wait_for_selector("[data-player][data-ready]")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector(FINISHED, timeout=180_000)  # milliseconds
    page.keyboard.press("End")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)  # milliseconds, until the charts are drawn
    page.screenshot(path=out / f"{name}.png")
    print(out / f"{name}.png")


def take_choose(page: Any, out: Path) -> None:
    """Take a picture of the view Choose after a sweep of a minute."""
    page.keyboard.press("d")
    page.wait_for_selector("dialog.sv-choose[open]")
    page.get_by_label("Time to spend").select_option("60")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector("dialog.sv-choose[data-state=over]", timeout=300_000)  # milliseconds
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)  # milliseconds, until the charts are drawn
    page.screenshot(path=out / "choose.png")
    print(out / "choose.png")
    page.keyboard.press("Escape")


def take_motion(page: Any, out: Path) -> None:
    """Take an animated picture of the same run, from its first event to its last."""
    frames = []
    for number in range(FRAMES):
        page.evaluate(SEEK, [(number + 1) / FRAMES])
        page.wait_for_timeout(60)  # milliseconds, for a frame
        frame = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        height = round(frame.height * MOVING_WIDTH / frame.width)
        frames.append(frame.resize((MOVING_WIDTH, height), Image.Resampling.LANCZOS))
    durations = [FRAME_MS] * (FRAMES - 1) + [LAST_FRAME_MS]
    path = out / "race.webp"
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=60
    )
    print(path)


@contextmanager
def visited() -> Iterator[tuple[Any, str]]:
    """A window on a page that is served meanwhile, and its address."""
    with served_page() as url, chromium() as browser:
        yield (
            browser.new_page(
                viewport={"width": 1440, "height": 900},
                color_scheme="light",
                reduced_motion="reduce",
            ),
            url,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of a finished run.")
    parser.add_argument("--out", type=Path, default=ASSETS / "pictures")
    parser.add_argument("--recorded", action="store_true", help="only of the first recording")
    parser.add_argument("--tree", action="store_true", help="print what a screen reader is told")
    parser.add_argument("--close-ups", action="store_true", help="only drafters and verdicts")
    parser.add_argument("--server", metavar="NAME", help="only NAME.png, a race with a server")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.close_ups or options.server):
        with visited() as (page, url):
            page.goto(f"{url}/?__theme=light")
            page.wait_for_selector("[data-player][data-ready]")
            # The recording that a visit begins with: a picture of it depends on no machine's load.
            page.wait_for_selector(RECORDED)
            page.mouse.move(0, 0)
            if options.tree:
                print_tree(page)
                return
            take_stills(page, options.out)
            take_round(page, options.out)
            take_motion(page, options.out)
        if options.recorded:
            return
    if not options.server:
        os.environ[PAIR.name] = BUILTIN  # it has every drafter, and presets that show them
    with visited() as (page, url):
        if options.server:
            take_server(page, url, options.out, options.server)
            return
        if not options.close_ups:
            take_lanes(page, url, options.out)  # first: a font is waited for only once
            page.goto(f"{url}/?__theme=light")
            page.wait_for_selector("[data-player][data-ready]")
            take_choose(page, options.out)
        take_close_ups(page, url, options.out)


if __name__ == "__main__":
    main()

"""Take the pictures of README and docs: a finished run in light and dark, a round, motion, a sweep,
lanes, and a lane with a card for each drafter and verdict.

python -m scripts.take_pictures [--out assets/pictures] [--tree]
SPECVIZ_REMOTE=... python -m scripts.take_pictures --server NAME
"""

from __future__ import annotations

import argparse
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from scripts.browsers import chromium, served_page
from specviz.base.environment import ASSETS, BUILTIN, SERVED
from specviz.base.variables import PAIR

READY = "[data-player][data-ready]"
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

WORD = re.compile(r"[^\W\d_]{3}")
"""A rejected word is a better example than a rejected punctuation mark."""

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
"""Close-ups: the query of the address, and the outcome of the token whose card is open."""

COLOURS = 224  # of a close-up, which is mostly text
LANE_HEIGHT = 150  # pixels of the lane that it shows
ALONE = """body * { visibility: hidden; }
[data-lane=speculative], [data-lane=speculative] *, .sv-card, .sv-card * { visibility: visible; }"""
"""Only the lane and its card are in the picture."""


def open_page(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(READY)


def race(page: Any, url: str, query: str) -> None:
    """Open the page with these settings, and run to the end."""
    open_page(page, f"{url}/?__theme=light&{query}")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector(FINISHED, timeout=180_000)  # milliseconds
    page.keyboard.press("End")
    page.mouse.move(0, 0)


def take(page: Any, path: Path) -> None:
    """Take a picture of the window."""
    page.wait_for_timeout(1500)  # milliseconds, until the charts are drawn and nothing moves
    page.screenshot(path=path)
    print(path)


def take_stills(page: Any, out: Path) -> None:
    """Take a picture of the same run in each theme."""
    take(page, out / "race-light.png")
    page.keyboard.press("t")
    take(page, out / "race-dark.png")
    page.keyboard.press("t")


def take_round(page: Any, out: Path) -> None:
    """Take a picture of a round with a rejected token, slowly, where that token is judged."""
    rejected = page.locator("[data-lane=speculative] [data-outcome=rejected]")
    rejected.filter(has_text=WORD).first.focus()
    page.keyboard.press("e")
    refused = page.locator("dialog [data-chapter=Correct]")
    while refused.get_attribute("aria-current") != "step":
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    take(page, out / "round.png")
    page.keyboard.press("Escape")


def take_close_ups(page: Any, url: str, out: Path) -> None:
    """Take a small picture of a lane with an open card for each drafter and verdict."""
    page.set_viewport_size({"width": 1280, "height": 1200})  # so that cards open below
    for name, (query, outcome) in CLOSE_UPS.items():
        race(page, url, f"length=48&{query}")
        page.add_style_tag(content=ALONE)
        page.locator(f"[data-lane=speculative] [data-outcome={outcome}]").first.focus()
        page.wait_for_timeout(700)  # milliseconds, for what moves
        lane = page.locator("[data-lane=speculative]").bounding_box()
        card = page.locator(".sv-card").bounding_box()
        left = min(lane["x"], card["x"])
        top = min(lane["y"], card["y"])
        right = max(lane["x"] + lane["width"], card["x"] + card["width"])
        bottom = max(lane["y"] + LANE_HEIGHT, card["y"] + card["height"])
        clip = {"x": left, "y": top, "width": right - left + 8, "height": bottom - top + 8}
        picture = _picture(page.screenshot(clip=clip))
        picture.quantize(COLOURS).save(out / f"{name}.png", optimize=True)
        print(out / f"{name}.png")


def _picture(png: bytes) -> Image.Image:
    """A screenshot as a picture without transparency."""
    return Image.open(io.BytesIO(png)).convert("RGB")


def take_choose(page: Any, url: str, out: Path) -> None:
    """Take a picture of the view Choose after a sweep of a minute."""
    open_page(page, f"{url}/?__theme=light")
    page.keyboard.press("d")
    page.wait_for_selector("dialog.sv-choose[open]")
    page.get_by_label("Time budget").select_option("60")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector("dialog.sv-choose[data-state=over]", timeout=300_000)  # milliseconds
    page.mouse.move(0, 0)
    take(page, out / "choose.png")


def take_motion(page: Any, out: Path) -> None:
    """Take an animated picture of the same run, from its first event to its last."""
    frames = []
    for number in range(FRAMES):
        page.evaluate(SEEK, [(number + 1) / FRAMES])
        page.wait_for_timeout(60)  # milliseconds, for a frame
        frame = _picture(page.screenshot())
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
    """A window on a page that is served during the block, and its address."""
    size = {"width": 1440, "height": 900}
    with served_page() as url, chromium() as browser:
        page = browser.new_page(
            viewport=size,
            color_scheme="light",
            reduced_motion="reduce",
            bypass_csp=True,  # a style of ours leaves only a lane and its card
        )
        yield page, url


def _wait_until_loaded(page: Any, url: str) -> None:
    """Wait for the page's own pair: until then the page shows the progress."""
    while not page.request.get(f"{url}/readyz").ok:
        page.wait_for_timeout(500)  # milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of a finished run.")
    parser.add_argument("--out", type=Path, default=ASSETS / "pictures")
    parser.add_argument(
        "--tree", action="store_true", help="print the accessibility tree of the page"
    )
    parser.add_argument("--server", metavar="NAME", help="only NAME.png, a race with a server")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.server:  # the one that the operator has named
        with visited() as (page, url):
            race(page, url, f"pair={SERVED}&length=64&temperature=0")
            take(page, options.out / f"{options.server}.png")
        return
    with visited() as (page, url):
        _wait_until_loaded(page, url)
        open_page(page, f"{url}/?__theme=light")
        # The recording that a visit begins with: a picture of it depends on no machine's load.
        page.wait_for_selector(RECORDED)
        page.mouse.move(0, 0)
        if options.tree:  # docs/accessibility.md has it
            print(page.locator("body").aria_snapshot())
            return
        take_stills(page, options.out)
        take_round(page, options.out)
        take_motion(page, options.out)
    os.environ[PAIR.name] = BUILTIN  # it has every drafter, and presets that show them
    with visited() as (page, url):
        # First: a font is waited for only once.
        race(page, url, "lanes=drafters&length=64&temperature=0")
        take(page, options.out / "lanes.png")
        take_choose(page, url, options.out)
        take_close_ups(page, url, options.out)


if __name__ == "__main__":
    main()

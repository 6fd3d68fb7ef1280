"""Take the README's pictures: a finished run of the page, light and dark.

python -m scripts.take_pictures [--out assets/pictures]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from specviz.browser import ROOT, chromium, served_page

FINISHED = '[data-player][data-source="live"][data-state="ended"]'


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of a finished run.")
    parser.add_argument("--out", type=Path, default=ROOT / "assets" / "pictures")
    parser.add_argument("--preset", help="the button of a prompt to race on, such as easy")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with served_page() as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        page.goto(f"{url}/?__theme=light")
        if options.preset:
            page.get_by_role("button", name=options.preset, exact=True).click()
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_selector(FINISHED, timeout=180_000)  # milliseconds
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        for theme in ("light", "dark"):  # one and the same run, so that the figures agree
            if theme == "dark":
                page.keyboard.press("t")
            page.wait_for_timeout(1500)  # milliseconds, for the charts' last drawing
            page.screenshot(path=options.out / f"race-{theme}.png")
            print(options.out / f"race-{theme}.png")


if __name__ == "__main__":
    main()

"""Take the README's pictures: a finished run of the page, light and dark.

python scripts/take_pictures.py [--out assets/pictures]
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chromium import chromium_path
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FINISHED = '[data-player][data-source="live"][data-state="ended"]'


@contextmanager
def running_page() -> Iterator[str]:
    """The URL of the page, started for as long as the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    names = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port)}
    server = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=os.environ | names)
    try:
        for _ in range(240):
            if server.poll() is not None:
                raise SystemExit("the page stopped before it was ready")
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except OSError:
                time.sleep(0.25)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=20)


def take_pictures(browser: Browser, url: str, out: Path) -> None:
    """Both pictures show one and the same run, so their figures agree."""
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page.goto(f"{url}/?__theme=light")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector(FINISHED, timeout=180_000)
    page.mouse.move(0, 0)
    for theme in ("light", "dark"):
        if theme == "dark":
            page.evaluate("document.activeElement.blur()")
            page.keyboard.press("t")
        page.wait_for_timeout(1500)  # milliseconds, for the charts' last drawing
        page.screenshot(path=out / f"race-{theme}.png")
        print(out / f"race-{theme}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of a finished run.")
    parser.add_argument("--out", type=Path, default=ROOT / "assets" / "pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    executable = chromium_path()
    with running_page() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        take_pictures(browser, url, out)
        browser.close()


if __name__ == "__main__":
    main()

"""Find a Chromium for the page's tests and pictures, or install one.

python scripts/chromium.py             prints its path
python scripts/chromium.py --install   installs one if there is none
"""

from __future__ import annotations

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_path() -> str | None:
    """The browser that $CHROMIUM names, one on the path, or the one Playwright downloaded."""
    for name in (os.environ.get("CHROMIUM", ""), *NAMES):
        if name and (found := shutil.which(name)):
            return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def main() -> None:
    path = chromium_path()
    if path is None and "--install" in sys.argv:
        from install import apt_install, run

        if not apt_install("chromium"):
            run(sys.executable, "-m", "playwright", "install", "chromium")
        path = chromium_path()
    if path is None:
        raise SystemExit("No Chromium found: install one, or set CHROMIUM to its path.")
    print(f"Chromium: {path}")


if __name__ == "__main__":
    main()

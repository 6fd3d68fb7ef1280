"""Serve the page of the browser tests with the recordings of a folder: serve_recorded.py FOLDER."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from serve import fork_the_doctor, small_pair, unhurried

from specviz import Settings
from specviz.core.events import Event
from specviz.page.server import build_page
from specviz.worker.local import LocalWorker

UNLUCKY = 13  # the seed of a run that fails in the middle


def unlucky(pair: Any, prompt: str, settings: Settings) -> Iterator[Event]:
    """A race that fails after some rounds if its seed is `UNLUCKY`."""
    for place, event in enumerate(unhurried(pair, prompt, settings)):
        if settings.seed == UNLUCKY and place == 8:
            raise RuntimeError("this run was meant to fail")
        yield event


if __name__ == "__main__":
    fork_the_doctor()
    page = build_page(LocalWorker(small_pair, unlucky), recordings=Path(sys.argv[1]))
    page.serve(quiet=True)
    signal.pause()

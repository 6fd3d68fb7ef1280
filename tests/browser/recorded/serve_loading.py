"""Serve a page whose pair is loaded once a file exists: serve_loading.py RECORDINGS GATE."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from serve import fork_the_doctor, small_pair, unhurried

from specviz import Pair
from specviz.files.progress import Progress
from specviz.page.server import build_page
from specviz.worker.local import LocalWorker

OWN = "owner/Large-1.5B+owner/Small-0.5B"
PATIENCE = 120  # seconds
recordings, gate = map(Path, sys.argv[1:3])


def load(name: str, watcher: Any) -> Pair:
    watcher(Progress("reading Large-1.5B (1.1 GB)", 0.4))
    deadline = time.monotonic() + PATIENCE
    while not gate.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    pair = small_pair(name)
    pair.target.name_or_path, pair.draft.name_or_path = OWN.split("+")  # type: ignore[union-attr]
    return pair


if __name__ == "__main__":
    fork_the_doctor()
    page = build_page(LocalWorker(load, unhurried), pair=OWN, recordings=recordings)
    page.serve(quiet=True)
    signal.pause()

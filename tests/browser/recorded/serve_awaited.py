"""Serve a page whose usual pair is not on this machine yet: serve_awaited.py RECORDINGS WHEELS."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import awaited_row  # in tests/helpers, which `serve` adds to the path
from serve import fork_the_doctor, small_pair, unhurried

from specviz import Pair
from specviz.page.server import build_page
from specviz.pairs.opening import awaited_pair
from specviz.worker.local import LocalWorker

recordings, wheels = map(Path, sys.argv[1:3])


def load(name: str, _: Any = None) -> Pair:
    pair = small_pair(name)
    if name == awaited_row.NAME:
        pair.target.name_or_path = awaited_row.TARGET.name
        pair.draft.name_or_path = awaited_row.DRAFT.name  # type: ignore[union-attr]
    return pair


if __name__ == "__main__":
    fork_the_doctor()
    os.environ.pop("SPECVIZ_PAIR", None)
    patch = SimpleNamespace(setattr=setattr, setenv=os.environ.__setitem__)
    awaited_row.list_row(patch)
    awaited_row.offer_wheels(patch, wheels)
    page = build_page(LocalWorker(load, unhurried), recordings=recordings, awaited=awaited_pair())
    page.serve(quiet=True)
    signal.pause()

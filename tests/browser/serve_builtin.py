"""Serve the page as `python -m specviz page` does, with models' processes forked from one that has
imported the libraries."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS.parent)]

from forked_process import ForkedProcess  # noqa: E402

from specviz.__main__ import main  # noqa: E402
from specviz.worker import client  # noqa: E402

if __name__ == "__main__":
    client.subprocess = SimpleNamespace(Popen=ForkedProcess, PIPE=None)  # type: ignore[assignment]
    sys.exit(main(["page"]))

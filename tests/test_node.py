"""Run the page's pure JavaScript in node: figures, words, steps. Tests that need a page are in
`browser/`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import orjson
import pytest
from node import MISSING

NODE = Path(__file__).resolve().parent / "node"


def test_pure_modules_pass_their_own_tests() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip(MISSING)
    files = sorted(NODE.glob("*.test.js"))
    assert files
    # One process runs all files; `node --test` would start one for each.
    script = "".join(f"import {orjson.dumps(file.as_uri()).decode()};" for file in files)
    done = subprocess.run(
        [node, "--input-type=module", "-e", script],
        capture_output=True,
        text=True,
        cwd=NODE,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]

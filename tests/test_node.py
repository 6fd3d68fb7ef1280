"""The page's pure JavaScript in node: figures, words, steps. What needs a page is in `browser/`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import golden
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
    done = subprocess.run(
        [node, "--test", *map(str, files)], capture_output=True, text=True, cwd=NODE, timeout=120
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_numbers_that_they_are_held_to_are_those_of_python() -> None:
    """After a change of what is computed: `python tests/helpers/golden.py` writes them again."""
    kept = orjson.loads(golden.GOLDEN.read_bytes())
    now = orjson.loads(golden.written(golden.numbers()))
    assert same(now, kept)


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal but for the last bits of their numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9)
    return one == other

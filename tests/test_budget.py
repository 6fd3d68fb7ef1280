"""What a run of the built-in pair costs to import: a reader of the core meets nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.environment import has_numba

ROOT = Path(__file__).resolve().parent.parent
MODULES, LINES = 49, 7_100
RUN = """
import json, sys
from specviz import load_pair, race

for event in race(load_pair("builtin"), "Once upon a time", max_new_tokens=8):
    pass
print(json.dumps(sorted(m for m in sys.modules if m.split(".")[0] == "specviz")))
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def lines_of(module: str) -> int:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text("utf-8").splitlines())


def test_a_run_of_the_built_in_pair_loads_few_modules(loaded: list[str]):
    assert len(loaded) <= MODULES, loaded
    assert sum(map(lines_of, loaded)) <= LINES


def test_it_loads_no_side_that_it_does_not_use(loaded: list[str]):
    sides = {name.split(".")[2] for name in loaded if name.startswith("specviz.sides.")}
    assert sides == ({"model", "fast_cpu"} if has_numba() else {"model"})
    for room in ("remote", "runs", "page", "worker", "train", "pairs.heads", "pairs.hub"):
        assert not [name for name in loaded if name.startswith(f"specviz.{room}")], room

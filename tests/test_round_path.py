"""A run of the built-in pair goes through the files that CONTRIBUTING explains, and loads no unused
side."""

from __future__ import annotations

import json
import re
import sys

import pytest
from forked_process import run_forked
from places import ROOT

from specviz.base.environment import has_numba

RUN = """
import json, sys
import specviz

records = set(sys.modules)

from specviz import load_pair, race
# Libraries are imported first: to look at all their calls takes seconds.
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.generation import GenerationMixin

ran = set()

def called(frame, event, argument):
    ran.add(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

sys.setprofile(called)
for event in race(load_pair("builtin"), "Once upon a time", temperature=0.7, max_new_tokens=8):
    pass
modules = sorted(m for m in set(sys.modules) - records if m.split(".")[0] == "specviz")
print(json.dumps([modules, sorted(ran)]))
"""


@pytest.fixture(scope="module")
def run() -> tuple[list[str], list[str]]:
    """The modules that a run loads in addition to those of records, which every process has; and
    the functions that it calls, each with its file."""
    done = run_forked([sys.executable, "-c", RUN])
    assert done.returncode == 0, done.stderr
    modules, files = json.loads(done.stdout.splitlines()[-1])
    return modules, files


@pytest.fixture(scope="module")
def loaded(run: tuple[list[str], list[str]]) -> list[str]:
    return run[0]


def test_it_loads_no_side_that_it_does_not_use(loaded: list[str]):
    sides = {name.split(".")[2] for name in loaded if name.startswith("specviz.sides.")}
    assert sides == ({"model", "fast_cpu"} if has_numba() else {"model"})
    rooms = ("remote", "runs", "page", "worker", "train", "files.hub")
    parts = ("base.variables", "core.several", "core.plugins", "core.tensor_verdict", "core.policy")
    for room in (*rooms, *parts):
        assert not [name for name in loaded if name.startswith(f"specviz.{room}")], room


@pytest.mark.skipif(not has_numba(), reason="passes are not compiled here")
def test_the_files_that_explain_a_round_are_those_that_run(run: tuple[list[str], list[str]]):
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    part = text.partition("## How a round flows")[2].partition("\n\nAround them")[0]
    named = re.findall(r"^\d\. `((?:core|sides)/[\w/]+\.py)`", part, re.MULTILINE)
    assert named
    called = {tuple(place.rsplit(":", 1)) for place in run[1]}
    files = {file for file, _ in called}
    assert all(str(ROOT / "specviz" / path) in files for path in named)
    assert (str(ROOT / "specviz/core/verdict.py"), "decide_in_numpy") in called

"""Models of the hub: what is asked of it, and what happens if it does not answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from doctor_reports import sentence_about
from fake_hub import fake_hub
from model_families import pickle_weights

from specviz.environment import ASSETS
from specviz.models.doctor import examine

ROOT = ASSETS.parent

SEVERAL = """
import json, sys
from specviz.__main__ import main
for arguments in json.loads(sys.argv[1]):
    print("status", main(arguments), flush=True)
"""


def hub_runs(url: str, home: Path, *commands: list[str]) -> tuple[list[str], str]:
    """What commands print, one by one, and their stderr, in a process whose hub is at `url`."""
    env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    env |= {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    program = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    ran = subprocess.run(program, env=env, cwd=ROOT, capture_output=True, text=True)
    *printed, rest = re.split(r"(?<=status \d)\n", ran.stdout)
    assert len(printed) == len(commands) and not rest, ran.stderr
    return printed, ran.stderr


def test_only_the_loader_downloads_weights(good_pair: tuple[Path, Path], tmp_path: Path):
    pickles = shutil.copytree(good_pair[1], tmp_path / "pickles")
    pickle_weights(pickles)
    models = {"org/target": good_pair[0], "org/draft": good_pair[1], "org/gated": good_pair[1]}
    pair = ["run", "w1", "--pair", "org/target+org/draft", "--max-new-tokens", "4"]
    with fake_hub({**models, "org/pickles": pickles}, frozenset({"org/gated"})) as (url, given):
        drafts = ("org/draft", "org/gated", "org/pickles", "org/nobody")
        asked = [["doctor", "org/target", draft] for draft in drafts]
        (fine, gated, bad, nobody), _ = hub_runs(url, tmp_path / "home", *asked)
        assert given and not any("safetensors" in name for name in given)
        (_, refused), told = hub_runs(url, tmp_path / "home", pair, [*pair[:3], "org/gated+none"])
        assert "org/draft/model.safetensors" in given
    assert "org/target with org/draft ready to race." in fine and fine.endswith("status 0")
    for sentence in (gated, told):
        assert f"org/gated is gated: accept its licence on {url}/org/gated" in sentence
        assert "HF_TOKEN" in sentence
    assert gated.endswith("status 1") and refused.endswith("status 2")
    assert "org/pickles has no safetensors on its page, and pickles are never read" in bad
    assert "there is no model org/nobody on the hub that you may see" in nobody
    assert "downloading org/target" in told and "loading org/draft" in told
    # The hub is gone now; what was fetched is still there.
    (again,), told = hub_runs(url, tmp_path / "home", pair)
    assert again.endswith("status 0"), told


def test_a_hub_that_does_not_answer_costs_little_time(monkeypatch: Any):
    monkeypatch.setattr("specviz.models.hub.TIMEOUT", 0.2)
    monkeypatch.setattr("specviz.models.hub._last_answer", (-1e9, False))
    monkeypatch.setattr("specviz.models.hub._ask_hub", lambda: time.sleep(30))
    start = time.monotonic()
    report = examine("google/gemma-7b-it", "google/gemma-2b-it", device="cpu", free=10**11)
    assert time.monotonic() - start < 28  # it did not wait for the answer
    assert report.verdict == "stop"
    stops = [f.sentence for f in report.findings if f.level == "stop"]
    assert len(stops) == 2 and all("the hub does not answer" in sentence for sentence in stops)
    # What the table knows is sentence_about nevertheless.
    assert "48.0 GB as float32" in sentence_about(report, "memory", "good")
    assert "gated" in str(report.findings)
    names = ("google/gemma-7b-it", "google/gemma-2b-it")
    less = sentence_about(examine(*names, device="cpu", free=25 * 10**9), "memory", "stop")
    assert "25.0 GB are free: choose bfloat16, or a smaller pair." in less
    half = examine(*names, device="cpu", free=25 * 10**9, dtype="bfloat16")
    assert "24.0 GB as bfloat16" in sentence_about(half, "memory", "good")


def test_an_invalid_name_is_never_sent_to_the_hub(monkeypatch: Any):
    monkeypatch.setattr("specviz.models.hub._ask_hub", lambda: pytest.fail("asked"))
    for name in ("", "a/b/c", "../up", "/no/where", "a b", "-x"):
        assert examine(name or " ", "also/no/name").verdict == "stop"

"""Models of the hub: what is asked of it, and what happens if it does not answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_hub import fake_hub
from model_families import pickle_weights

from specviz.environment import ASSETS
from specviz.pairs import hub
from specviz.pairs.doctor import examine

ROOT = ASSETS.parent

COMMANDS = """
import json, sys
from specviz.__main__ import main
for line in sys.stdin:
    print("status", main(json.loads(line)), flush=True)
"""


@contextmanager
def hub_commands(url: str, home: Path) -> Iterator[Callable[..., str]]:
    """A process whose hub is at `url`: what is yielded does a command there and returns what that
    prints, its stderr too."""
    env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    env |= {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    program = [sys.executable, "-c", COMMANDS]
    with subprocess.Popen(program, env=env, cwd=ROOT, text=True, **pipes) as process:

        def done(*arguments: str) -> str:
            process.stdin.write(json.dumps(arguments) + "\n")
            process.stdin.flush()
            printed = [""]
            while not re.search(r"status \d$", printed[-1]):
                line = process.stdout.readline()
                assert line, printed
                printed.append(line.removesuffix("\n"))
            return "\n".join(printed)

        yield done
        process.stdin.close()


def test_only_the_loader_downloads_weights(good_pair: tuple[Path, Path], tmp_path: Path):
    pickles = shutil.copytree(good_pair[1], tmp_path / "pickles")
    pickle_weights(pickles)
    models = {"org/target": good_pair[0], "org/draft": good_pair[1], "org/gated": good_pair[1]}
    pair, home = ("run", "w1", "--pair", "org/target+org/draft", "--max-new-tokens", "4"), tmp_path
    hub = ExitStack()
    url, given = hub.enter_context(
        fake_hub({**models, "org/pickles": pickles}, frozenset({"org/gated"}))
    )
    with hub, hub_commands(url, home) as done:
        fine, gated, bad, nobody = (
            done("doctor", "org/target", draft)
            for draft in ("org/draft", "org/gated", "org/pickles", "org/nobody")
        )
        assert given and not any("safetensors" in name for name in given)
        loaded, refused = done(*pair), done(*pair[:3], "org/gated+none")
        assert "org/draft/model.safetensors" in given
        hub.close()  # what was fetched is still there
        again = done(*pair)
    assert "org/target with org/draft ready to race." in fine and fine.endswith("status 0")
    for sentence in (gated, refused):
        assert f"org/gated is gated: accept its licence on {url}/org/gated" in sentence
        assert "HF_TOKEN" in sentence
    assert gated.endswith("status 1") and refused.endswith("status 2")
    assert "org/pickles has no safetensors on its page, and pickles are never read" in bad
    assert "there is no model org/nobody on the hub that you may see" in nobody
    assert "downloading org/target" in loaded and "loading org/draft" in loaded
    assert again.endswith("status 0"), again


def test_a_hub_that_does_not_answer_costs_little_time(monkeypatch: Any):
    monkeypatch.setattr("specviz.pairs.hub.TIMEOUT", 0.2)
    hub._answers.cache_clear()
    monkeypatch.setattr("specviz.pairs.hub._ask_hub", lambda: time.sleep(30))
    start = time.monotonic()
    report = examine("google/gemma-7b-it", "google/gemma-2b-it", device="cpu", free=10**11)
    assert time.monotonic() - start < 28  # it did not wait for the answer
    assert report.verdict == "stop"
    stops = [f.sentence for f in report.findings if f.level == "stop"]
    assert len(stops) == 2 and all("the hub does not answer" in sentence for sentence in stops)


def test_an_invalid_name_is_never_sent_to_the_hub(monkeypatch: Any):
    monkeypatch.setattr("specviz.pairs.hub._ask_hub", lambda: pytest.fail("asked"))
    for name in ("", "a/b/c", "../up", "/no/where", "a b", "-x"):
        assert examine(name or " ", "also/no/name").verdict == "stop"

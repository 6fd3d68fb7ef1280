"""Models on the hub: the requests, and the behaviour if it does not answer."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fake_hub import COMMIT, fake_hub, use_hub, use_no_proxy
from huggingface_hub import constants
from model_families import pickle_weights
from sentences import Sentences
from transformers import AutoModelForCausalLM

from specviz import load_pair
from specviz.__main__ import main
from specviz.base.errors import PairError
from specviz.files import hub
from specviz.pairs.doctor import examine


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """Forget the hub's answers before and after each test."""
    hub._answers.cache_clear()
    yield
    hub._answers.cache_clear()


def test_only_the_loader_downloads_weights(
    good_pair: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sentences: Sentences,
):
    pickles = shutil.copytree(good_pair[1], tmp_path / "pickles")
    pickle_weights(pickles)
    models = {"org/target": good_pair[0], "org/draft": good_pair[1], "org/gated": good_pair[1]}
    pair = ("run", "w1", "--pair", "org/target+org/draft", "--max-new-tokens", "4")
    use_no_proxy(monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def done(*arguments: str) -> str:
        """Run a command; return its output and exit status."""
        status = main([*arguments])
        printed = capsys.readouterr()
        return f"{printed.out}{printed.err}status {status}"

    running = ExitStack()
    url, given = running.enter_context(
        fake_hub({**models, "org/pickles": pickles}, frozenset({"org/gated"}))
    )
    use_hub(url, monkeypatch)
    with running:
        fine, gated, bad, nobody = (
            done("doctor", "org/target", draft, "--device", "cpu")
            for draft in ("org/draft", "org/gated", "org/pickles", "org/nobody")
        )
        assert given and not any("safetensors" in name for name in given)
        loaded = done(*pair)
        refused = done(*pair[:3], "org/gated+none")
        assert "org/draft/model.safetensors" in given
    again = done(*pair)  # the fetched files are still there
    assert fine.endswith("status 0")
    assert gated.endswith("status 1") and refused.endswith("status 2")
    sentences(fine, measured=True)
    for printed in (gated, refused, bad, nobody):
        faults = [line for line in printed.splitlines() if line.startswith(("✗", "!", "specviz"))]
        sentences("\n".join(faults))
    assert "downloading org/target" in loaded and "loading org/draft" in loaded
    assert again.endswith("status 0"), again


def cached(name: str, folder: Path, cache: Path) -> Path:
    """Put a model's files into the hub's cache as its client does, as links to downloads. Returns
    the folder of the links."""
    place = cache / f"models--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / COMMIT
    (place / "blobs").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        shutil.copy(file, place / "blobs" / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    return snapshot


def sharded(folder: Path, to: Path) -> Path:
    """The same model with its weights in several files."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    shutil.copytree(folder, to)
    (to / "model.safetensors").unlink()
    model.save_pretrained(to, max_shard_size="2KB")
    assert len(list(to.glob("model-*.safetensors"))) > 2
    return to


def without(name: str) -> Callable[[Path], None]:
    """A function that removes a file and its link from the cache."""

    def remove(snapshot: Path) -> None:
        (snapshot / name).unlink()

    return remove


def broken_off(snapshot: Path) -> None:
    """Break a link: its file is still named "incomplete"."""
    for link in snapshot.glob("model-00002*.safetensors"):
        blob = link.resolve()
        blob.rename(blob.with_suffix(".incomplete"))


def cut_short(snapshot: Path) -> None:
    for link in snapshot.glob("model-00001*.safetensors"):
        link.resolve().write_bytes(link.read_bytes()[:-10])


def spoilt_index(snapshot: Path) -> None:
    (snapshot / "model.safetensors.index.json").resolve().write_text("[" * 3)


@pytest.mark.parametrize(
    ("several", "spoil"),
    [
        (False, without("model.safetensors")),
        (True, broken_off),
        (True, without("model.safetensors.index.json")),
        (True, spoilt_index),
        (True, cut_short),
    ],
)
@pytest.mark.parametrize("role", ["target", "draft"])
def test_the_doctor_looks_whether_the_cache_has_all_weights(
    several: bool,
    spoil: Callable[[Path], None],
    role: str,
    good_pair: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentences: Sentences,
):
    """Offline, the doctor must check the files in the cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshots = {}
    for name, folder in zip(("target", "draft"), good_pair, strict=True):
        if several and name == role:
            folder = sharded(folder, tmp_path / name)
        snapshots[name] = cached(f"org/{name}", folder, tmp_path / "hub")
    assert examine("org/target", "org/draft", device="cpu").verdict == "good"
    spoil(snapshots[role])
    report = examine("org/target", "org/draft", device="cpu")
    (sentence,) = [found.sentence for found in report.findings if found.level == "stop"]
    with sentences.raises(PairError) as caught:
        load_pair("org/target+org/draft", device="cpu")
    assert str(caught.value) == sentence


def test_a_hub_that_does_not_answer_costs_little_time(monkeypatch: Any, sentences: Sentences):
    monkeypatch.setattr("specviz.files.hub.TIMEOUT", 0.2)
    monkeypatch.setattr("specviz.files.hub._ask_hub", lambda: time.sleep(30))
    start = time.monotonic()
    report = examine("google/gemma-7b-it", "google/gemma-2b-it", device="cpu", free=10**11)
    assert time.monotonic() - start < 28  # it did not wait for the answer
    assert report.verdict == "stop"
    stops = [f.sentence for f in report.findings if f.level == "stop"]
    sentences("\n".join(stops))


def test_an_invalid_name_is_never_sent_to_the_hub(monkeypatch: Any):
    monkeypatch.setattr("specviz.files.hub._ask_hub", lambda: pytest.fail("asked"))
    for name in ("", "a/b/c", "../up", "/no/where", "a b", "-x"):
        assert examine(name or " ", "also/no/name").verdict == "stop"

"""The recordings of the page: which there are, and what a visitor's file becomes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from toy_recordings import SAMPLED, recorded, saved

from specviz import Trace
from specviz.page.look import RECORDINGS
from specviz.page.presets import PRESETS, load_presets
from specviz.page.recordings import find_recordings, opener
from specviz.trace.recording import MOST_PACKED, read_recording

PRESENT = sorted(RECORDINGS.glob("*.json.gz"))


def test_recordings_are_found_by_name_those_of_presets_first(tmp_path: Path) -> None:
    for name in ("zebra", "easy", "another"):
        (tmp_path / f"{name}.json.gz").touch()
    (tmp_path / "notes.txt").touch()
    found = find_recordings(tmp_path, ["zebra", "missing", "easy"])
    assert list(found) == ["zebra", "easy", "another"]
    assert all(url.endswith(f"/{name}.json.gz") for name, url in found.items())
    assert find_recordings(tmp_path / "nowhere") == {}


def packed(raw: bytes) -> dict[str, Any]:
    return {"packed": base64.b64encode(raw).decode()}


def test_a_file_that_is_a_recording_becomes_its_trace(tmp_path: Path) -> None:
    answer = opener()(packed(saved(recorded(SAMPLED), tmp_path)))
    assert Trace.from_dict(answer["trace"]) == recorded(SAMPLED)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (packed(b"junk"), "no valid JSON"),
        (packed(bytes(MOST_PACKED + 1)), "holds more than 4 MiB"),
        (packed(bytes(2 * MOST_PACKED)), "holds more than 4 MiB"),
        ({"packed": "%%%"}, "did not arrive whole"),
        ({"packed": 7}, "did not arrive whole"),
        ({}, "did not arrive whole"),
        ("text", "did not arrive whole"),
    ],
)
def test_any_other_file_becomes_a_sentence(asked: Any, sentence: str) -> None:
    answer = opener()(asked)
    assert answer.keys() == {"error"}
    assert sentence in answer["error"]


@pytest.mark.skipif(not PRESENT, reason="no recordings are here")
def test_the_recordings_that_ship_are_small_real_and_of_the_presets() -> None:
    assert sum(path.stat().st_size for path in PRESENT) <= 2**20
    presets = {preset.name: preset for preset in load_presets(PRESETS)}
    for path in PRESENT:
        run = read_recording(path.read_bytes())
        assert run.end is not None and "stopped" not in run.end.reasons.values()
        assert run.header.prompt == presets[path.name.removesuffix(".json.gz")].prompt

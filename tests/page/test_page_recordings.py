"""The recordings of the page, and visitors' files."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sentences import Sentences
from toy_recordings import SAMPLED, recorded, saved

from scripts.record_presets import MAX_BYTES, PAIRS, recorded_of
from specviz import Trace
from specviz.page import files as reading
from specviz.page.files import FileReader, find_recordings
from specviz.page.offer import QUESTIONS, folder_of, presets_of
from specviz.page.public import RECORDINGS
from specviz.runs.recording import MAX_PACKED, read_recording

PRESENT = sorted(RECORDINGS.glob("*.json.gz"))


def test_recordings_are_found_by_name_those_of_presets_first(tmp_path: Path) -> None:
    for name in ("zebra", "easy", "another"):
        (tmp_path / f"{name}.json.gz").touch()
    (tmp_path / "notes.txt").touch()
    found = find_recordings(tmp_path, ["zebra", "missing", "easy"])
    assert list(found) == ["zebra", "easy", "another"]
    assert all(url.endswith(f"/{name}.json.gz") for name, url in found.items())
    assert find_recordings(tmp_path / "nowhere") == {}


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    running = FileReader()
    yield running
    running.close()


def read(reader: FileReader, raw: bytes) -> dict[str, Any]:
    """The page's answer to a file, as the browser reads it."""
    found: dict[str, Any] = json.loads(reader.answer("trace", raw))
    return found


def test_a_file_that_is_a_recording_becomes_its_trace(reader: FileReader, tmp_path: Path) -> None:
    answer = read(reader, saved(recorded(SAMPLED), tmp_path))
    assert Trace.from_dict(answer["trace"]) == recorded(SAMPLED)


OTHER_FILES = {
    "junk": b"junk",
    "a byte too many": bytes(MAX_PACKED + 1),
    "twice as many bytes": bytes(2 * MAX_PACKED),
    "many values": gzip.compress(b"[" + b"[]," * 5_500_000 + b"[]]"),
}


@pytest.mark.parametrize("raw", OTHER_FILES.values(), ids=OTHER_FILES)
def test_any_other_file_becomes_a_sentence(
    reader: FileReader, raw: bytes, sentences: Sentences
) -> None:
    answer = read(reader, raw)
    assert answer.keys() == {"error"}
    sentences(answer["error"])


def test_a_file_that_takes_too_long_is_given_up_and_the_next_one_is_read(
    reader: FileReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(reading, "MAX_SECONDS", 0.0)
        slow = gzip.compress(b"[" + b"1," * 2**20 + b"1]")
        assert "takes too long" in read(reader, slow)["error"]
    assert "trace" in read(reader, saved(recorded(SAMPLED), tmp_path))


def test_only_a_few_files_wait(reader: FileReader) -> None:
    """Each waiting file holds a thread of the server."""
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        answers.append(read(reader, b"{}"))

    askers = [threading.Thread(target=ask) for _ in range(reading.MAX_WAITING + 3)]
    with reader._lock:
        for one in askers:
            one.start()
        while len(answers) < 2:
            time.sleep(0.01)
        assert [one["error"] for one in answers] == [reading.CROWDED] * 2
    for one in askers:
        one.join()
    assert len(answers) == len(askers)


@pytest.fixture(scope="module")
def shipped() -> dict[str, Trace]:
    """The recordings that ship, by name."""
    return {
        path.name.removesuffix(".json.gz"): read_recording(path.read_bytes()) for path in PRESENT
    }


@pytest.mark.skipif(not PRESENT, reason="no recordings are here")
def test_the_recordings_that_ship_are_small_real_and_of_the_presets_and_questions(
    shipped: dict[str, Trace],
) -> None:
    assert sum(path.stat().st_size for path in PRESENT) <= MAX_BYTES
    wanted = [one for pair in PAIRS for one in (*presets_of(pair), *recorded_of(pair))]
    presets = {preset.name: preset for preset in wanted}
    files = [(folder_of(pair) / QUESTIONS).read_text("utf-8") for pair in PAIRS]
    rows = [row for text in files for row in json.loads(text)["asked"]]
    asked = {row[part] for row in rows for part in ("run", "beside") if part in row}
    assert len(rows) == 7 * len(PAIRS) and asked <= shipped.keys() == presets.keys()
    for run in shipped.values():
        assert run.end is not None and "stopped" not in run.end.reasons.values()


RECORDED_AS_ASKED = [
    (pair, preset)
    for pair in PAIRS
    for preset in (*presets_of(pair), *recorded_of(pair))
    if (RECORDINGS / f"{preset.name}.json.gz").exists()
]


def test_each_recording_is_of_its_presets_prompt_and_settings(shipped: dict[str, Trace]) -> None:
    """In greedy recordings, both lanes also have the same text."""
    for pair, preset in RECORDED_AS_ASKED:
        run = shipped[preset.name]
        assert (run.header.question or run.header.prompt) == preset.prompt, preset.name
        settings = asdict(run.header.settings)
        wanted = preset.settings_on(pair)
        assert {name: settings[name] for name in wanted} == wanted, preset.name
        if wanted["temperature"] == 0:
            assert run.text("speculative") == run.text("baseline"), preset.name

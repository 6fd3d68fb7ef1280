"""The files of the built-in pair must be the published ones: other contents cannot race."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sentences import Sentences

from specviz import Settings, load_pair
from specviz.base.environment import ASSETS
from specviz.base.errors import PairError, SpecvizError
from specviz.files.checksums import LIST, check_files, write_checksums
from specviz.worker.local import LocalWorker
from specviz.worker.tasks import RaceTask

pytestmark = pytest.mark.skipif(
    not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"
)
DRAFT = ASSETS / "pair" / "draft"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The draft folder of a copy of the built-in pair, which is loaded instead."""
    shutil.copytree(ASSETS / "pair", tmp_path / "pair")
    monkeypatch.setattr("specviz.pairs.load.ASSETS", tmp_path)
    return tmp_path / "pair" / "draft"


def flipped(folder: Path) -> None:
    """Flip one bit of a weight: the models would race, with another alpha."""
    path = folder / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


FAULTS: dict[str, Callable[[Path], object]] = {
    "a bit": flipped,
    "another config": lambda folder: (folder / "config.json").write_text("{}"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "one more file": lambda folder: (folder / "adapter_config.json").touch(),
    "no list": lambda folder: (folder / LIST).unlink(),
    "no list of checksums": lambda folder: (folder / LIST).write_text("nonsense"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_not_as_published_is_refused(
    copy: Path, fault: str, sentences: Sentences
) -> None:
    FAULTS[fault](copy)
    with sentences.raises(PairError):
        load_pair()


def test_the_list_is_one_that_other_programs_read_and_hidden_files_are_not_in_it(
    tmp_path: Path,
) -> None:
    shutil.copytree(DRAFT, tmp_path / "draft")
    (tmp_path / "draft" / ".DS_Store").touch()
    check_files(tmp_path / "draft")
    write_checksums(tmp_path / "draft")
    assert (tmp_path / "draft" / LIST).read_bytes() == (DRAFT / LIST).read_bytes()
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", LIST], cwd=DRAFT, check=True)


def test_the_log_tells_why_a_pair_cannot_be_loaded(
    copy: Path, caplog: pytest.LogCaptureFixture, sentences: Sentences
) -> None:
    """The sentence is sent between processes, but its causes are not."""
    (copy / "tokenizer.json").write_text("{")
    name = f"{copy}+{copy.with_name('target')}"
    worker = LocalWorker(lambda pair, _: load_pair(pair), lambda *_: iter(()))
    with sentences.raises(SpecvizError):
        list(worker.run(RaceTask(name, "w", Settings())))
    (line,) = [record.getMessage() for record in caplog.records if "failed" in record.msg]
    assert name in line and "caused by" in line and "JSONDecodeError" in line
    assert "\n" not in line

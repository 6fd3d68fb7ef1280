"""Weights of GGUF files: mapped if passes read them in their stored format, otherwise converted."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sentences import Sentences

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

from tiny_files import tiny_file

from specviz import generate, load_pair, race
from specviz.base.errors import PairError
from specviz.core.threads import use_threads
from specviz.files import memory
from specviz.files.gguf.header import read_gguf
from specviz.files.packed_weights import PackedWeights, Reading, read_weights
from specviz.files.progress import Progress
from specviz.pairs import models
from specviz.worker.loading import Models, Status, load_named

PROMPT = [3, 1, 4, 1, 5]
MAPS = Path("/proc/self/smaps")
reads_maps = pytest.mark.skipif(not MAPS.exists(), reason="the system does not say what is mapped")


def mapped(path: Path) -> dict[range, int]:
    """The address ranges to which a file is mapped in this process, each with its resident
    bytes."""
    found: dict[range, int] = {}
    addresses = None
    for line in MAPS.read_text().splitlines():
        first, *_, last = line.split()
        if not first.endswith(":"):
            begin, end = first.split("-")
            addresses = range(int(begin, 16), int(end, 16)) if last == str(path) else None
        elif addresses is not None and first == "Rss:":
            found[addresses] = 1024 * int(line.split()[1])
    return found


def same_weights(first: PackedWeights, second: PackedWeights) -> bool:
    return first.digest == second.digest and all(
        held.packed_as == second.tensors[name].packed_as
        and held.data.dtype == second.tensors[name].data.dtype
        and torch.equal(held.data, second.tensors[name].data)
        for name, held in first.tensors.items()
    )


@pytest.fixture(scope="module")
def file_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A function that writes a file of a kind, once, for tests that do not change it."""

    @functools.cache
    def written(kind: str, name: str) -> Path:
        return tiny_file(tmp_path_factory.mktemp("file"), kind, name=name).path

    return written


@reads_maps
def test_what_passes_read_as_it_stands_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_K", architecture="qwen2").path
    pair = load_pair(f"{path}+none", products="fp32")
    ranges = mapped(path)
    for name, parameter in pair.target.named_parameters():
        address = parameter.data_ptr()
        assert any(address in addresses for addresses in ranges), name


@reads_maps
def test_pages_of_what_was_unpacked_are_given_back(tmp_path: Path) -> None:
    """Reading the next tensors maps some earlier pages again, so not all are gone."""
    path = tiny_file(tmp_path, "Q4_K", architecture="qwen2").path
    weights = read_weights(Reading(read_gguf(path), "it", torch.bfloat16))
    pages = mapped(path)
    assert pages, "norms and biases are in the file still"
    assert sum(pages.values()) < path.stat().st_size / 2
    assert weights.tensors["blk.0.ffn_up.weight"].data.dtype == torch.bfloat16


@reads_maps
def test_pages_of_what_is_in_tiles_are_given_back(tmp_path: Path) -> None:
    """Other pages are mapped here too, more of them on a busy machine."""
    path = tiny_file(tmp_path, "Q8_0", architecture="qwen2", tie_word_embeddings=False).path
    pair = load_pair(f"{path}+none")
    table = pair.target.get_input_embeddings().weight
    pages = mapped(path)
    assert pages, "the embedding table is in the file still"
    assert sum(pages.values()) < table.nbytes + path.stat().st_size / 2


def test_a_weight_that_is_written_to_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    weights = read_weights(Reading(read_gguf(path), "it"))
    for held in weights.tensors.values():
        held.data.zero_()
    assert all(not held.data.any() for held in weights.tensors.values())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest == weights.digest


def test_another_file_may_take_its_place(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    kept = path.read_bytes()
    weights = read_weights(Reading(read_gguf(path), "it"))
    before = {name: held.data.clone() for name, held in weights.tensors.items()}
    other = tiny_file(tmp_path, "Q4_0", name="other", seed=1).path
    assert other.read_bytes() != kept
    other.replace(path)
    assert all(torch.equal(held.data, before[name]) for name, held in weights.tensors.items())


def test_a_file_that_was_written_to_gives_a_sentence_and_not_another_text(
    tmp_path: Path, sentences: Sentences
) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    pair = load_pair(f"{path}+none")
    text = generate(pair, PROMPT, max_new_tokens=4).text
    with path.open("r+b") as file:
        file.write(b"GGUF")
    with sentences.raises(PairError):
        generate(pair, PROMPT, max_new_tokens=4)
    assert generate(load_pair(f"{path}+none"), PROMPT, max_new_tokens=4).text == text


def test_a_file_that_is_replaced_or_gone_is_read_on(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    pair = load_pair(f"{path}+none")
    text = generate(pair, PROMPT, max_new_tokens=4).text
    tiny_file(tmp_path, "Q4_0", name="other", seed=1).path.replace(path)
    assert generate(pair, PROMPT, max_new_tokens=4).text == text
    path.unlink()
    assert generate(pair, PROMPT, max_new_tokens=4).text == text


def test_a_worker_reads_a_file_again_that_was_written_to(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    models = Models(load_named, race)
    for written in (False, True):
        if written:
            with path.open("r+b") as file:
                file.write(b"GGUF")
        assert Status.LOADING in [*models.pair(f"{path}+none")]
        assert [*models.pair(f"{path}+none")] == []


@pytest.mark.parametrize(
    ("kept", "products"),
    [(None, "fp32"), (torch.float32, "fp32"), (torch.bfloat16, "fp32"), (None, "int8")],
)
@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "F16"])
def test_weights_depend_on_neither_threads_nor_pieces_nor_the_default_dtype(
    file_of: Callable[[str, str], Path],
    kind: str,
    kept: torch.dtype | None,
    products: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Reading(read_gguf(file_of(kind, "target")), "it", kept, products)
    weights = read_weights(reading)
    for module in ("few_bits.unpacking", "packed_weights"):
        monkeypatch.setattr(f"specviz.files.{module}.PIECE", 1000)  # a few rows
    threads = torch.get_num_threads()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with use_threads(5):
            assert same_weights(weights, read_weights(reading))
    finally:
        torch.set_default_dtype(default)
    assert torch.get_num_threads() == threads


def test_tensors_may_begin_anywhere(tmp_path: Path) -> None:
    """A file's alignment may be 1: numbers may then be at addresses that are not aligned for
    torch."""
    path = tiny_file(tmp_path, "F16").path
    header = read_gguf(path)
    content = path.read_bytes()
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(content[: header.begin] + b"\0" + content[header.begin :])
    odd_header = replace(header, path=moved, begin=header.begin + 1)
    odd = read_weights(Reading(odd_header, "it"))
    for name, held in read_weights(Reading(header, "it")).tensors.items():
        assert torch.equal(odd.tensors[name].data, held.data)
        assert odd.tensors[name].data.data_ptr() % held.data.element_size() == 0


def test_a_file_that_became_shorter_is_told(tmp_path: Path, sentences: Sentences) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    header = read_gguf(path)
    for length in (path.stat().st_size // 2, header.begin - 5, 0):
        path.write_bytes(path.read_bytes()[:length])
        with sentences.raises(PairError):
            read_weights(Reading(header, "it"))
    path.unlink()
    with sentences.raises(PairError):
        read_weights(Reading(header, "it"))


def test_progress_comes_in_order_and_to_its_end(tmp_path: Path) -> None:
    told: list[Progress] = []
    header = read_gguf(tiny_file(tmp_path, "Q4_0").path)
    read_weights(Reading(header, "Tiny", on_progress=told.append))
    fractions = [progress.fraction or 0.0 for progress in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0, abs=0.02)
    assert all(progress.sentence.startswith("reading Tiny (") for progress in told)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float32"},
        {"dtype": "bfloat16"},
        {"quantize": "8bit", "draft_quantize": "5bit"},
        {"dtype": "bfloat16", "draft_quantize": "4bit"},
    ],
    ids=str,
)
def test_a_file_is_read_once_whatever_is_asked_for(
    file_of: Callable[[str, str], Path], read: list[Path], options: dict[str, str]
) -> None:
    paths = [file_of("Q4_0", name) for name in ("target", "draft")]
    load_pair(f"{paths[0]}+{paths[1]}", **options)
    assert sorted(read) == sorted(paths)


def test_no_weight_is_read_before_there_is_known_to_be_room(
    tmp_path: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    load_pair(f"{path}+{path}")
    assert set(read) == {path}
    read.clear()
    monkeypatch.setattr(memory, "free_ram", lambda: 1000)
    with sentences.raises(PairError):
        load_pair(f"{path}+{path}")
    assert read == []


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose weights are read in their stored format."""
    paths: list[Path] = []

    def noted(reading: Reading) -> PackedWeights:
        paths.append(reading.header.path)
        return read_weights(reading)

    monkeypatch.setattr(models, "read_weights", noted)
    return paths

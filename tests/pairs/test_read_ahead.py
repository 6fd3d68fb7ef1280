"""Weights of GGUF files, read in a thread while the modules of their models are imported."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

from tiny_files import tiny_file

from specviz import load_pair
from specviz.errors import PairError
from specviz.pairs import memory, packed_weights
from specviz.pairs.gguf import read_gguf
from specviz.pairs.packed_weights import PackedWeights, ReadAhead, Reading, read_weights
from specviz.pairs.progress import Progress


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """As transformers has it while it makes a model; it holds in all threads."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    ("kept", "bits"), [(None, None), ("float32", None), ("bfloat16", None), (None, "5bit")]
)
@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "F16"])
def test_weights_are_the_same_whatever_is_made_meanwhile(
    tmp_path: Path, kind: str, kept: str | None, bits: str | None
) -> None:
    header = read_gguf(tiny_file(tmp_path, kind).path)
    reading = Reading(header, "it", kept, bits)
    alone = read_weights(reading)
    with default_dtype(torch.bfloat16), ReadAhead(free=10**9) as ahead:
        ahead.begin(reading)
        beside = ahead.weights(reading)
    assert beside.digest == alone.digest
    for name, (packed_as, data) in alone.tensors.items():
        assert beside.tensors[name].packed_as == packed_as
        assert beside.tensors[name].data.dtype == data.dtype
        assert torch.equal(beside.tensors[name].data, data)


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Who watches is told of one file at a time."""
    names = ("one", "two")
    headers = [read_gguf(tiny_file(tmp_path, "Q4_0", name=name).path) for name in names]
    second_began = Event()
    order: list[str] = []

    def reading_first(_: Progress) -> None:
        order.append("one")
        second_began.wait(0.01)  # which would let it come between, if it could

    def reading_second(_: Progress) -> None:
        order.append("two")
        second_began.set()

    with ReadAhead(free=10**9) as ahead:
        for header, name, watcher in zip(
            headers, names, (reading_first, reading_second), strict=True
        ):
            ahead.begin(Reading(header, name, on_progress=watcher))
        for header, name in zip(headers, names, strict=True):
            ahead.weights(Reading(header, name))
    assert set(order) == {*names} and order == sorted(order)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    paths = [tiny_file(tmp_path, "Q4_0", name=name).path for name in ("target", "draft")]
    read: list[Path] = []

    def noted(reading: Reading, *rest: Any) -> PackedWeights:
        read.append(reading.header.path)
        return read_weights(reading, *rest)

    monkeypatch.setattr(packed_weights, "read_weights", noted)
    load_pair(f"{paths[0]}+{paths[1]}", **options)
    assert sorted(read) == sorted(paths)


def test_weights_that_were_begun_as_something_else_are_read_anew(tmp_path: Path) -> None:
    header = read_gguf(tiny_file(tmp_path, "Q4_0").path)
    for dtype, bits in [("bfloat16", None), (None, "5bit")]:
        with ReadAhead(free=10**9) as ahead:
            ahead.begin(Reading(header, "it"))
            weights = ahead.weights(Reading(header, "it", dtype, bits))
        held = weights.tensors["blk.0.ffn_up.weight"]
        alone = read_weights(Reading(header, "it", dtype, bits)).tensors["blk.0.ffn_up.weight"]
        assert held.packed_as == alone.packed_as and held.data.dtype == alone.data.dtype


def test_nobody_waits_for_weights_that_are_not_wanted_any_more(tmp_path: Path) -> None:
    header = read_gguf(tiny_file(tmp_path, "Q4_0").path)
    ended = Event()
    seen: list[float | None] = []

    def on_progress(progress: Progress) -> None:
        seen.append(progress.fraction)
        ended.set()

    with pytest.raises(CancelledError):
        read_weights(Reading(header, "it", on_progress=on_progress), ended)
    assert len(seen) <= 2


def test_no_weight_is_read_before_there_is_known_to_be_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_file(tmp_path, "Q4_0").path
    read: list[Path] = []

    def noted(reading: Reading, *rest: Any) -> PackedWeights:
        read.append(reading.header.path)
        return read_weights(reading, *rest)

    monkeypatch.setattr(packed_weights, "read_weights", noted)
    load_pair(f"{path}+{path}")
    assert set(read) == {path}
    read.clear()
    monkeypatch.setattr(memory, "free_ram", lambda: 1000)
    with pytest.raises(PairError, match="not enough memory"):
        load_pair(f"{path}+{path}")
    assert read == []

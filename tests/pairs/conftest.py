"""Fixtures for the tests of the doctor: a pair in folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_rounds import cold_races
from model_families import saved_llama


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """Skip the warm-up of races: no test here reads the times of real passes."""
    with cold_races():
        yield


@pytest.fixture(scope="package")
def good_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a target and of a draft with a tenth of its size."""
    root = tmp_path_factory.mktemp("good")
    target = saved_llama(
        root / "target", hidden_size=48, head_dim=24, intermediate_size=96, num_hidden_layers=2
    )
    return target, saved_llama(root / "draft", seed=1, hidden_size=16, head_dim=8)

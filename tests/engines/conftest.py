"""Fixtures of the static form of engines, shared by several files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from toy_models import llama, pair_of, relative

from specviz.core.pair import Pair
from specviz.sides.fast_gpu import engine as engines

VOCAB = 40


@pytest.fixture
def static_form(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the static form wherever possible, with windows so short that every run outgrows
    several."""
    monkeypatch.setenv("SPECVIZ_FORM", "static")
    monkeypatch.setattr("specviz.sides.fast_gpu.cache.SMALLEST", 16)
    yield
    engines._pools.clear()


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A target, and a draft that agrees with it about half of the time."""
    target = llama(VOCAB, num_hidden_layers=2, hidden_size=32, initializer_range=0.2)
    return pair_of(target, relative(target, noise=0.35))

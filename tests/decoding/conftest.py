"""What all tests of decoding have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def short_warm_up() -> Iterator[None]:
    """Nobody here reads a clock for which rounds would be warmed up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.core.turns.WARM_ROUNDS", 1)
        yield
